"""Checkpoints: written whole, read back only if whole, the last two kept, with the weights that they selected."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from harness.files import atomic_file

FORMAT = 2
KEEP = 2
_NAME = re.compile(r"step-(\d{9})\.pt")


class Damaged(Exception):
    """A checkpoint file is cut short or altered."""


def save(folder: Path, state: dict[str, Any]) -> Path:
    """Write ``step-<step>.pt``, then drop all but the last `KEEP`."""
    folder.mkdir(exist_ok=True)
    path = folder / f"step-{state['step']:09d}.pt"
    _write(path, {"format": FORMAT, **state})
    for old in _newest_first(folder)[KEEP:]:
        old.unlink(missing_ok=True)
    return path


def load_newest(folder: Path) -> tuple[dict[str, Any] | None, list[str]]:
    """The newest whole checkpoint, None where there is none, and what was wrong with newer ones (now deleted)."""
    problems: list[str] = []
    for path in _newest_first(folder):
        try:
            state = _read(path)
            if state.get("format") != FORMAT:
                raise Damaged(f"format {state.get('format')}, expected {FORMAT}")
            if state["selected"] is not None:
                _read(weights_path(folder, state["selected"]))
            for step in state["progress"]["averaged"]:
                _read(_part_path(folder, step))
            return state, problems
        except Damaged as error:
            problems.append(f"{path.name}: {error}: fell back to the one before")
            path.unlink(missing_ok=True)
    return None, problems


def save_weights(folder: Path, step: int, weights: dict[str, Any]) -> None:
    """Write the weights selected at `step`."""
    folder.mkdir(exist_ok=True)
    _write(weights_path(folder, step), weights)


def load_weights(folder: Path, step: int) -> dict[str, Any]:
    """The weights selected at `step`; raises Damaged."""
    return _read(weights_path(folder, step))


def averaged_weights(folder: Path, steps: Sequence[int], weights: dict[str, Any]) -> dict[str, Any]:
    """Keep the weights of the last of `steps` as a part of averages, and return the mean of all those parts.

    What is no floating-point number, such as a counter, is the last one's. Raises Damaged.
    """
    folder.mkdir(exist_ok=True)
    _write(_part_path(folder, steps[-1]), weights)
    mean = {key: value.detach().to("cpu", copy=True) for key, value in weights.items()}
    floating = [key for key, value in mean.items() if value.is_floating_point()]
    for step in steps[:-1]:
        part = _read(_part_path(folder, step))
        for key in floating:
            mean[key] += part[key]
    for key in floating:
        mean[key] /= len(steps)
    return mean


def keep_weights(folder: Path, selected: set[int], parts: set[int]) -> None:
    """Drop the selected weights, and the parts of averages, of other steps."""
    for stem, steps in (("weights", selected), ("part", parts)):
        for path in folder.glob(f"{stem}-*.pt"):
            if int(path.stem.removeprefix(f"{stem}-")) not in steps:
                path.unlink(missing_ok=True)


def discard(folder: Path) -> None:
    """Drop the training states of a trial that succeeded; its selected weights stay for analyses."""
    for path in (*_newest_first(folder), *folder.glob("part-*.pt")):
        path.unlink(missing_ok=True)


def _part_path(folder: Path, step: int) -> Path:
    return folder / f"part-{step:09d}.pt"


def weights_path(folder: Path, step: int) -> Path:
    """Where the weights selected at `step` lie."""
    return folder / f"weights-{step:09d}.pt"


def _newest_first(folder: Path) -> list[Path]:
    return sorted((path for path in folder.glob("step-*.pt") if _NAME.fullmatch(path.name)), reverse=True)


def _write(path: Path, content: dict[str, Any]) -> None:
    with atomic_file(path) as file:
        try:
            torch.save(content, file)
        except RuntimeError as error:
            # torch hides the OSError of a full disk behind its own.
            raise OSError(f"{path}: could not be written: {str(error).splitlines()[0]}") from error


def _read(path: Path) -> dict[str, Any]:
    """Read after checking every byte against the archive's checksums; nothing but tensors and plain values."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise Damaged(f"checksum of {broken} is wrong")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        return state
    except FileNotFoundError:
        raise Damaged("is missing") from None
    except Damaged:
        raise
    except Exception as error:
        raise Damaged(f"cannot be read ({type(error).__name__})") from error
