"""Masks of all layers from the embeddings in one pass, before the layers run (Yan 2024, "A faster implementation")."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from harness.attention.key_values import KeyValues
from harness.attention.reference.sdpa import sdpa
from harness.regularizers.learned_dropout.mask import LearnedMask


class PrecomputedMasks:
    """The masks of several sites in evaluation, from parameters as they are when this is created."""

    def __init__(self, masks: Sequence[LearnedMask], capacity: int) -> None:
        first = masks[0]
        self.heads, self.width, self.count = first.heads, first.width, len(masks)
        self.weight = torch.cat([mask.qkv.weight.detach() for mask in masks])
        biases = [mask.qkv.bias for mask in masks]
        self.bias = torch.cat([bias.detach() for bias in biases]) if first.options.bias else None
        self.shift = torch.stack([mask.shift.detach() for mask in masks])
        self.cache = KeyValues(capacity)

    def __call__(self, embed: Tensor) -> Tensor:
        """Return what the masks keep of tokens (B, T, C) after those of earlier calls: boolean (B, T, masks, C)."""
        batch, tokens, _ = embed.shape
        qkv = linear(embed, self.weight, self.bias).view(batch, tokens, self.count, 3, self.heads, -1)
        q, k, v = qkv.permute(3, 0, 2, 4, 1, 5).flatten(2, 3)
        k, v, mask = self.cache.append(k, v)
        out = sdpa(q, k, v, mask=mask).transpose(1, 2).reshape(batch, tokens, self.count, self.width)
        out = out.to(torch.promote_types(out.dtype, torch.float32))
        return 0.5 * torch.cos(out + self.shift) + 0.5 >= 0.5


def joinable(modules: Sequence[nn.Module | None]) -> list[LearnedMask] | None:
    """Return the masks of sites if one `PrecomputedMasks` computes them as they would in evaluation; None if not."""
    masks = [module for module in modules if type(module) is LearnedMask]
    if not masks or len(masks) < len(modules):
        return None
    options, heads = masks[0].options, masks[0].heads
    if not masks[0].is_precomputed or options.harmonics > 1:
        return None
    alike = all(mask.options == options and mask.heads == heads and not mask.statistics for mask in masks)
    return masks if alike else None
