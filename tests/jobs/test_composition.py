"""A composition through the real command line and worker: trained, analyzed, and reported as one row."""

from __future__ import annotations

import json

import pytest

from tests.jobs.workplace import Workplace

COMPOSITION = "dropkey:ratio=0.3 + drophead:ratio=0.1 + r-drop:alpha=1"
REORDERED = "r-drop:alpha=1 + drophead:ratio=0.1 + dropkey:ratio=0.3"
SUITE = """
title: One composition
source: these tests
metric: accuracy
trial:
  task: text-classification
  data: trec-synthetic
  model: text-transformer
  overrides: {steps: 20, evaluate_every: 10, model.layers: 1, model.dim: 32, model.heads: 4, model.dropout: 0.0}
columns: [{label: TREC}]
rows:
  - {label: none, baseline: true, trial: {regularizer: none}}
presets: {mini: {seeds: 1}}
"""


@pytest.mark.slow
def test_a_composition_is_one_trial_from_the_command_line_to_the_table(place: Workplace) -> None:
    (place.folder / "mine.yaml").write_text(SUITE, encoding="utf-8")
    place.ok("run", "mine.yaml", "--regularizer", COMPOSITION, "--parallel", "1")
    (composed,) = (run.id for run in place.directories() if "+" in run.trial().regularizer.name)
    again = place.ok("run", "mine.yaml", "--regularizer", REORDERED)
    assert "nothing to train: 2 trials already done" in again.stderr
    place.ok("analyze", composed, "entropy")
    report = json.loads(place.call("report", "mine.yaml", "--format", "json").stdout)
    assert {(cell["row"], cell["n"]) for cell in report["cells"]} >= {("none", 1), (COMPOSITION, 1)}
    query = f"SELECT regularizer, ratio FROM v_trials WHERE trial_id = '{composed}'"
    assert json.loads(place.call("db", "sql", "--json", query).stdout) == [
        {"regularizer": "drophead+dropkey+r-drop", "ratio": 0.3}
    ]
    results = place.call("results", "regularizer=dropkey+drophead+r-drop", "--metric", "accuracy", "--json")
    (row,) = json.loads(results.stdout)
    assert (row["n"], row["params"]["drophead.ratio"], row["params"]["r-drop.alpha"]) == (1, 0.1, 1)


@pytest.mark.slow
def test_parts_that_do_not_commute_are_other_trials_in_another_order(place: Workplace) -> None:
    (place.folder / "mine.yaml").write_text(SUITE, encoding="utf-8")
    orders = ("hiddencut:ratio=0.1 + dropdim:ratio=0.1", "dropdim:ratio=0.1 + hiddencut:ratio=0.1")
    for number, (order, names) in enumerate(zip(orders, ("hiddencut + dropdim", "dropdim + hiddencut"), strict=True)):
        done = place.ok("enqueue", "mine.yaml", "--regularizer", order)
        assert f"{names}: applied as written: the other order is another trial" in done.stderr
        assert done.stdout.startswith("Added 1 trial (1" if number else "Added 2 trials (0")
