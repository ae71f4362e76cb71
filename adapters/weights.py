"""Checkpoints from the user: read without unpickling code, and loaded only if they match the model."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.serialization import safe_globals

from harness.errors import InputError

AVERAGED = ("state_dict_ema", "model_ema")
WRAPPERS = (*AVERAGED, "state_dict", "model", "net")
"""Keys of the weights in a checkpoint, in order of preference: averaged weights before those of the last step."""


def read_state(path: Path, allowed: AbstractContextManager[None] | None = None) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a checkpoint by parameter name, and the key that held them ("" for none).

    Args:
        path: a file written by `torch.save` or safetensors.
        allowed: a context that allows further types in the file; default: argparse's Namespace, with the options of a
            training script.

    Raises:
        InputError: the file does not exist, or contains other types.
    """
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
    wrapper = next(
        (key for key in WRAPPERS if isinstance(content, Mapping) and isinstance(content.get(key), Mapping)), ""
    )
    state = content[wrapper] if wrapper else content
    if not isinstance(state, Mapping) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(
            f"weights {path}: expected tensors by parameter name, or under one of the keys {', '.join(WRAPPERS)}"
        )
    return {str(key).removeprefix("module."): value for key, value in state.items()}, wrapper


def load_state(model: nn.Module, state: Mapping[str, Tensor], path: Path, prefix: str = "") -> None:
    """Load the tensors of a checkpoint into a model or a part of it.

    Args:
        model: without a regularizer.
        state: tensors by the model's parameter names. Batch counts of normalization layers may be missing.
        path: the file, for error messages.
        prefix: prefix of the parameter names of the part.

    Raises:
        InputError: tensors are missing, unknown or of another shape; nothing is loaded.
    """
    own = {name: value for name, value in model.state_dict().items() if name.startswith(prefix)}
    unknown = sorted(state.keys() - own.keys())
    missing = sorted(name for name in own.keys() - state.keys() if not name.endswith("num_batches_tracked"))
    if missing or unknown:
        parts = [
            f"{len(names)} {problem} ({_first_two(names)})"
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


def _first_two(names: list[str]) -> str:
    return ", ".join(names[:2]) + (", …" if len(names) > 2 else "")
