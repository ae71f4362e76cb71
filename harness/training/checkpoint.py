"""Checkpoints: written atomically, validated on reading; the last two are kept with the weights they selected."""

from __future__ import annotations

import copy
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dropbench.harness.errors import InputError
from dropbench.harness.files import atomic_file

State = Mapping[str, Any]
FORMAT = 4
KEEP = 2
CHANGING = {"lr": 0, "step": 0}
"""Settings of a group of parameters that differ between steps."""
WEIGHTS = "state_dict"
"""Key of the weights in a file of weights, one of those that checkpoints of other programs have."""
EVALUATION = "evaluation.pt"
"""The file of an evaluation that was stopped (`dropbench.harness.training.train_state.EvaluationProgress`)."""
_STATES = f"step-{'[0-9]' * 9}.pt"


class Damaged(Exception):
    """A checkpoint file is cut short, altered, or another trial's."""


UNUSABLE = Damaged, RuntimeError, ValueError, TypeError, LookupError, AttributeError
"""Errors of loading a checkpoint that is damaged or does not fit."""


def save(folder: Path, state: dict[str, Any]) -> Path:
    """Write ``step-<step>.pt``, then delete all but the last `KEEP`."""
    path = _path(folder, state["step"])
    write(path, {"format": FORMAT, **state})
    for old in _newest_first(folder)[KEEP:]:
        old.unlink(missing_ok=True)
    return path


def load_newest(folder: Path, load: Callable[[State], None], weights: State) -> tuple[bool, list[str]]:
    """Load the newest valid checkpoint; return whether there is one, and the problems of newer ones, which are deleted.

    Its weights have to fit `weights`. If no checkpoint fits that can be read, InputError is raised and none is deleted.
    """
    irregular = [path for path in folder.glob(_STATES) if not path.is_file()]
    problems = {path: f"{path.name}: not a regular file: not opened" for path in irregular}
    loaded = misfit = False
    for path in _newest_first(folder):
        try:
            _load(path, load, weights)
            loaded = True
            break
        except torch.OutOfMemoryError:
            raise
        except UNUSABLE as error:
            misfit = misfit or not isinstance(error, Damaged)
            problems[path] = f"{path.name}: {_line(error)}: using the previous one"
    if misfit and not loaded:
        raise InputError(f"{folder}: no checkpoint fits: use the libraries that wrote them, or delete the folder")
    for path in filter(Path.is_file, problems):
        path.unlink(missing_ok=True)
    return loaded, list(problems.values())


def load_as_main(folder: Path, step: int, load: Callable[[State], None], weights: State) -> None:
    """Load the checkpoint that the main process loaded; raise InputError if this process cannot, and delete none."""
    path = _path(folder, step)
    try:
        _load(path, load, weights)
    except torch.OutOfMemoryError:
        raise
    except UNUSABLE as error:
        raise InputError(f"{path}: not every process can read it: {_line(error)}: `dropbench retry`") from error


def _load(path: Path, load: Callable[[State], None], weights: State) -> None:
    """Load a checkpoint whose weights fit `weights`, or raise one of `UNUSABLE`."""
    state = read(path)
    if state.get("format") != FORMAT:
        raise Damaged(f"format {state.get('format')}, expected {FORMAT}")
    if state["selected"] is not None:
        check_fit(load_weights(path.parent, state["selected"]), weights)
    for step in state["progress"]["averaged"]:
        check_fit(load_weights(path.parent, step, "part"), weights)
    load(state)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]


def check_fit(state: State, like: State) -> None:
    """Raise ValueError unless a state dict has the names and shapes of another one, and no NaN."""
    shapes = [{name: getattr(value, "shape", None) for name, value in each.items()} for each in (state, like)]
    if shapes[0] != shapes[1] or any(isinstance(value, Tensor) and value.isnan().any() for value in state.values()):
        raise ValueError("state of another model, or NaN")


def load_parts(saved: State, parts: State) -> None:
    """Load the model, optimizer and the like; raises an exception if they do not fit, possibly after loading some."""
    model = parts["model"]
    optimizer: Any = getattr(parts["optimizer"], "optimizer", parts["optimizer"])  # in accelerate's wrapper
    for name in parts.keys() & {"model", "average"}:
        check_fit(saved[name], parts[name].state_dict())
    groups: list[dict[str, Any]] = saved["optimizer"]["param_groups"]
    for group, like in zip(groups, optimizer.state_dict()["param_groups"], strict=True):
        # Another version of torch may lack a setting that has a default. The rate changes from step to step, and some
        # optimizers count their steps here.
        if optimizer.defaults | group | CHANGING != optimizer.defaults | like | CHANGING:
            raise ValueError("groups of another optimizer")
    # Fused optimizers do not check shapes: compare them with those that a step with gradients of zero creates.
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.state.clear()
    optimizer.step()
    created = optimizer.state_dict()["state"]
    for index, state in saved["optimizer"]["state"].items():
        for name in state.keys() & created[index].keys():
            if getattr(state[name], "shape", None) != getattr(created[index][name], "shape", None):
                raise ValueError(f"optimizer state '{name}' of another shape")
    # Such a step fails, or gives NaN, if the optimizer's state does not fit otherwise.
    model.load_state_dict(saved["model"])
    own_groups = optimizer.param_groups
    try:
        optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
        optimizer.step()
    except Exception:
        optimizer.param_groups = own_groups  # for the previous checkpoint
        raise
    model.zero_grad(set_to_none=True)
    check_fit(model.state_dict(), saved["model"])
    for name, part in parts.items():
        part.load_state_dict(saved[name])


def save_weights(folder: Path, step: int, weights: dict[str, Any]) -> None:
    """Write the weights selected at `step`."""
    write(weights_path(folder, step), {WEIGHTS: weights})


def load_weights(folder: Path, step: int, stem: str = "weights") -> dict[str, Any]:
    """Return the weights selected at `step`; `stem` as for `weights_path`. Raises Damaged."""
    weights = read(weights_path(folder, step, stem)).get(WEIGHTS)
    if not isinstance(weights, dict):
        raise Damaged("has no weights")
    return weights


def averaged_weights(folder: Path, steps: Sequence[int], weights: dict[str, Any]) -> dict[str, Any]:
    """Save the weights of the last of `steps` and return the mean over all `steps`.

    Tensors that are not floating point, such as counters, are taken from the last step. Raises Damaged.
    """
    write(weights_path(folder, steps[-1], "part"), {WEIGHTS: weights})
    mean = {key: value.detach().to("cpu", copy=True) for key, value in weights.items()}
    floating = [key for key, value in mean.items() if value.is_floating_point()]
    for step in steps[:-1]:
        part = load_weights(folder, step, "part")
        for key in floating:
            mean[key] += part[key]
    for key in floating:
        mean[key] /= len(steps)
    return mean


def discard(folder: Path, selected: int) -> None:
    """Delete the training states of a trial that succeeded; the weights of the selected step stay for analyses."""
    weights = (path for path in folder.glob("weights-*.pt") if path != weights_path(folder, selected))
    for path in (*_newest_first(folder), *folder.glob("part-*.pt"), *weights, folder / EVALUATION):
        path.unlink(missing_ok=True)


def weights_path(folder: Path, step: int, stem: str = "weights") -> Path:
    """Return the path of the weights selected at `step`; with the stem "part", of a part of an average."""
    return folder / f"{stem}-{step:09d}.pt"


def _path(folder: Path, step: int) -> Path:
    return folder / f"step-{step:09d}.pt"


def _newest_first(folder: Path) -> list[Path]:
    return sorted(filter(Path.is_file, folder.glob(_STATES)), reverse=True)


def _trial(path: Path) -> str:
    """Return the id of the trial in whose run directory a checkpoint is."""
    return path.absolute().parent.parent.name


def write(path: Path, content: dict[str, Any]) -> None:
    """Write tensors and plain values atomically, with the trial's id; raises OSError if the disk is full."""
    path.parent.mkdir(exist_ok=True)
    if path.is_dir():
        path.rename(path.with_suffix(".damaged"))
    with atomic_file(path) as file:
        try:
            torch.save({"trial": _trial(path), **content}, file)
        except RuntimeError as error:
            # torch raises RuntimeError when the disk is full.
            raise OSError(f"{path}: could not be written: {str(error).splitlines()[0]}") from error


def read(path: Path) -> dict[str, Any]:
    """Read tensors and plain values, after checking the trial, and every byte against the archive's checksums.

    Raises Damaged.
    """
    if not path.is_file():
        raise Damaged("is missing, or not a regular file")
    try:
        with zipfile.ZipFile(path) as archive:
            if (broken := archive.testzip()) is not None:
                raise Damaged(f"checksum of {broken} is wrong")
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        if (trial := state["trial"]) != _trial(path):
            raise Damaged(f"is of trial {trial!a:.40}")
        return state
    except Damaged:
        raise
    except Exception as error:
        raise Damaged(f"cannot be read ({type(error).__name__})") from error
