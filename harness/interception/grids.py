"""`key_grid`: the grid that the keys of an attention module form, from attributes that libraries share."""

from __future__ import annotations

from typing import Any

from torch import nn

from dropbench.harness.interception.calls import original_class
from dropbench.harness.models.adapter import parents_of

BEFORE_CLASS_TOKEN = ("TalkingHeadAttn", "GPSA")
"""Attention in the layers of CaiT and ConViT before the class token enters."""
Grid = tuple[tuple[int, int] | None, int]
"""Rows and columns of the keys, or None, and the number of prefix tokens."""


def key_grid(model: nn.Module, path: str) -> Grid:
    """Return the keys' grid: that of a window, or of the Vision Transformer of fixed size that contains the module.

    It is the grid as the model was built; `drop.grid_of_keys` fits it to the keys of a call.
    """
    module: Any = model.get_submodule(path)
    rules = (_of_transformers, _of_timm, _of_torchvision)
    grids = (rule(model.get_submodule(parent)) for rule in rules for parent in parents_of(path))
    grid, prefix = next((found for found in grids if found is not None), (None, 0))
    window = getattr(getattr(module, "relative_position_bias", module), "window_size", None)
    if isinstance(window, tuple) and len(window) == 2 and window != grid:  # BEiT's window is the image
        return (int(window[0]), int(window[1])), 0
    return grid, 0 if original_class(module).__name__ in BEFORE_CLASS_TOKEN else prefix


def _of_transformers(network: Any) -> Grid | None:
    embeddings = getattr(network, "embeddings", None)
    patches: Any = getattr(embeddings, "patch_embeddings", None)
    positions = getattr(embeddings, "position_embeddings", None)
    if not isinstance(positions, nn.Parameter) or not (
        hasattr(patches, "image_size") and hasattr(patches, "patch_size")
    ):
        return None
    rows, columns = (side // size for side, size in zip(patches.image_size, patches.patch_size, strict=True))
    prefix = positions.shape[1] - rows * columns + getattr(network.config, "num_register_tokens", 0)
    # A masked autoencoder drops most tokens, and GroupViT has others after them.
    changed = getattr(network.config, "mask_ratio", 0) or hasattr(network.config, "num_group_tokens")
    return ((rows, columns), prefix) if prefix >= 0 and not changed else (None, 0)


def _of_timm(network: Any) -> Grid | None:
    embedding, prefix = getattr(network, "patch_embed", None), getattr(network, "num_prefix_tokens", None)
    grid = getattr(embedding, "grid_size", None)
    if prefix is None or grid is None:
        return None
    # The number of tokens changes between batches.
    changes = getattr(network, "dynamic_img_size", False) or hasattr(getattr(network, "patch_drop", None), "ordered")
    return (None if changes else (int(grid[0]), int(grid[1]))), int(prefix)


def _of_torchvision(network: Any) -> Grid | None:
    if type(network).__module__ != "torchvision.models.vision_transformer" or not hasattr(network, "patch_size"):
        return None
    side = network.image_size // network.patch_size
    return (side, side), 1
