"""Attention dropout with a given mask, and sites and tensors for tests."""

from __future__ import annotations

import math

import torch
from pydantic import PrivateAttr
from torch import Tensor

from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.drop import AttentionDrop, UnitDrop
from dropbench.harness.regularizers.schedules import constant


class GivenDrop(AttentionDrop):
    """Drops given keys instead of random ones."""

    _given: Tensor = PrivateAttr()

    def sample_drop_mask(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        assert self._given.expand(shape).shape == shape
        return self._given


def given_drop(dropped: Tensor, rescale: Rescale, ratio: float = 0.3) -> GivenDrop:
    drop = GivenDrop(ratio=ratio, rescale=rescale)
    drop._given = dropped
    return drop


def site_with(
    regularizer: Regularizer | None, *, grid: tuple[int, int] | None = None, prefix: int = 0, ratio: float | None = None
) -> Site:
    """Return a site with a regularizer; `ratio` overrides the regularizer's."""
    site = Site("attention", "encoder-self", 0, 1, 2, grid=grid, num_prefix_tokens=prefix)
    if regularizer is not None:
        regularizer.bind_to(site, constant)
    site.ratio = site.ratio if ratio is None else ratio
    return site


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


# Self-attention over 2 × 3 patches and a class token.

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
