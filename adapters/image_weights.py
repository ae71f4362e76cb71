"""Weights from the repositories of T2T-ViT and VOLO, and from timm: files of the user's, with other names around them.

The parameters themselves have the same names here. What differs is what they are wrapped in: timm's training script,
which both repositories took over, saves them as `state_dict`, their running average as `state_dict_ema`; T2T-ViT's
transfer to CIFAR as `net`; training on several devices puts ``module.`` before each name.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate
from torch.serialization import safe_globals

from harness.errors import InputError

AVERAGED = ("state_dict_ema", "model_ema")
WRAPPERS = (*AVERAGED, "state_dict", "model", "net")
"""Where weights lie in a checkpoint, the first one that is there is taken: an average rather than the last step."""
HEADS = ("head", "aux_head", "head_dist")
"""Classifiers: of the class token, of each token (VOLO), of the distillation token (DeiT)."""


def load_image_weights(model: nn.Module, path: Path) -> str:
    """Give a model the weights of a file; positions are resized to its grid.

    Args:
        model: T2T-ViT, VOLO or one of timm's, not regularised.
        path: a checkpoint, as `torch.save` or safetensors writes it.

    Returns:
        what was done, in one line: whose weights, and what of the model they do not determine.

    Raises:
        InputError: there is no such file, it holds more than tensors and numbers, or they are not the model's.
    """
    state, wrapper = read_state(path)
    own = model.state_dict()
    notes = [f"weights of {path.name}" + f" ({wrapper})" * bool(wrapper)]
    notes += filter(None, (_new_heads(state, own), _resized_positions(state, own, model)))
    strange = sorted(state.keys() - own.keys())
    missing = sorted(key for key in own.keys() - state.keys() if not key.endswith("num_batches_tracked"))
    if missing or strange:
        parts = [
            f"{len(keys)} {what} ({_some(keys)})" for keys, what in ((missing, "missing"), (strange, "unknown")) if keys
        ]
        raise InputError(f"weights {path}: not those of this {type(model).__name__}: {', '.join(parts)}")
    for key, value in state.items():
        if value.shape != own[key].shape:
            raise InputError(
                f"weights {path}: {key} has shape {tuple(value.shape)}: expected the model's {tuple(own[key].shape)}"
            )
    model.load_state_dict(state, strict=False)
    return "; ".join(notes)


def read_state(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors of a checkpoint by the names of parameters, and in what they were wrapped ("" for nothing).

    Raises:
        InputError: as in `load_image_weights`.
    """
    if not path.is_file():
        raise InputError(f"weights {path}: no such file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content: Any = load_file(path)
        else:
            # The options of the training script lie beside the weights, as plain attributes of a Namespace.
            with safe_globals([argparse.Namespace]):
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


def _new_heads(state: dict[str, Tensor], own: Mapping[str, Tensor]) -> str | None:
    """Put the model's own classifiers in place of those for another number of classes."""
    replaced = None
    for head in HEADS:
        names = (f"{head}.weight", f"{head}.bias")
        if all(
            name in state and name in own and _but_classes(state[name]) == _but_classes(own[name]) for name in names
        ):
            there, here = len(state[names[0]]), len(own[names[0]])
            if there != here:
                state.update({name: own[name] for name in names})
                replaced = f"the classifier is new: {there} classes there, {here} here"
    return replaced


def _but_classes(tensor: Tensor) -> tuple[int, torch.Size]:
    return tensor.ndim, tensor.shape[1:]


def _resized_positions(state: dict[str, Tensor], own: Mapping[str, Tensor], model: nn.Module) -> str | None:
    """Resize the positions of another grid, bicubically as both repositories do; class tokens keep theirs."""
    old, new = state.get("pos_embed"), own.get("pos_embed")
    if old is None or new is None or old.shape == new.shape or old.ndim != new.ndim or old.shape[-1] != new.shape[-1]:
        return None
    if old.ndim == 4:
        prefix, before, grid = 0, (old.shape[1], old.shape[2]), (new.shape[1], new.shape[2])
    else:
        known = getattr(model, "grid", None) or getattr(getattr(model, "patch_embed", None), "grid_size", None)
        if known is None:
            return None
        grid = (known[0], known[1])
        prefix = new.shape[1] - grid[0] * grid[1]
        side = round(max(0, old.shape[1] - prefix) ** 0.5)
        before = (side, side)
    tokens = old.flatten(1, -2)
    if not old.numel() or tokens.shape[1] != prefix + before[0] * before[1] or not all(before):
        return None
    image = tokens[:, prefix:].unflatten(1, before).permute(0, 3, 1, 2).float()
    image = interpolate(image, grid, mode="bicubic").flatten(2).transpose(1, 2).to(old.dtype)
    state["pos_embed"] = torch.cat([tokens[:, :prefix], image], dim=1).view_as(new)
    return f"positions resized from {before[0]}×{before[1]} to {grid[0]}×{grid[1]}"


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:2]) + (", …" if len(keys) > 2 else "")
