"""Data of the comparison of two trials."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dropbench.db.report.page import compare
from dropbench.db.report.page.training import load_training
from dropbench.db.store.store import Store
from tests.db.report import tables, written


def test_trials_with_curves_are_compared_by_the_keys_that_differ(
    store: Store, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(compare, "points_per_curve", lambda curves: 3)
    view = written.filled(store, tmp_path, of=tables.suite(["TREC"]))
    group = compare.comparison(view, load_training(view, store, tmp_path), store)
    assert group is not None
    assert group.comparison is not None
    none, key3, key5 = group.comparison["cells"]
    assert (none["row"], none["column"], none["metric"]) == ("none", "TREC", "accuracy")
    values = [dict(zip(group.comparison["keys"], cell["config"], strict=True)) for cell in (none, key3, key5)]
    assert [value["regularizer.params.ratio"] for value in values] == ["–", "0.3", "0.5"]
    assert "task" not in values[0]
    first = none["trials"][0]
    assert (first["seed"], first["state"], first["value"]) == (0, "succeeded", "80.00")
    assert first["curves"]["train/loss"] == [[1, 21, 40], [2.0, 0.095238, 0.05]]
    assert [trial["value"] for trial in key5["trials"]] == ["79.00", "", "84.00"]  # the second one failed


def test_a_single_trial_is_not_compared(store: Store, tmp_path: Path) -> None:
    view = written.filled(store, tmp_path, {("none", "TREC"): (80.0,)}, tables.suite(["TREC"]))
    assert compare.comparison(view, load_training(view, store, tmp_path), store) is None
