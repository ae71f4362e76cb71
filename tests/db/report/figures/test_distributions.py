"""Distributions of measured values over one set of bins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.db.report.figures.distributions import BINS, Distribution, _merge_bins, arrays_of, distributions
from dropbench.db.report.view.cells import CellResult
from dropbench.db.store.store import Store
from dropbench.harness.analysis.sparsity import BINS as SPARSITY_BINS
from dropbench.harness.analysis.sparsity import WIDTH
from dropbench.harness.runs.run_directory import RunDirectory
from tests.db.report import tables


def write_arrays(runs: Path, result: CellResult, kind: str, **arrays: Any) -> None:
    """Write the arrays of an analysis for each of the cell's trials."""
    for seed in result.seeds:
        folder = RunDirectory(runs / seed.id).analyses
        folder.mkdir(parents=True)
        np.savez(folder / f"{kind}.npz", **arrays)


def results(store: Store, metric: str) -> list[CellResult]:
    suite = tables.suite(["TREC"]).model_copy(update={"metric": metric})
    return tables.view(store, tables.resolve(suite), suite).column("TREC")


def distributions_of(cells: list[CellResult], runs: Path, layer: str) -> list[Distribution]:
    return distributions({cell.row: list(arrays_of(cell, runs)) for cell in cells}, layer)


def test_without_arrays_there_are_no_distributions(store: Store, tmp_path: Path) -> None:
    assert distributions_of(results(store, "entropy/mean"), tmp_path, "mean") == []


@pytest.mark.parametrize(("metric", "expected"), [("entropy/mean", [2.0, 4.0]), ("entropy/last", [3.0, 5.0])])
def test_values_by_sample(store: Store, tmp_path: Path, metric: str, expected: list[float]) -> None:
    first, second, _ = results(store, metric)
    layers = {"one.1": np.array([[1.0, 1.0], [2.0, 4.0]]), "one.2": np.array([3.0, 5.0])}
    write_arrays(tmp_path, first, "entropy", **layers)
    write_arrays(tmp_path, second, "entropy", **{name: values + 1 for name, values in layers.items()})
    left, right = distributions_of([first, second], tmp_path, metric.partition("/")[2])
    assert (left.row, right.row) == (first.row, second.row)
    assert left.edges is right.edges
    assert (left.edges[0], left.edges[-1]) == (expected[0], expected[1] + 1)
    assert [left.mean, right.mean] == [sum(expected) / 2, sum(expected) / 2 + 1]
    assert left.shares.sum() == pytest.approx(1)
    assert left.shares[0] == right.shares[BINS // 3] == 0.5


def test_counts_of_different_bin_widths_are_merged(store: Store, tmp_path: Path) -> None:
    """Both trials have the same values, but the bins of the second are four times as wide."""
    first, second, _ = results(store, "sparsity/mean")
    values = np.array([0.01, 0.02, 0.5, 1.0, 1.01, 2.5])
    for result, width in ((first, WIDTH), (second, 4 * WIDTH)):
        edges = np.arange(SPARSITY_BINS + 1) * width
        counts = np.histogram(values, edges)[0].astype(float)
        arrays = {"one.1.counts": counts[None], "one.1.edges": edges, "one.1.heads": np.array([values.mean()])}
        write_arrays(tmp_path, result, "sparsity", **arrays)
    left, right = distributions_of([first, second], tmp_path, "mean")
    assert np.array_equal(left.shares, right.shares)
    assert left.mean == right.mean == pytest.approx(values.mean())
    assert len(left.shares) <= BINS
    assert np.allclose(left.shares, np.histogram(values, left.edges)[0] / len(values))
    assert left.edges[-1] >= values.max()


def test_an_outlier_is_counted_in_the_last_bin() -> None:
    values = np.append(np.linspace(0, 1, 2000), 1e6)
    (samples,) = distributions({"a": [{"one": values}]}, "last")
    assert samples.edges[-1] < 1.01
    assert samples.shares.sum() == pytest.approx(1)
    counts = np.zeros((1, 1000))
    counts[0, :10], counts[0, -1] = 2000, 1
    arrays = {"one.counts": counts, "one.edges": np.arange(1001.0), "one.heads": np.ones(1)}
    (counted,) = distributions({"a": [arrays]}, "last")
    assert counted.edges[-1] == 10
    assert counted.shares.tolist() == pytest.approx([*[2000 / 20001] * 9, 2001 / 20001])


@given(st.lists(st.integers(0, 9), min_size=1, max_size=70), st.integers(1, 9))
def test_merged_counts_lose_none(counts: list[int], factor: int) -> None:
    merged = _merge_bins(np.array(counts), factor)
    assert len(merged) == len(counts)
    assert merged.sum() == sum(counts)
    assert all(merged[index // factor] >= count for index, count in enumerate(counts))
