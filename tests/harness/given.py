"""Attention dropout with a mask that the test gives, and sites to try it at."""

from __future__ import annotations

import math

import torch
from pydantic import PrivateAttr
from torch import Tensor

from harness.regularizers.base import Regularizer
from harness.regularizers.drop import AttentionDrop, Rescale, Unit, UnitDrop
from harness.site import Site


class GivenDrop(AttentionDrop):
    """Drops the keys that it was given instead of drawing any."""

    _given: Tensor = PrivateAttr()

    def dropped(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        assert self._given.expand(shape).shape == shape
        return self._given


def given_drop(dropped: Tensor, rescale: Rescale, ratio: float = 0.3) -> GivenDrop:
    drop = GivenDrop(ratio=ratio, rescale=rescale)
    drop._given = dropped
    return drop


def site_with(
    regularizer: Regularizer | None, *, grid: tuple[int, int] | None = None, prefix: int = 0, ratio: float | None = None
) -> Site:
    """A site that is bound to the regularizer, with its own ratio unless another is given."""
    if ratio is None:
        ratio = regularizer.ratio if regularizer is not None else 0.0
    return Site("attention", "encoder-self", 0, 1, 2, grid=grid, prefix=prefix, regularizer=regularizer, ratio=ratio)


def drop_site(
    unit: Unit,
    *,
    ratio: float = 0.3,
    window: int = 1,
    rescale: Rescale = "renormalize",
    grid: tuple[int, int] | None = None,
    prefix: int = 0,
) -> Site:
    return site_with(UnitDrop(unit=unit, ratio=ratio, window=window, rescale=rescale), grid=grid, prefix=prefix)


# A small self-attention over 2 × 3 patches and a class token.

GRID, PREFIX, TOKENS = (2, 3), 1, 7


def qkv(batch: int = 2, queries: int = TOKENS, keys: int = TOKENS, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(batch, 2, tokens, 4, generator=generator).to(dtype).requires_grad_()
        for tokens in (queries, keys, keys)
    ]


def site_of(unit: Unit, rescale: Rescale, *, window: int = 2, ratio: float = 0.4) -> Site:
    return drop_site(unit, ratio=ratio, window=window, rescale=rescale, grid=GRID, prefix=PREFIX)


def masks(dtype: torch.dtype = torch.float32) -> dict[str, Tensor | None]:
    padded = torch.ones(2, 1, 1, TOKENS, dtype=torch.bool)
    padded[1, ..., -2:] = False
    bias = torch.randn(1, 2, TOKENS, TOKENS, generator=torch.Generator().manual_seed(1)).to(dtype)
    return {"none": None, "padding": padded, "bias": bias, "bias and -inf": bias.masked_fill(~padded, -math.inf)}
