"""A composition through the real command line and worker: killed, resumed, analyzed, and reported as one row."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE, wait

if TYPE_CHECKING:
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
  overrides: {steps: 300, evaluate_every: 100, model.layers: 1, model.dim: 32, model.heads: 4, model.dropout: 0.0}
columns: [{label: TREC}]
rows:
  - {label: none, baseline: true, trial: {regularizer: none}}
presets: {mini: {seeds: 1}}
"""


@pytest.mark.slow
def test_a_composition_is_one_trial_from_the_command_line_to_the_table(
    place: Workplace, workplace: Callable[[Path], Workplace], tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = workplace(tmp_path_factory.mktemp("whole"))
    for folder in (place.folder, whole.folder):
        (folder / "mine.yaml").write_text(SUITE, encoding="utf-8")
    command = ["run", "mine.yaml", "--regularizer", COMPOSITION, "--parallel", "1"]
    undisturbed = whole.call(*command)
    assert undisturbed.returncode == 0, undisturbed.stderr

    process = place.start(*command, "--checkpoint-seconds", "0")
    (composed,) = (run.id for run in whole.directories() if "+" in run.trial().regularizer.name)
    wait(lambda: [run for run in place.running() if run.id == composed], "the composition in training")
    for pid in place.processes("worker"):
        os.kill(pid, signal.SIGKILL)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert [attempt["state"] for attempt in place.attempts()[composed]] == ["lost", "succeeded"]
    resumed = [event["step"] for run in place.directories() for event in run.events() if event["event"] == "resume"]
    assert max(resumed) > 0

    def measured(of: Workplace) -> object:
        return json.loads((of.runs / composed / "result.json").read_bytes())["metrics"]

    assert measured(place) == measured(whole), "bit for bit"

    again = place.call("run", "mine.yaml", "--regularizer", REORDERED)
    assert again.returncode == 0, again.stderr
    assert "nothing to train: 2 trials already done" in again.stderr
    analyzed = place.call("analyze", composed, "entropy")
    assert analyzed.returncode == 0, analyzed.stderr
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
        done = place.call("enqueue", "mine.yaml", "--regularizer", order)
        assert done.returncode == 0, done.stderr
        assert f"{names}: applied as written: the other order is another trial" in done.stderr
        assert done.stdout.startswith("Added 1 trial (1" if number else "Added 2 trials (0")
