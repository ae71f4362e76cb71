"""What analyses kept, as shares of one set of bins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.report.distributions import BINS, _merged, distributions
from db.report.view import Outcome
from db.store import Store
from harness.analysis.sparsity import BINS as MOST
from harness.analysis.sparsity import WIDTH
from harness.rundir import RunDirectory

if TYPE_CHECKING:
    from tests.db.report.conftest import Tables


def keep(runs: Path, outcome: Outcome, kind: str, **arrays: Any) -> None:
    """As an analysis of each of the cell's trials would have."""
    for seed in outcome.seeds:
        folder = RunDirectory(runs / seed.id).analyses
        folder.mkdir(parents=True)
        np.savez(folder / f"{kind}.npz", **arrays)


def outcomes(store: Store, tables: Tables, metric: str) -> list[Outcome]:
    suite = tables.suite(["TREC"]).model_copy(update={"metric": metric})
    return tables.view(store, tables.ask(suite), suite).column("TREC")


def test_nothing_kept(store: Store, tables: Tables, tmp_path: Path) -> None:
    assert distributions(outcomes(store, tables, "entropy/mean"), tmp_path) == []


@pytest.mark.parametrize(("metric", "expected"), [("entropy/mean", [2.0, 4.0]), ("entropy/last", [3.0, 5.0])])
def test_values_by_sample(store: Store, tables: Tables, tmp_path: Path, metric: str, expected: list[float]) -> None:
    first, second, _ = outcomes(store, tables, metric)
    layers = {"one.1": np.array([[1.0, 1.0], [2.0, 4.0]]), "one.2": np.array([3.0, 5.0])}
    keep(tmp_path, first, "entropy", **layers)
    keep(tmp_path, second, "entropy", **{name: values + 1 for name, values in layers.items()})
    one, other = distributions([first, second], tmp_path)
    assert (one.row, other.row) == (first.row, second.row)
    assert one.edges is other.edges
    assert (one.edges[0], one.edges[-1]) == (expected[0], expected[1] + 1)
    assert [one.mean, other.mean] == [sum(expected) / 2, sum(expected) / 2 + 1]
    assert one.shares.sum() == pytest.approx(1)
    assert one.shares[0] == other.shares[BINS // 3] == 0.5


def test_counts_of_different_widths_come_together(store: Store, tables: Tables, tmp_path: Path) -> None:
    """The second trial's bins are four times as wide; both have the same values, which the first bins tell apart."""
    first, second, _ = outcomes(store, tables, "sparsity/mean")
    values = np.array([0.01, 0.02, 0.5, 1.0, 1.01, 2.5])
    for outcome, width in ((first, WIDTH), (second, 4 * WIDTH)):
        edges = np.arange(MOST + 1) * width
        counts = np.histogram(values, edges)[0].astype(float)
        arrays = {"one.1.counts": counts[None], "one.1.edges": edges, "one.1.heads": np.array([values.mean()])}
        keep(tmp_path, outcome, "sparsity", **arrays)
    one, other = distributions([first, second], tmp_path)
    assert np.array_equal(one.shares, other.shares)
    assert one.mean == other.mean == pytest.approx(values.mean())
    assert len(one.shares) <= BINS
    assert np.allclose(one.shares, np.histogram(values, one.edges)[0] / len(values))
    assert one.edges[-1] >= values.max()


@given(st.lists(st.integers(0, 9), min_size=1, max_size=70), st.integers(1, 9))
def test_merged_counts_lose_none(counts: list[int], merge: int) -> None:
    merged = _merged(np.array(counts), merge)
    assert len(merged) == len(counts)
    assert merged.sum() == sum(counts)
    assert all(merged[place // merge] >= count for place, count in enumerate(counts))
