"""Post-hoc tests, compared with scikit-posthocs, autorank and Demšar's tables."""

from __future__ import annotations

import json
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.stats import rankdata

from dropbench.db.statistics.ranks import (
    critical_difference,
    friedman,
    groups,
    letters,
    nemenyi,
    ranks_of,
    wilcoxon,
    wilcoxon_holm,
)
from tests.paths import GOLDEN_FILES

GOLDEN = json.loads((GOLDEN_FILES / "rank_statistics.json").read_text())["autorank"]
RNG = np.random.default_rng(0)
TABLES = [RNG.normal(np.arange(k) / 2, 1, (blocks, k)) for blocks, k in ((6, 3), (12, 5), (30, 9))]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: "x".join(map(str, table.shape)))
def test_as_scikit_posthocs(table: np.ndarray[tuple[int, int], np.dtype[np.float64]]) -> None:
    posthocs = pytest.importorskip("scikit_posthocs")
    ranks = rankdata(-table, axis=1).mean(0)
    theirs = posthocs.posthoc_nemenyi_friedman(table).to_numpy()
    assert nemenyi(ranks, len(table)) == pytest.approx(theirs, abs=1e-9)
    theirs = posthocs.posthoc_wilcoxon(list(table.T), p_adjust="holm").to_numpy()
    assert wilcoxon_holm(table) == pytest.approx(theirs, abs=1e-9)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: f"{len(golden['table'])} blocks")
def test_as_autorank(golden: dict[str, Any]) -> None:
    """Autorank reads the quantile of the critical difference from a table of statsmodels, with four digits."""
    ranks = ranks_of(golden["table"])
    assert np.mean(ranks, axis=0) == pytest.approx(golden["mean_ranks"], rel=1e-9)
    test = friedman(ranks)
    assert test is not None
    assert test["p"] == pytest.approx(golden["p_value"], rel=1e-9)
    assert critical_difference(len(ranks[0]), len(ranks)) == pytest.approx(golden["critical_difference"], rel=1e-3)


@given(st.lists(st.integers(-4, 4) | st.floats(-9, 9), min_size=1, max_size=8))
@settings(max_examples=30)
def test_wilcoxons_test_is_exact_with_ties(values: list[float]) -> None:
    """By all 2ⁿ signs; scipy's permutation test does the same for up to 13 differences."""
    nonzero = np.array([value for value in values if value != 0], dtype=float)
    ranks = rankdata(np.abs(nonzero))
    sums = np.array([np.dot(signs, ranks) for signs in product((0, 1), repeat=len(nonzero))])
    observed = ranks[nonzero > 0].sum()
    expected = min(1.0, 2 * min(np.mean(sums <= observed), np.mean(sums >= observed)))
    assert wilcoxon(values, np.zeros(len(values))) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [3, 8, 20, 50, 51, 200])
def test_as_scipy(n: int) -> None:
    values = RNG.normal(0.3, 1, n)
    assert wilcoxon(values, np.zeros(n)) == pytest.approx(stats.wilcoxon(values).pvalue, rel=1e-9)
    if n == 8:
        rounded = values.round()
        assert wilcoxon(rounded, np.zeros(n)) == pytest.approx(stats.wilcoxon(rounded).pvalue, rel=1e-9)


def test_rounding_breaks_no_tie() -> None:
    """Means of the same counts in another order: 0.1 + 0.2 is not 0.3 in floating point."""
    assert ranks_of([[0.1 + 0.2, 0.3, 0.2]]) == [[1.5, 1.5, 3.0]]
    first, second = [0.3, 0.1 + 0.2, 1.0], [0.2, 0.2, 1.0]  # differences of 0.1, twice, and 0
    assert wilcoxon(first, second) == wilcoxon([1, 1], [0, 0])


@pytest.mark.parametrize(("methods", "q"), [(2, 1.960), (3, 2.343), (4, 2.569), (5, 2.728), (8, 3.031), (10, 3.164)])
def test_the_critical_values_of_demsar(methods: int, q: float) -> None:
    """Table 5 (a) of Demšar (2006)."""
    assert critical_difference(methods, 14) == pytest.approx(q * (methods * (methods + 1) / 84) ** 0.5, rel=3e-4)


def test_equal_methods_do_not_differ() -> None:
    assert wilcoxon_holm(np.ones((6, 3))).tolist() == np.ones((3, 3)).tolist()


@given(st.lists(st.floats(1, 9).map(lambda rank: round(rank, 2)), min_size=2, max_size=9), st.floats(0.01, 5))
def test_methods_share_a_letter_if_their_ranks_are_close(ranks: list[float], difference: float) -> None:
    members = groups(ranks, difference)
    texts = letters(members, len(ranks))
    assert all(texts)
    for first, second in combinations(range(len(ranks)), 2):
        close = abs(ranks[first] - ranks[second]) < difference
        assert bool({*texts[first]} & {*texts[second]}) == close
    assert not any({*one} <= {*other} for one, other in combinations(members, 2)), "no group is part of another"


def test_the_example_of_a_diagram() -> None:
    members = groups([2.0, 1.0, 3.0, 4.5], 1.5)
    assert members == [[1, 0], [0, 2], [3]]
    assert letters(members, 4) == ["ab", "a", "b", "c"]
