"""Checkpoints from the repositories of T2T-ViT and VOLO, and from timm.

The parameters have the same names as here, but under different keys: timm's training script, which both repositories
use, saves weights as `state_dict` and their moving average as `state_dict_ema`. T2T-ViT's transfer to CIFAR saves them
as `net`. Training on several devices adds the prefix ``module.`` to each name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from dropbench.adapters.weights import load_state, read_state, use_own_classifier

IDENTITY = ([0.0, 0.0, 0.0], [1.0, 1.0, 1.0])
HEADS = ("head", "aux_head", "head_dist")
"""Names of classifiers: of the class token, of all tokens (VOLO), of the distillation token (DeiT)."""


def load_image_weights(model: nn.Module, path: Path) -> str:
    """Load a checkpoint of `torch.save` or safetensors into a model, with positions resized to its grid.

    The model is a T2T-ViT, a VOLO or a model of timm, without a regularizer. In a folder, the file is that of its
    weights. The result is a note of one line: the file, and the parts of the model that it does not determine.

    Raises:
        InputError: the file does not exist, contains other types than tensors and numbers, or does not fit the model.
    """
    state, wrapper = read_state(path)
    own = model.state_dict()
    heads = dict.fromkeys(use_own_classifier(state, own, head) for head in HEADS)
    notes = [f"weights of {path.name}" + f" ({wrapper})" * bool(wrapper), *heads, _resized_positions(state, own, model)]
    load_state(model, state, path)
    return "; ".join(filter(None, notes))


def _resized_positions(state: dict[str, Tensor], own: Mapping[str, Tensor], model: nn.Module) -> str | None:
    """Resize image positions bicubically, as both repositories do, but not those of class tokens; return a note."""
    old, new = state.get("pos_embed"), own.get("pos_embed")
    if old is None or new is None or old.shape == new.shape or old.ndim != new.ndim or old.shape[-1] != new.shape[-1]:
        return None
    if old.ndim == 4:
        prefix, old_grid, grid = 0, (old.shape[1], old.shape[2]), (new.shape[1], new.shape[2])
    else:
        model_grid = getattr(model, "grid", None) or getattr(getattr(model, "patch_embed", None), "grid_size", None)
        if model_grid is None:
            return None
        grid = (model_grid[0], model_grid[1])
        prefix = new.shape[1] - grid[0] * grid[1]
        side = round(max(0, old.shape[1] - prefix) ** 0.5)
        old_grid = (side, side)
    tokens = old.flatten(1, -2)
    if not old.numel() or tokens.shape[1] != prefix + old_grid[0] * old_grid[1] or not all(old_grid):
        return None
    image = tokens[:, prefix:].unflatten(1, old_grid).permute(0, 3, 1, 2).float()
    image = interpolate(image, grid, mode="bicubic").flatten(2).transpose(1, 2).to(old.dtype)
    state["pos_embed"] = torch.cat([tokens[:, :prefix], image], dim=1).view_as(new)
    return f"positions resized from {old_grid[0]}×{old_grid[1]} to {grid[0]}×{grid[1]}"


def timm_config(weights: Path) -> dict[str, Any] | None:
    """Return the ``config.json`` of a folder of timm's; None for other weights."""
    config = _json(weights / "config.json")
    return config if "architecture" in config and isinstance(config.get("pretrained_cfg"), dict) else None


def checkpoint_normalization(weights: Path) -> tuple[Tensor, Tensor] | None:
    """Return the mean and deviation (C,) by which a checkpoint's images were normalized, on a scale from 0 to 1.

    timm has them in ``config.json``, transformers in ``preprocessor_config.json``. None: the weights do not say.
    """
    if (config := timm_config(weights)) is not None:
        pair = config["pretrained_cfg"].get("mean"), config["pretrained_cfg"].get("std")
    else:
        config = _json(weights / "preprocessor_config.json")
        pair = config.get("image_mean"), config.get("image_std")
        if config.get("do_normalize") is False:
            pair = IDENTITY
    if not all(isinstance(values, list) and len(values) == 3 for values in pair):
        return None
    return torch.tensor(pair[0]).float(), torch.tensor(pair[1]).float()


def _json(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; {} if there is none."""
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
