"""Seeds, and what grows from them, against the papers' formulas in loops."""

from __future__ import annotations

import math
from typing import get_args

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from scipy.stats import chi2

from harness.masks import dropped_keys, grow, seed_probability
from harness.regularizers.drop import Unit
from tests.harness import reference

UNITS: tuple[Unit, ...] = get_args(Unit)
STRUCTURED: tuple[Unit, ...] = ("block", "cross")
Grid = tuple[int, int]
sides = st.integers(1, 6)


@settings(deadline=None)
@given(
    unit=st.sampled_from(UNITS), grid=st.tuples(sides, sides), prefix=st.integers(0, 2), window=st.integers(1, 8),
    data=st.data(),
)  # fmt: skip
def test_seeds_grow_as_in_the_papers(unit: Unit, grid: Grid, prefix: int, window: int, data: st.DataObject) -> None:
    keys = prefix + grid[0] * grid[1]
    rows = data.draw(st.lists(st.lists(st.booleans(), min_size=keys, max_size=keys), min_size=1, max_size=3))
    grown = grow(unit, torch.tensor(rows), window, grid=grid, prefix=prefix)
    assert grown.tolist() == [reference.grow(unit, row, window, grid, prefix) for row in rows]


@settings(deadline=None)
@given(unit=st.sampled_from(UNITS), grid=st.tuples(sides, sides), window=st.integers(1, 8), ratio=st.floats(0.0, 0.99))
def test_seed_probability_is_the_papers_and_never_above_the_ratio(
    unit: Unit, grid: Grid, window: int, ratio: float
) -> None:
    probability = seed_probability(unit, ratio, window, grid)
    assert probability == pytest.approx(reference.seed_ratio(unit, ratio, window, grid), rel=1e-12)
    assert 0.0 <= probability <= ratio * (1 + 1e-12) + 1e-300  # numbers below 1e-308 have fewer digits


@pytest.mark.parametrize(
    ("unit", "window", "expected"),
    [
        ("element", 1, 0.3),
        ("column", 3, 0.1),
        ("block", 3, 0.3 / 9 * 196 / 144),
        ("block", 5, 0.3 / 25 * 196 / 100),
        ("cross", 1, 0.3 / 27),
        ("cross", 3, 0.3 / (3 * 25) * 196 / 144),
    ],
)
def test_seed_probability_of_the_papers_settings(unit: Unit, window: int, expected: float) -> None:
    """DropKey's Table 2 on the 14 × 14 patches of T2T and VOLO; DropAttention's windows."""
    assert seed_probability(unit, 0.3, window, (14, 14)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("unit", UNITS)
def test_shape(unit: Unit) -> None:
    dropped = dropped_keys(unit, 0.5, 2, (3, 2, 5, 13), grid=(3, 4), prefix=1)
    assert dropped.dtype == torch.bool
    assert dropped.shape == (3, 2, 1 if unit == "column" else 5, 13)


@pytest.mark.parametrize("unit", UNITS)
def test_ratio_0_drops_nothing(unit: Unit) -> None:
    assert not dropped_keys(unit, 0.0, 2, (8, 4, 6, 13), grid=(3, 4), prefix=1).any()


def test_a_ratio_just_below_1_drops_nearly_all() -> None:
    for ratio in (1 - 2**-15, 1 - 1e-9, 1 - 1e-16):
        assert dropped_keys("element", ratio, 1, (4, 4, 64, 64)).double().mean() > 0.999


@pytest.mark.parametrize("unit", STRUCTURED)
def test_prefix_tokens_are_never_dropped_by_structured_units(unit: Unit) -> None:
    dropped = dropped_keys(unit, 0.99, 3, (8, 4, 6, 14), grid=(3, 4), prefix=2)
    assert not dropped[..., :2].any()
    assert dropped[..., 2:].any()


@pytest.mark.parametrize("unit", STRUCTURED)
def test_structured_units_need_the_grid_of_the_keys(unit: Unit) -> None:
    for grid, prefix in ((None, 0), ((3, 3), 0), ((3, 4), 1)):
        with pytest.raises(ValueError, match="needs the grid of the 12 keys"):
            dropped_keys(unit, 0.3, 1, (1, 1, 1, 12), grid=grid, prefix=prefix)
    for function in (lambda: seed_probability(unit, 0.3, 1), lambda: grow(unit, torch.zeros(4, dtype=torch.bool), 1)):
        with pytest.raises(ValueError, match="needs the grid"):
            function()


def test_a_grid_smaller_than_the_window_takes_its_shorter_side() -> None:
    """On 2 × 5 keys a 3 × 3 block is a 2 × 2 one, and what is dropped is made of such."""
    assert seed_probability("block", 0.3, 3, (2, 5)) == seed_probability("block", 0.3, 2, (2, 5))
    seeds = torch.tensor([True] + [False] * 9)
    assert grow("block", seeds, 3, grid=(2, 5)).view(2, 5).tolist() == [[True, True, False, False, False]] * 2


def test_growing_leaves_the_seeds_alone() -> None:
    seeds = torch.tensor([True, False, False, False])
    grow("element", seeds, 3)
    grow("block", seeds, 2, grid=(2, 2))
    assert seeds.tolist() == [True, False, False, False]


# The laws of the draws. Seeds fixed; thresholds such that a right law fails once in 10⁴ or less.


def row_laws() -> list[tuple[Unit, int, Grid | None, int, int]]:
    """Unit, window, grid, prefix and number of keys, small enough to enumerate."""
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
    """All that can happen to a row, by enumeration of its seeds: the joint law, so overlaps and edges too."""
    torch.manual_seed(1)
    law = reference.rows_by_probability(unit, 0.4, window, keys, grid, prefix)
    rows = 60_000
    shape = (rows, 1, 1, keys) if unit == "column" else (10, 2, rows // 20, keys)
    dropped = dropped_keys(unit, 0.4, window, shape, grid=grid, prefix=prefix).view(-1, keys)
    codes = (dropped.long() * 2 ** torch.arange(keys)).sum(-1)
    counts = torch.bincount(codes, minlength=2**keys)
    expected = torch.zeros(2**keys, dtype=torch.float64)
    for row, probability in law.items():
        expected[sum(2**place for place, drop in enumerate(row) if drop)] = rows * probability
    assert expected.sum().item() == pytest.approx(rows)
    assert counts[expected == 0].sum() == 0
    # Rare sets are counted together, as the χ² approximation wants at least a few of each.
    common = expected >= 8
    counted, wanted = counts[common].double(), expected[common]
    if expected[~common].sum() > 0:
        counted = torch.cat([counted, counts[~common].sum()[None].double()])
        wanted = torch.cat([wanted, expected[~common].sum()[None]])
    assert chi2.sf(((counted - wanted) ** 2 / wanted).sum().item(), len(wanted) - 1) > 1e-4


@pytest.mark.parametrize("probability", [1e-6, 0.3 / 65536, 1.7 / 65536, 0.01, 0.3, 0.5, 0.99])
def test_the_probability_is_not_rounded_to_16_bits(probability: float) -> None:
    """Over calls, each of which rounds its threshold up or down: the standard error is over calls."""
    torch.manual_seed(2)
    calls = 600
    fractions = [dropped_keys("element", probability, 1, (1, 1, 1, 2**15)).double().mean() for _ in range(calls)]
    mean = torch.stack(fractions)
    assert abs(mean.mean().item() - probability) < 4 * mean.std().item() / math.sqrt(calls)


def test_all_16_bits_of_every_lane_are_used() -> None:
    """Four decisions share a 64-bit number: at each of the four places the same fractions, for many thresholds."""
    for step, ratio in enumerate((2**-12, 2**-6, 0.1, 0.25, 0.5, 0.75, 1 - 2**-10)):
        torch.manual_seed(step)
        lanes = dropped_keys("element", ratio, 1, (1, 1, 2**18, 4)).double().mean((0, 1, 2))
        error = math.sqrt(ratio * (1 - ratio) / 2**18)
        assert (lanes - ratio).abs().max().item() < 4.5 * error


def test_lanes_of_a_word_are_independent() -> None:
    torch.manual_seed(3)
    ratio, rows = 0.3, 2**18
    lanes = dropped_keys("element", ratio, 1, (1, 1, rows, 4)).double().view(rows, 4) - ratio
    products = (lanes.T @ lanes) / rows
    off_diagonal = products[~torch.eye(4, dtype=torch.bool)]
    assert off_diagonal.abs().max().item() < 4.5 * ratio * (1 - ratio) / math.sqrt(rows)
