"""Fractions of kept keys over at least a million samples, against exact expectations.

Standard errors are those of independent replicates: attention matrices (one sample, one head) or, where the queries
of a matrix draw each by itself, its rows; never single keys, which depend on each other within a window. Seeds are
fixed; 4 standard errors are passed by chance once in 16,000.
"""

from __future__ import annotations

import math
from typing import get_args

import pytest
import torch
from torch import Tensor

from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.drop import UnitDrop
from tests.covering import each_pair
from tests.harness.attention.reference import scalar_loops
from tests.harness.given import drop_site

UNITS: tuple[Unit, ...] = get_args(Unit)
RESCALES: tuple[Rescale, ...] = get_args(Rescale)
Grid = tuple[int, int]
RATIO = 0.4


def assert_within(samples: Tensor, exact: float | Tensor, errors: float = 4.0) -> None:
    """Assert that the mean over independent replicates (first axis) is within `errors` standard errors of `exact`."""
    difference = (samples.double().mean(0) - exact).abs()
    error = samples.double().std(0) / math.sqrt(len(samples))
    assert (difference <= errors * error + 1e-12).all(), (difference / error).max()


# Grids and sequences of realistic size: overlaps and edges.


# Through `attend`, with masks and rows that would lose every key.


def kept_by_attend(site: Site, shape: tuple[int, int, int, int], *, mask: Tensor | None, causal: bool) -> Tensor:
    """Return the weights that are not 0, (B, H, T, S), from the output for unit vectors as values and equal logits."""
    batch, heads, queries, keys = shape
    v = torch.eye(keys).expand(batch, heads, keys, keys)
    q, k = torch.zeros(batch, heads, queries, 1), torch.zeros(batch, heads, keys, 1)
    return attend(q, k, v, site, training=True, mask=mask, causal=causal) > 0


def exact_kept(site: Site, allowed: list[bool]) -> list[float]:
    """Return the probability of each key of a row to have weight, by enumeration of all starts."""
    drop = site.regularizer
    assert isinstance(drop, UnitDrop)
    law = scalar_loops.rows_by_probability(
        drop.unit, site.ratio, drop.window, len(allowed), site.grid, site.num_prefix_tokens
    )
    kept = [0.0] * len(allowed)
    for row, probability in law.items():
        present = [may and not drop for may, drop in zip(allowed, row, strict=True)]
        if not any(present) and drop.rescale != "inverse":
            present = allowed  # the row keeps its unregularized weights
        for key, has_weight in enumerate(present):
            kept[key] += probability * has_weight
    return kept


SMALL: list[tuple[Unit, int, Grid | None, int]] = [
    ("element", 1, None, 0), ("element", 3, None, 0), ("column", 1, None, 0), ("column", 2, None, 0),
    ("block", 2, (2, 4), 1), ("block", 1, (3, 3), 0), ("cross", 1, (2, 3), 1), ("cross", 2, (2, 4), 0),
]  # fmt: skip


@each_pair(small=SMALL, restriction=["none", "causal and padding"], rescale=RESCALES)
def test_kept_fraction_through_attend(
    small: tuple[Unit, int, Grid | None, int], restriction: str, rescale: Rescale
) -> None:
    """With prefix tokens, and rows with few allowed keys."""
    unit, window, grid, prefix = small
    torch.manual_seed(5)
    keys = 7 if grid is None else grid[0] * grid[1] + prefix
    queries, matrices = keys, math.ceil(1e6 / keys**2)
    site = drop_site(unit, ratio=RATIO, window=window, rescale=rescale, grid=grid, prefix=prefix)
    causal, padded = "causal" in restriction, 2 * ("padding" in restriction)
    mask = (torch.arange(keys) < keys - padded).view(1, 1, 1, keys) if padded else None
    kept = kept_by_attend(site, (math.ceil(matrices / 4), 4, queries, keys), mask=mask, causal=causal).flatten(0, 1)
    assert kept.numel() >= 1e6
    allowed = [
        [key < keys - padded and (not causal or key <= query) for key in range(keys)] for query in range(queries)
    ]
    exact = torch.tensor([exact_kept(site, row) for row in allowed], dtype=torch.float64)
    is_allowed = torch.tensor(allowed)
    assert not kept[:, ~is_allowed].any()
    assert_within(kept[:, is_allowed].double().mean(1), exact[is_allowed].mean().item())
    assert_within(kept[:, is_allowed], exact[is_allowed], errors=5.0)


@pytest.mark.parametrize("unit", UNITS)
def test_the_ratio_is_that_of_the_site(unit: Unit) -> None:
    """Sampling and rescaling use the site's ratio, set by the schedule, not the regularizer's."""
    torch.manual_seed(10)
    site = drop_site(unit, ratio=0.6, rescale="inverse", grid=(2, 3))
    site.ratio = 0.2
    q, k, v = torch.zeros(30_000, 1, 1, 1), torch.zeros(30_000, 1, 6, 1), torch.eye(6).expand(30_000, 1, 6, 6)
    weights = attend(q, k, v, site, training=True)[:, 0, 0]
    assert ((weights == 0) | ((weights - 1 / 6 / 0.8).abs() < 1e-6)).all()
    assert_within((weights > 0).double().mean(1), sum(exact_kept(site, [True] * 6)) / 6)


# Shared and independent decisions.


@pytest.mark.parametrize("unit", UNITS)
def test_columns_are_shared_by_the_queries_of_a_head_and_by_nothing_else(unit: Unit) -> None:
    """DropAttention, Section 4, (c): a unit v_j is dropped for every query, independently per head.

    Two independent rows are equal with probability Σ P(row)²; shared rows are always equal.
    """
    torch.manual_seed(7)
    site = drop_site(unit, ratio=RATIO, grid=(2, 3))
    kept = kept_by_attend(site, (40_000, 2, 2, 6), mask=None, causal=False)
    by_chance: dict[tuple[bool, ...], float] = {}
    for row, probability in scalar_loops.rows_by_probability(unit, RATIO, 1, 6, (2, 3), 0).items():
        row = (False,) * 6 if all(row) else row  # a row that would lose every key keeps them all
        by_chance[row] = by_chance.get(row, 0.0) + probability
    same = sum(probability**2 for probability in by_chance.values())
    if unit == "column":
        assert torch.equal(kept[:, :, 0], kept[:, :, 1])
    else:
        assert_within((kept[:, :, 0] == kept[:, :, 1]).all(-1).flatten(), same)
    assert_within((kept[:, 0, 0] == kept[:, 1, 0]).all(-1), same)  # heads
    assert_within((kept[0::2, 0, 0] == kept[1::2, 0, 0]).all(-1), same)  # samples


# Mean output.
