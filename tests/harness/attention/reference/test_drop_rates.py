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

from dropbench.harness.attention.reference.drop_masks import sample_drop_mask
from dropbench.harness.attention.reference.units import Rescale, Unit
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.drop import UnitDrop
from dropbench.harness.seeding import derive, seed_all
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


STRUCTURED: list[tuple[Unit, int]] = [("block", 1), ("block", 3), ("block", 5), ("cross", 1), ("cross", 3)]
SEQUENTIAL: tuple[Unit, ...] = ("element", "column")


def real_sizes() -> list[tuple[Unit, int, Grid | None, int, int]]:
    grids: list[tuple[Unit, int, Grid | None, int, int]] = [
        (unit, window, grid, prefix, grid[0] * grid[1] + prefix)
        for unit, window in STRUCTURED
        for grid, prefix in (((14, 14), 1), ((7, 12), 0), ((3, 3), 0))
    ]
    sequences: list[tuple[Unit, int, Grid | None, int, int]] = [
        (unit, window, None, 0, 50) for unit in SEQUENTIAL for window in (1, 2, 3, 60)
    ]
    return grids + sequences


@pytest.mark.parametrize(("unit", "window", "grid", "prefix", "keys"), real_sizes())
def test_kept_fraction(unit: Unit, window: int, grid: Grid | None, prefix: int, keys: int) -> None:
    """A key is kept if none of the starts that would drop it occurs: (1 − γ) to the number of these starts."""
    torch.manual_seed(4)
    rows = math.ceil(1.2e6 / keys)
    shape = (rows // 4, 4, 1, keys) if unit == "column" else (4, 4, rows // 16, keys)
    kept = ~sample_drop_mask(unit, RATIO, window, shape, grid=grid, num_prefix_tokens=prefix).view(-1, keys)
    assert kept.numel() > 1e6
    gamma = scalar_loops.start_prob(unit, RATIO, window, grid)
    over = scalar_loops.starts_over(unit, window, keys, grid, prefix)
    exact = torch.tensor([(1 - gamma) ** count for count in over], dtype=torch.float64)
    assert_within(kept.double().mean(1), exact.mean().item())
    assert_within(kept, exact, errors=5.0)  # each key: up to 200 comparisons at once
    # The papers' ratio is the fraction of dropped keys, or its upper bound.
    share = exact[prefix:].mean().item()
    assert share == pytest.approx(1 - RATIO) if window == 1 and unit != "cross" else share >= 1 - RATIO


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


@pytest.mark.parametrize(
    ("unit", "window", "apart"),
    [
        (unit, window, apart)
        for unit, window in (("element", 2), ("column", 2), ("block", 2), ("cross", 1))
        for apart in ("queries", "heads", "samples", "layers", "steps", "seeds")
        if (unit, apart) != ("column", "queries")  # shared, see the next test
    ],
)
def test_draws_are_independent(unit: Unit, window: int, apart: str) -> None:
    """E[xy] = E[x]E[y] for the decisions about one key in any two of them."""
    keys, grid, pairs = 12, (3, 4), 100_000

    def draw(samples: int, heads: int, queries: int) -> Tensor:
        return sample_drop_mask(unit, RATIO, window, (samples, heads, queries, keys), grid=grid)

    def at_step(seed: int, step: int) -> Tensor:
        seed_all(derive(seed, "step", step, 0, 0))  # as the engine does before a step
        return draw(5000, 1, 1)[:, 0, 0]

    torch.manual_seed(6)
    if apart == "queries":
        first, second = draw(pairs, 1, 2)[:, 0].unbind(1)
    elif apart == "heads":
        first, second = draw(pairs, 2, 1)[:, :, 0].unbind(1)
    elif apart == "samples":
        first, second = draw(2, pairs, 1)[:, :, 0].unbind(0)
    elif apart == "layers":
        first, second = draw(pairs, 1, 1)[:, 0, 0], draw(pairs, 1, 1)[:, 0, 0]
    elif apart == "steps":
        first, second = (torch.cat([at_step(0, step) for step in range(offset, 40, 2)]) for offset in (0, 1))
    else:
        first, second = (torch.cat([at_step(seed, 0) for seed in range(offset, 40, 2)]) for offset in (0, 1))
    assert len(first) == len(second) == pairs
    assert first.numel() >= 1e6
    gamma = scalar_loops.start_prob(unit, RATIO, window, grid)
    over = scalar_loops.starts_over(unit, window, keys, grid, 0)
    share = torch.tensor([1 - (1 - gamma) ** count for count in over], dtype=torch.float64)
    assert_within((first.double() - share) * (second.double() - share), 0.0, errors=4.5)


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


def test_under_a_causal_mask_columns_are_shared_by_rows_that_keep_any_key() -> None:
    torch.manual_seed(8)
    keys = 8
    site = drop_site("column", ratio=0.6)
    kept = kept_by_attend(site, (300, 2, keys, keys), mask=None, causal=True)
    column = kept[:, :, -1:]  # the last row may attend to every key
    lower = torch.ones(keys, keys, dtype=torch.bool).tril()
    whole = (kept == lower).all(-1)
    agrees = (kept == (column & lower)).all(-1)
    assert (whole | agrees).all()
    rescued = ~agrees
    assert rescued.any()
    assert not (column & lower)[rescued].any()  # only rows that would have lost every key


# Mean output.


def exact_mean(site: Site, v: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return E[output] by enumeration of a row's starts; all rows have the same distribution, so one query suffices."""
    drop = site.regularizer
    assert isinstance(drop, UnitDrop)
    law = scalar_loops.rows_by_probability(
        drop.unit, site.ratio, drop.window, k.shape[2], site.grid, site.num_prefix_tokens
    )
    mean = torch.zeros(1, 1, 1, v.shape[-1], dtype=torch.float64)
    for row, probability in law.items():
        dropped = torch.tensor(row).view(1, 1, 1, -1)
        out = scalar_loops.attention(
            q, k, v, dropped, rescale="inverse" if drop.rescale == "inverse" else "after", ratio=site.ratio
        )
        mean += probability * out
    return mean


@pytest.mark.parametrize("rescale", RESCALES)
@pytest.mark.parametrize(
    ("unit", "window", "grid", "prefix"),
    [("element", 1, None, 0), ("element", 2, None, 0), ("column", 1, None, 0), ("column", 3, None, 0),
     ("block", 1, (2, 3), 0), ("block", 2, (2, 3), 1), ("cross", 1, (2, 3), 0)],
)  # fmt: skip
def test_mean_output(unit: Unit, window: int, grid: Grid | None, prefix: int, rescale: Rescale) -> None:
    """`inverse` preserves the mean output if each key is dropped with the ratio itself: at window 1, except for cross.

    Otherwise keys are dropped less often than the papers' 1 / (1 − p) compensates for. `renormalize` does not preserve
    the mean, the difference that DropKey's Section 3.1 analyzes.
    """
    torch.manual_seed(9)
    keys = 6 if grid is None else grid[0] * grid[1] + prefix
    site = drop_site(unit, ratio=RATIO, window=window, rescale=rescale, grid=grid, prefix=prefix)
    q, k, v = (torch.randn(1, 1, tokens, 3, dtype=torch.float64) for tokens in (1, keys, keys))
    exact = exact_mean(site, v, q, k)
    undropped = attend(q, k, v, site, training=False)
    draws = math.ceil(1e6 / keys)
    many_q, many_k, many_v = (x.expand(draws, -1, -1, -1) for x in (q, k, v))
    out = attend(many_q, many_k, many_v, site, training=True)
    assert_within(out.flatten(1), exact.flatten(), errors=4.5)
    kept_on_average = rescale == "inverse" and window == 1 and unit != "cross"
    assert torch.allclose(exact, undropped, rtol=0, atol=1e-12) == kept_on_average
    if rescale == "inverse":
        # Each weight is scaled by its key's keep probability over 1 − p.
        gamma = scalar_loops.start_prob(unit, RATIO, window, grid)
        over = scalar_loops.starts_over(unit, window, keys, grid, prefix)
        factors = torch.tensor([(1 - gamma) ** count / (1 - RATIO) for count in over], dtype=torch.float64)
        torch.testing.assert_close(exact, attend(q, k, v * factors[:, None], site, training=False), rtol=0, atol=1e-12)
