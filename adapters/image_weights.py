"""Weights from the repositories of T2T-ViT and VOLO, and from timm: files of the user's, with other names around them.

The parameters themselves have the same names here. What differs is what they are wrapped in: timm's training script,
which both repositories took over, saves them as `state_dict`, their running average as `state_dict_ema`; T2T-ViT's
transfer to CIFAR as `net`; training on several devices puts ``module.`` before each name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from adapters.weights import give, read_state

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
    give(model, state, path)
    return "; ".join(notes)


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
