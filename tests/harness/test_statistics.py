"""What is kept, over a million draws and more, against exact expectations.

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

from harness.attention import attend
from harness.masks import dropped_keys
from harness.regularizers.drop import Rescale, Unit, UnitDrop
from harness.seeding import derive, seed_all
from harness.site import Site
from tests.harness import reference
from tests.harness.given import drop_site

UNITS: tuple[Unit, ...] = get_args(Unit)
RESCALES: tuple[Rescale, ...] = get_args(Rescale)
Grid = tuple[int, int]
RATIO = 0.4


def assert_within(found: Tensor, exact: float | Tensor, errors: float = 4.0) -> None:
    """The mean over the first axis, of independent replicates, is the expectation but for so many standard errors."""
    difference = (found.double().mean(0) - exact).abs()
    error = found.double().std(0) / math.sqrt(len(found))
    assert (difference <= errors * error + 1e-12).all(), (difference / error).max()


# On grids and sequences of real size: overlaps and edges.


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
    """A key is kept where none of the seeds that would drop it was drawn: (1 − γ) to the number of these seeds."""
    torch.manual_seed(4)
    rows = math.ceil(1.2e6 / keys)
    shape = (rows // 4, 4, 1, keys) if unit == "column" else (4, 4, rows // 16, keys)
    kept = ~dropped_keys(unit, RATIO, window, shape, grid=grid, prefix=prefix).view(-1, keys)
    assert kept.numel() > 1e6
    seed = reference.seed_ratio(unit, RATIO, window, grid)
    over = reference.seeds_over(unit, window, keys, grid, prefix)
    exact = torch.tensor([(1 - seed) ** count for count in over], dtype=torch.float64)
    assert_within(kept.double().mean(1), exact.mean().item())
    assert_within(kept, exact, errors=5.0)  # each key: up to 200 comparisons at once
    # The papers' ratio is the share of dropped keys itself, or a bound of it.
    share = exact[prefix:].mean().item()
    assert share == pytest.approx(1 - RATIO) if window == 1 and unit != "cross" else share >= 1 - RATIO


# Through `attend`, with all that keeps a key in its row.


def kept_by_attend(site: Site, shape: tuple[int, int, int, int], *, mask: Tensor | None, causal: bool) -> Tensor:
    """Which weights are not 0, (B, H, T, S): read off the output, with unit vectors as values and equal logits."""
    batch, heads, queries, keys = shape
    v = torch.eye(keys).expand(batch, heads, keys, keys)
    q, k = torch.zeros(batch, heads, queries, 1), torch.zeros(batch, heads, keys, 1)
    return attend(q, k, v, site, training=True, mask=mask, causal=causal) > 0


def exact_kept(site: Site, allowed: list[bool]) -> list[float]:
    """The probability of each key of a row to have weight, by enumeration of all seeds."""
    drop = site.regularizer
    assert isinstance(drop, UnitDrop)
    law = reference.rows_by_probability(drop.unit, site.ratio, drop.window, len(allowed), site.grid, site.prefix)
    kept = [0.0] * len(allowed)
    for row, probability in law.items():
        present = [may and not lost for may, lost in zip(allowed, row, strict=True)]
        if not any(present) and drop.rescale == "renormalize":
            present = allowed  # the row keeps its unregularised weights
        for key, here in enumerate(present):
            kept[key] += probability * here
    return kept


@pytest.mark.parametrize("rescale", RESCALES)
@pytest.mark.parametrize("restriction", ["none", "causal and padding"])
@pytest.mark.parametrize(
    ("unit", "window", "grid", "prefix"),
    [("element", 1, None, 0), ("element", 3, None, 0), ("column", 1, None, 0), ("column", 2, None, 0),
     ("block", 2, (2, 4), 1), ("block", 1, (3, 3), 0), ("cross", 1, (2, 3), 1), ("cross", 2, (2, 4), 0)],
)  # fmt: skip
def test_kept_fraction_through_attend(
    unit: Unit, window: int, grid: Grid | None, prefix: int, restriction: str, rescale: Rescale
) -> None:
    """With prefix tokens, and rows that may not lose all (or any) of their keys."""
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
    places = torch.tensor(allowed)
    assert not kept[:, ~places].any()
    assert_within(kept[:, places].double().mean(1), exact[places].mean().item())
    assert_within(kept[:, places], exact[places], errors=5.0)


@pytest.mark.parametrize("unit", UNITS)
def test_the_ratio_is_that_of_the_site(unit: Unit) -> None:
    """The schedule's value for the layer, in the draw and in the rescaling, whatever the regularizer's own."""
    torch.manual_seed(10)
    site = drop_site(unit, ratio=0.6, rescale="inverse", grid=(2, 3))
    site.ratio = 0.2
    q, k, v = torch.zeros(30_000, 1, 1, 1), torch.zeros(30_000, 1, 6, 1), torch.eye(6).expand(30_000, 1, 6, 6)
    weights = attend(q, k, v, site, training=True)[:, 0, 0]
    assert ((weights == 0) | ((weights - 1 / 6 / 0.8).abs() < 1e-6)).all()
    assert_within((weights > 0).double().mean(1), sum(exact_kept(site, [True] * 6)) / 6)


# What shares a draw, and what does not.


@pytest.mark.parametrize(
    ("unit", "window", "apart"),
    [
        (unit, window, apart)
        for unit, window in (("element", 2), ("column", 2), ("block", 2), ("cross", 1))
        for apart in ("queries", "heads", "samples", "layers", "steps", "seeds")
        if (unit, apart) != ("column", "queries")  # the one thing that is shared: the next test
    ],
)
def test_draws_are_independent(unit: Unit, window: int, apart: str) -> None:
    """E[xy] = E[x]E[y] between the same key's fates in any two of them."""
    keys, grid, pairs = 12, (3, 4), 100_000

    def draw(samples: int, heads: int, queries: int) -> Tensor:
        return dropped_keys(unit, RATIO, window, (samples, heads, queries, keys), grid=grid)

    def at_step(seed: int, step: int) -> Tensor:
        seed_all(derive(seed, "step", step, 0, 0))  # as the engine does before a step
        return draw(5000, 1, 1)[:, 0, 0]

    torch.manual_seed(6)
    if apart == "queries":
        one, other = draw(pairs, 1, 2)[:, 0].unbind(1)
    elif apart == "heads":
        one, other = draw(pairs, 2, 1)[:, :, 0].unbind(1)
    elif apart == "samples":
        one, other = draw(2, pairs, 1)[:, :, 0].unbind(0)
    elif apart == "layers":
        one, other = draw(pairs, 1, 1)[:, 0, 0], draw(pairs, 1, 1)[:, 0, 0]
    elif apart == "steps":
        one, other = (torch.cat([at_step(0, step) for step in range(first, 40, 2)]) for first in (0, 1))
    else:
        one, other = (torch.cat([at_step(seed, 0) for seed in range(first, 40, 2)]) for first in (0, 1))
    assert len(one) == len(other) == pairs
    assert one.numel() >= 1e6
    seed = reference.seed_ratio(unit, RATIO, window, grid)
    over = reference.seeds_over(unit, window, keys, grid, 0)
    share = torch.tensor([1 - (1 - seed) ** count for count in over], dtype=torch.float64)
    assert_within((one.double() - share) * (other.double() - share), 0.0, errors=4.5)


@pytest.mark.parametrize("unit", UNITS)
def test_columns_are_shared_by_all_queries_of_a_head_and_nothing_is_elsewhere(unit: Unit) -> None:
    """DropAttention, Section 4, (c): a unit v_j is dropped, for every query; each head's matrix for itself.

    Two independent rows are the same by chance with probability Σ P(row)²; shared ones always.
    """
    torch.manual_seed(7)
    site = drop_site(unit, ratio=RATIO, grid=(2, 3))
    kept = kept_by_attend(site, (40_000, 2, 2, 6), mask=None, causal=False)
    by_chance: dict[tuple[bool, ...], float] = {}
    for row, probability in reference.rows_by_probability(unit, RATIO, 1, 6, (2, 3), 0).items():
        row = (False,) * 6 if all(row) else row  # a row that would lose every key keeps them all
        by_chance[row] = by_chance.get(row, 0.0) + probability
    same = sum(probability**2 for probability in by_chance.values())
    if unit == "column":
        assert torch.equal(kept[:, :, 0], kept[:, :, 1])
    else:
        assert_within((kept[:, :, 0] == kept[:, :, 1]).all(-1).flatten(), same)
    assert_within((kept[:, 0, 0] == kept[:, 1, 0]).all(-1), same)  # heads
    assert_within((kept[0::2, 0, 0] == kept[1::2, 0, 0]).all(-1), same)  # samples


def test_under_a_causal_mask_columns_are_shared_where_a_row_keeps_any() -> None:
    torch.manual_seed(8)
    keys = 8
    site = drop_site("column", ratio=0.6)
    kept = kept_by_attend(site, (300, 2, keys, keys), mask=None, causal=True)
    column = kept[:, :, -1:]  # the last row is under no restriction
    lower = torch.ones(keys, keys, dtype=torch.bool).tril()
    whole = (kept == lower).all(-1)
    agrees = (kept == (column & lower)).all(-1)
    assert (whole | agrees).all()
    rescued = ~agrees
    assert rescued.any()
    assert not (column & lower)[rescued].any()  # only rows that the draw would have left empty


def test_a_step_repeats_itself() -> None:
    """The engine's promise: a step's draws are a function of (seed, step)."""

    def draw(step: int) -> Tensor:
        seed_all(derive(0, "step", step, 0, 0))
        return dropped_keys("element", 0.5, 1, (2, 2, 9, 9))

    assert torch.equal(draw(3), draw(3))
    assert not torch.equal(draw(3), draw(4))


# What the output is on average.


def exact_mean(site: Site, v: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """E[output] by enumeration of a row's seeds; rows are alike, so one query is enough."""
    drop = site.regularizer
    assert isinstance(drop, UnitDrop)
    law = reference.rows_by_probability(drop.unit, site.ratio, drop.window, k.shape[2], site.grid, site.prefix)
    mean = torch.zeros(1, 1, 1, v.shape[-1], dtype=torch.float64)
    for row, probability in law.items():
        dropped = torch.tensor(row).view(1, 1, 1, -1)
        out = reference.attention(
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
    """`inverse` keeps the output on average where a key is dropped with the ratio itself: at window 1, not for cross.

    Otherwise keys are dropped less often than the papers' 1 / (1 − p) makes up for, and `renormalize` is no mean at
    all: DropKey's Section 3.1 is about the difference.
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
        # Each weight has its own factor: how often its key is kept, over 1 − p.
        seed = reference.seed_ratio(unit, RATIO, window, grid)
        over = reference.seeds_over(unit, window, keys, grid, prefix)
        factors = torch.tensor([(1 - seed) ** count / (1 - RATIO) for count in over], dtype=torch.float64)
        torch.testing.assert_close(exact, attend(q, k, v * factors[:, None], site, training=False), rtol=0, atol=1e-12)
