"""Weights from files of the user's: read without trust, and given to a model only where they are its own."""

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
"""Where weights lie in a checkpoint, the first one that is there is taken: an average rather than the last step."""


def read_state(path: Path, allowed: AbstractContextManager[None] | None = None) -> tuple[dict[str, Tensor], str]:
    """The tensors of a checkpoint by the names of parameters, and in what they were wrapped ("" for nothing).

    Args:
        path: a file, as `torch.save` or safetensors writes it.
        allowed: a context that allows what the file may hold beside tensors and numbers; default: a training script's
            options, as plain attributes of a Namespace.

    Raises:
        InputError: there is no such file, or it holds more than that.
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
    except Exception as error:  # neither library has an error of its own for a damaged file
        # torch tells how to load it all the same; what it would run is what there is to know.
        asked = re.search(r"GLOBAL (\S+)", str(error))
        reason = f"it asks for {asked[1]}" if asked else " ".join(str(error).split())[:80] or type(error).__name__
        raise InputError(f"weights {path}: expected a checkpoint of tensors and numbers alone: {reason}") from None
    wrapper = next(
        (key for key in WRAPPERS if isinstance(content, Mapping) and isinstance(content.get(key), Mapping)), ""
    )
    state = content[wrapper] if wrapper else content
    if not isinstance(state, Mapping) or not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise InputError(
            f"weights {path}: expected tensors by the names of parameters, or {', '.join(WRAPPERS)} with them"
        )
    return {str(key).removeprefix("module."): value for key, value in state.items()}, wrapper


def give(model: nn.Module, state: Mapping[str, Tensor], path: Path, below: str = "") -> None:
    """Load tensors of a file into a model, all of its own or all of a part of it.

    Args:
        model: not regularised.
        state: by the model's own names. Counts of batches that norms have seen may be missing.
        path: the file.
        below: what the names of the part begin with.

    Raises:
        InputError: some are missing, unknown or of another shape; nothing is loaded then.
    """
    own = {name: value for name, value in model.state_dict().items() if name.startswith(below)}
    strange = sorted(state.keys() - own.keys())
    missing = sorted(name for name in own.keys() - state.keys() if not name.endswith("num_batches_tracked"))
    if missing or strange:
        parts = [
            f"{len(names)} {what} ({_some(names)})"
            for names, what in ((missing, "missing"), (strange, "unknown"))
            if names
        ]
        raise InputError(f"weights {path}: not those of this {type(model).__name__}: {', '.join(parts)}")
    for name, value in state.items():
        if value.shape != own[name].shape:
            raise InputError(
                f"weights {path}: {name} has shape {tuple(value.shape)}: expected the model's {tuple(own[name].shape)}"
            )
    model.load_state_dict(state, strict=False)


def _some(names: list[str]) -> str:
    return ", ".join(names[:2]) + (", …" if len(names) > 2 else "")
