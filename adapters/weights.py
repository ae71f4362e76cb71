"""Checkpoints from the user: read without unpickling code, and loaded only if they match the model.

`torch.load` refuses the few harmless types that checkpoints of mmengine contain in addition to tensors. The context
`detector_checkpoint` allows exactly these types; all others are still refused.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numpy._core import multiarray
from torch import Tensor, nn
from torch.serialization import safe_globals

from dropbench.harness.errors import InputError

AVERAGED = ("state_dict_ema", "model_ema")
FILES = ("model.safetensors", "pytorch_model.bin")
"""The file of the weights in a folder, in order of preference."""
WRAPPERS = (*AVERAGED, "state_dict", "model", "net")
"""Keys of the weights in a checkpoint, in order of preference: averaged weights before those of the last step."""


def read_state(path: Path, allowed: AbstractContextManager[None] | None = None) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a checkpoint by parameter name, and the key that held them ("" for none).

    The file was written by `torch.save` or safetensors; of a folder, it is one of `FILES`. `allowed` is a context that
    allows further types in it; by default, argparse's Namespace, with the options of a training script.

    Raises:
        InputError: the file does not exist, or contains other types.
    """
    path = next((path / name for name in FILES if (path / name).is_file()), path)
    if not path.is_file():
        raise InputError(f"weights {path}: no such file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            with allowed or safe_globals([argparse.Namespace]):
                content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # neither library has its own error type for damaged files
        # torch's message suggests to disable the check; only the refused type is reported.
        refused = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"found {refused[1]}" if refused else " ".join(str(error).split())[:80] or type(error).__name__
        raise InputError(f"weights {path}: expected a checkpoint with only tensors and numbers: {reason}") from None
    by_key = content if isinstance(content, Mapping) else {}
    wrapper = next((key for key in WRAPPERS if isinstance(by_key.get(key), Mapping)), "")
    state = content[wrapper] if wrapper else content
    if not isinstance(state, Mapping) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(
            f"weights {path}: expected tensors by parameter name, or under one of the keys {', '.join(WRAPPERS)}"
        )
    return {str(key).removeprefix("module."): value for key, value in state.items()}, wrapper


def use_own_classifier(
    state: dict[str, Tensor], own: Mapping[str, Tensor], layer: str, background: int = 0
) -> str | None:
    """Replace a classifier for another number of classes by the model's own, in place; return a note if it did.

    `state` and `own` are the tensors of a checkpoint and of the model, `layer` is the name of the linear layer that
    classifies, and `background` the number of its outputs that are no classes.
    """
    weight, bias = f"{layer}.weight", f"{layer}.bias"
    if not {weight, bias} <= state.keys() & own.keys() or state[weight].shape[1:] != own[weight].shape[1:]:
        return None
    in_file, in_model = len(state[weight]) - background, len(own[weight]) - background
    if in_file == in_model or state[bias].shape != state[weight].shape[:1]:
        return None
    state[weight], state[bias] = own[weight], own[bias]
    return f"the classifier is new: {in_file} classes in the file, {in_model} in the model"


def load_state(model: nn.Module, state: Mapping[str, Tensor], path: Path, prefix: str = "") -> None:
    """Load the tensors of a checkpoint into a model without a regularizer, or into the part of it with a prefix.

    `state` has them by the model's parameter names. Batch counts of normalization layers may be missing. `path` is the
    file, for error messages.

    Raises:
        InputError: tensors are missing, unknown or of another shape; nothing is loaded.
    """
    own = {name: value for name, value in model.state_dict().items() if name.startswith(prefix)}
    unknown = sorted(state.keys() - own.keys())
    missing = sorted(name for name in own.keys() - state.keys() if not name.endswith("num_batches_tracked"))
    if missing or unknown:
        parts = [
            f"{len(names)} {problem} ({', '.join(names[:2])}{', …' * (len(names) > 2)})"
            for names, problem in ((missing, "missing"), (unknown, "unknown"))
            if names
        ]
        raise InputError(f"weights {path}: they do not fit this {type(model).__name__}: {', '.join(parts)}")
    for name, value in state.items():
        if value.shape != own[name].shape:
            raise InputError(
                f"weights {path}: {name} has shape {tuple(value.shape)}: expected the model's {tuple(own[name].shape)}"
            )
    model.load_state_dict(state, strict=False)


def load_named_weights(model: nn.Module, path: Path) -> str:
    """Load a checkpoint whose tensors have the names of the model's parameters; return a note of one line.

    The last linear layer of the model may be for another number of classes. It then stays as it is.

    Raises:
        InputError: the file does not exist, contains other types than tensors and numbers, or does not fit the model.
    """
    state, wrapper = read_state(path)
    own = model.state_dict()
    matrices = [name for name, value in own.items() if name.endswith(".weight") and value.ndim == 2]
    note = use_own_classifier(state, own, matrices[-1].removesuffix(".weight")) if matrices else None
    load_state(model, state, path)
    return "; ".join(filter(None, [f"weights of {path.name}" + f" ({wrapper})" * bool(wrapper), note]))


def _numpy_numbers() -> list[Any]:
    """Return the functions and types in pickles of NumPy's numbers and numeric arrays, by names of NumPy 1 and 2."""
    builders = [multiarray._reconstruct, multiarray.scalar]
    old_names = [(build, f"numpy.core.multiarray.{build.__name__}") for build in builders]
    numeric = {type(np.dtype(code)) for code in "?" + np.typecodes["AllInteger"] + np.typecodes["Float"]}
    return [*builders, *old_names, np.ndarray, np.dtype, *numeric]


def _statistic(owner: Any, name: str) -> Any:
    """Replace `getattr` in the pickle of a HistoryBuffer: allow the methods that it names, and refuse all others."""
    from mmengine.logging import HistoryBuffer

    if owner is not HistoryBuffer or name not in ("current", "max", "mean", "min"):
        raise UnpicklingError(f"the checkpoint requests attribute {name!r} of {owner!r}")
    return getattr(owner, name)


def detector_checkpoint() -> AbstractContextManager[None]:
    """Allow what training saves in addition to weights: mmengine the history of its logs, the authors their options."""
    from mmengine.logging import HistoryBuffer

    return safe_globals([argparse.Namespace, HistoryBuffer, (_statistic, "builtins.getattr"), *_numpy_numbers()])
