"""Checkpoints: written atomically, validated on reading; the last two are kept with the weights they selected."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from harness.files import atomic_file

FORMAT = 2
KEEP = 2
_STATES = f"step-{'[0-9]' * 9}.pt"


class Damaged(Exception):
    """A checkpoint file is cut short or altered."""


def save(folder: Path, state: dict[str, Any]) -> Path:
    """Write ``step-<step>.pt``, then delete all but the last `KEEP`."""
    folder.mkdir(exist_ok=True)
    path = folder / f"step-{state['step']:09d}.pt"
    _write(path, {"format": FORMAT, **state})
    for old in _newest_first(folder)[KEEP:]:
        old.unlink(missing_ok=True)
    return path


def load_newest(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """Return the newest valid checkpoint or None, and the problems of newer ones, which are deleted."""
    problems: list[str] = []
    for path in _newest_first(folder):
        try:
            state = _read(path)
            if state.get("format") != FORMAT:
                raise Damaged(f"format {state.get('format')}, expected {FORMAT}")
            if state["selected"] is not None:
                _read(weights_path(folder, state["selected"]))
            for step in state["progress"]["averaged"]:
                _read(weights_path(folder, step, "part"))
            return state, problems
        except Damaged as error:
            problems.append(f"{path.name}: {error}: using the previous one")
            path.unlink(missing_ok=True)
    return None, problems


def save_weights(folder: Path, step: int, weights: dict[str, Any]) -> None:
    """Write the weights selected at `step`."""
    folder.mkdir(exist_ok=True)
    _write(weights_path(folder, step), weights)


def load_weights(folder: Path, step: int) -> dict[str, Any]:
    """Return the weights selected at `step`; raises Damaged."""
    return _read(weights_path(folder, step))


def averaged_weights(folder: Path, steps: Sequence[int], weights: dict[str, Any]) -> dict[str, Any]:
    """Save the weights of the last of `steps` and return the mean over all `steps`.

    Tensors that are not floating point, such as counters, are taken from the last step. Raises Damaged.
    """
    folder.mkdir(exist_ok=True)
    _write(weights_path(folder, steps[-1], "part"), weights)
    mean = {key: value.detach().to("cpu", copy=True) for key, value in weights.items()}
    floating = [key for key, value in mean.items() if value.is_floating_point()]
    for step in steps[:-1]:
        part = _read(weights_path(folder, step, "part"))
        for key in floating:
            mean[key] += part[key]
    for key in floating:
        mean[key] /= len(steps)
    return mean


def discard(folder: Path) -> None:
    """Delete the training states of a trial that succeeded; its selected weights stay for analyses."""
    for path in (*_newest_first(folder), *folder.glob("part-*.pt")):
        path.unlink(missing_ok=True)


def weights_path(folder: Path, step: int, stem: str = "weights") -> Path:
    """Return the path of the weights selected at `step`; with the stem "part", of a part of an average."""
    return folder / f"{stem}-{step:09d}.pt"


def _newest_first(folder: Path) -> list[Path]:
    return sorted(folder.glob(_STATES), reverse=True)


def _write(path: Path, content: dict[str, Any]) -> None:
    with atomic_file(path) as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:
            # torch raises RuntimeError when the disk is full.
            raise OSError(f"{path}: could not be written: {str(error).splitlines()[0]}") from error


def _read(path: Path) -> dict[str, Any]:
    """Read tensors and plain values, after checking every byte against the archive's checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            if (broken := archive.testzip()) is not None:
                raise Damaged(f"checksum of {broken} is wrong")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state
    except FileNotFoundError:
        raise Damaged("is missing") from None
    except Damaged:
        raise
    except Exception as error:
        raise Damaged(f"cannot be read ({type(error).__name__})") from error
