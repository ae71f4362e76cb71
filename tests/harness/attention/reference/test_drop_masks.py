"""Window starts and their dilation, against the papers' formulas in loops."""

from __future__ import annotations

from typing import get_args

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from scipy.stats import chi2

from dropbench.harness.attention.reference.drop_masks import dilate, sample_drop_mask, start_prob
from dropbench.harness.attention.reference.units import Unit
from tests.harness.attention.reference import scalar_loops

UNITS: tuple[Unit, ...] = get_args(Unit)
STRUCTURED: tuple[Unit, ...] = ("block", "cross")
Grid = tuple[int, int]
sides = st.integers(1, 6)


@settings(deadline=None)
@given(
    unit=st.sampled_from(UNITS), grid=st.tuples(sides, sides), prefix=st.integers(0, 2), window=st.integers(1, 8),
    data=st.data(),
)  # fmt: skip
def test_starts_are_dilated_as_in_the_papers(
    unit: Unit, grid: Grid, prefix: int, window: int, data: st.DataObject
) -> None:
    keys = prefix + grid[0] * grid[1]
    rows = data.draw(st.lists(st.lists(st.booleans(), min_size=keys, max_size=keys), min_size=1, max_size=3))
    dilated = dilate(unit, torch.tensor(rows), window, grid=grid, num_prefix_tokens=prefix)
    assert dilated.tolist() == [scalar_loops.dilate(unit, row, window, grid, prefix) for row in rows]


@settings(deadline=None)
@given(unit=st.sampled_from(UNITS), grid=st.tuples(sides, sides), window=st.integers(1, 8), ratio=st.floats(0.0, 0.99))
def test_start_prob_is_the_papers_and_never_above_the_ratio(unit: Unit, grid: Grid, window: int, ratio: float) -> None:
    probability = start_prob(unit, ratio, window, grid)
    assert probability == pytest.approx(scalar_loops.start_prob(unit, ratio, window, grid), rel=1e-12)
    assert 0.0 <= probability <= ratio * (1 + 1e-12) + 1e-300  # numbers below 1e-308 have fewer digits


@pytest.mark.parametrize("unit", UNITS)
def test_ratio_0_drops_nothing(unit: Unit) -> None:
    assert not sample_drop_mask(unit, 0.0, 2, (8, 4, 6, 13), grid=(3, 4), num_prefix_tokens=1).any()


def test_a_ratio_just_below_1_drops_nearly_everything() -> None:
    for ratio in (1 - 2**-15, 1 - 1e-9, 1 - 1e-16):
        assert sample_drop_mask("element", ratio, 1, (4, 4, 64, 64)).double().mean() > 0.999


@pytest.mark.parametrize("unit", STRUCTURED)
def test_prefix_tokens_are_never_dropped_by_structured_units(unit: Unit) -> None:
    dropped = sample_drop_mask(unit, 0.99, 3, (8, 4, 6, 14), grid=(3, 4), num_prefix_tokens=2)
    assert not dropped[..., :2].any()
    assert dropped[..., 2:].any()


@pytest.mark.parametrize("unit", STRUCTURED)
def test_structured_units_need_the_grid_of_the_keys(unit: Unit) -> None:
    for grid, prefix in ((None, 0), ((3, 3), 0), ((3, 4), 1)):
        with pytest.raises(ValueError, match="needs the grid of the 12 keys"):
            sample_drop_mask(unit, 0.3, 1, (1, 1, 1, 12), grid=grid, num_prefix_tokens=prefix)
    for function in (lambda: start_prob(unit, 0.3, 1), lambda: dilate(unit, torch.zeros(4, dtype=torch.bool), 1)):
        with pytest.raises(ValueError, match="needs the grid"):
            function()


def test_dilation_does_not_modify_the_starts() -> None:
    starts = torch.tensor([True, False, False, False])
    dilate("element", starts, 3)
    dilate("block", starts, 2, grid=(2, 2))
    assert starts.tolist() == [True, False, False, False]


# Distributions, with fixed random seeds; a correct one fails these thresholds with a probability of at most 10⁻⁴.


def row_laws() -> list[tuple[Unit, int, Grid | None, int, int]]:
    """Return unit, window, grid, prefix and number of keys, small enough to enumerate."""
    sequences: list[tuple[Unit, int, Grid | None, int, int]] = [
        (unit, window, None, 0, keys)
        for unit in ("element", "column")
        for window, keys in ((1, 5), (2, 5), (3, 5), (9, 4), (2, 1))
    ]
    grids: list[tuple[Unit, int, Grid | None, int, int]] = [
        (unit, window, grid, prefix, grid[0] * grid[1] + prefix)
        for unit in STRUCTURED
        for window, grid, prefix in ((1, (2, 3), 0), (2, (3, 3), 1), (2, (2, 4), 2), (3, (3, 3), 1), (5, (2, 3), 0))
    ]
    return sequences + grids


@pytest.mark.parametrize(("unit", "window", "grid", "prefix", "keys"), row_laws())
def test_each_set_of_dropped_keys_has_its_exact_probability(
    unit: Unit, window: int, grid: Grid | None, prefix: int, keys: int
) -> None:
    """The joint distribution, including overlaps and edges, by enumeration of the starts."""
    torch.manual_seed(1)
    law = scalar_loops.rows_by_probability(unit, 0.4, window, keys, grid, prefix)
    rows = 60_000
    shape = (rows, 1, 1, keys) if unit == "column" else (10, 2, rows // 20, keys)
    dropped = sample_drop_mask(unit, 0.4, window, shape, grid=grid, num_prefix_tokens=prefix).view(-1, keys)
    codes = (dropped.long() * 2 ** torch.arange(keys)).sum(-1)
    counts = torch.bincount(codes, minlength=2**keys)
    expected = torch.zeros(2**keys, dtype=torch.float64)
    for row, probability in law.items():
        expected[sum(2**key for key, drop in enumerate(row) if drop)] = rows * probability
    assert expected.sum().item() == pytest.approx(rows)
    assert counts[expected == 0].sum() == 0
    # Rare sets are pooled: the χ² approximation needs at least a few samples of each.
    common = expected >= 8
    observed, predicted = counts[common].double(), expected[common]
    if expected[~common].sum() > 0:
        observed = torch.cat([observed, counts[~common].sum()[None].double()])
        predicted = torch.cat([predicted, expected[~common].sum()[None]])
    assert chi2.sf(((observed - predicted) ** 2 / predicted).sum().item(), len(predicted) - 1) > 1e-4
