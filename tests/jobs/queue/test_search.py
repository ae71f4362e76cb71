"""Sweeps and searches on the command line: killed and resumed searches, and pruned candidates."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dropbench.db.store.store import open_store
from dropbench.db.tuning.select import PRUNED
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.suites.request import read_request, request_files
from dropbench.jobs.queue.reconcile import collect
from tests.jobs.workplace import HEAD, Workplace
from tests.patience import PATIENCE, wait

SWEEP = ("--sweep", "ratio=0.05..0.6", "--sweep", "set.lr=1e-3..1e-1:log", "--seeds", "1")
SEARCH = (*SWEEP, "--search", "sampler=tpe,candidates=5,batch=2")


SWEPT = "sweep: {set.lr: [0.05, 0.04, 0.06, 0.03, 0.07, 1e-9]}, search: {pruner: median}"
RATES = f"""{HEAD.replace("tiny}", "tiny, regularizer: none}")}
rows: [{{label: one, {SWEPT}}}]
presets: {{mini: {{seeds: 2}}}}
"""


def records(place: Workplace, suite: str = "tiny.yaml") -> list[dict[str, Any]]:
    done = place.ok("report", suite, "--json")
    cells: list[dict[str, Any]] = json.loads(done.stdout)["cells"]
    return cells


@pytest.mark.slow
def test_a_grid_is_run_shared_and_selected_from(place: Workplace) -> None:
    place.ok("run", "tiny.yaml", "--regularizer", "dropkey:ratio=0.5", "--seeds", "1", "--executor", "debug")
    both = place.ok("run", "tiny.yaml", "--sweep", "ratio=0.1,0.5", "--seeds", "1", "--executor", "debug")
    assert "chosen" in both.stdout
    assert len(place.directories()) == 4, "the ratio of the first command is not trained again"
    none, dropkey = records(place)
    assert (none["chosen"], none["candidates"]) == (None, [])
    dev = {candidate["params"]["ratio"]: candidate["dev"] for candidate in dropkey["candidates"]}
    assert dev[dropkey["chosen"]["ratio"]] == max(dev.values())
    assert dropkey["trials"][0]["id"] in {directory.id for directory in place.directories()}


@pytest.mark.slow
def test_a_killed_search_resumes_to_the_same_result(workplace: Callable[[Path], Workplace], tmp_path: Path) -> None:
    undisturbed, killed = workplace(tmp_path / "undisturbed"), workplace(tmp_path / "killed")
    row = "sweep: {ratio: {low: 0.05, high: 0.6}}, search: {sampler: tpe, candidates: 5, batch: 2}"
    content = RATES.replace("none}", "dropkey}").replace(SWEPT, row)
    for place in (undisturbed, killed):
        (place.folder / "search.yaml").write_text(content, encoding="utf-8")
    command = "run", "search.yaml", "--seeds", "1", "--executor", "debug", "--json"
    done = undisturbed.ok(*command)
    assert "Added 2 trials by the results so far; 1 candidate remaining." in done.stderr
    killed.pause.write_text("0.02")
    process = killed.start(*command)
    wait(lambda: len(list(killed.runs.glob("*/result.json"))) >= 3, "a result of the second batch")
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    killed.pause.write_text("0")
    last = killed.ok(*command)
    # With --executor debug, training prints to standard output, too.
    (expected,), (resumed,) = (json.loads(run.stdout[run.stdout.index("{\n") :])["cells"] for run in (done, last))
    assert {**resumed, "suite": ""} == {**expected, "suite": ""}
    assert len(resumed["candidates"]) == 5
    assert resumed["chosen"] is not None
    assert {directory.id for directory in killed.directories()} == {
        directory.id for directory in undisturbed.directories()
    }
    assert sorted(len(attempts) for attempts in killed.attempts().values())[:4] == [1] * 4
    requests = [read_request(file) for file in request_files(undisturbed.runs)]
    assert {request.extends for request in requests} == {None, *(each.id for each in requests if not each.extends)}
    assert len(requests) == 3, "one per batch"
    Path(undisturbed.database.removeprefix("sqlite:///")).unlink()
    assert "0 damaged" in undisturbed.call("db", "rebuild").stdout
    (again,) = json.loads(undisturbed.call("report", "search.yaml", "--json").stdout)["cells"]
    assert (again["chosen"], len(again["candidates"])) == (expected["chosen"], 5)


STAGED = f"""{HEAD.replace("{label: Tiny}", "{label: Tiny}, {label: loss, metric: loss}")}
rows:
  - {{label: none, baseline: true, trial: {{regularizer: none}}}}
  - {{label: dropkey, trial: {{regularizer: dropkey, params: {{ratio: 0.3}}}}}}
presets: {{mini: {{seeds: 2, tuned: staged, tuning_seeds: 1, overrides: {{lr: 0.05, steps: 5}}}}}}
"""


@pytest.mark.slow
def test_stages_choose_by_seeds_of_their_own_and_the_table_shows_others(place: Workplace) -> None:
    (place.folder / "staged.yaml").write_text(STAGED, encoding="utf-8")
    first = place.call("enqueue", "staged.yaml")
    assert first.stderr.splitlines() == [
        "budget of each cell: 5 candidates × 1 seed for tuning, then 2 seeds; 14 trials in all"
    ]
    assert "Added 8 trials (0 already present)" in first.stdout, "five rates of none, three of dropkey"
    assert "4 candidates of searches remaining" in first.stdout
    open_line = "staged, preset mini: 4 candidates of 2 cells to come: `dropbench enqueue staged --preset mini …`"
    assert open_line in place.call("status").stdout
    done = place.ok("run", "staged.yaml", "--executor", "debug")
    assert "budget of each cell: 5 candidates × 1 seed for tuning, then 2 seeds" in " ".join(done.stdout.split())
    assert "chosen: best mean dev accuracy over seeds 10000, from each row's candidates" in done.stdout
    seeds = [directory.trial().seed for directory in place.directories()]
    assert (len(seeds), seeds.count(10000)) == (14, 10)
    for cell in records(place, "staged.yaml"):
        assert len(cell["candidates"]) == 5
        assert [trial["seed"] for trial in cell["trials"]] == [0, 1]
        best = max(candidate["dev"] for candidate in cell["candidates"])
        assert next(each["dev"] for each in cell["candidates"] if each["params"] == cell["chosen"]) == best
    again = place.call("run", "staged.yaml", "--executor", "debug")
    assert "nothing to train" in again.stderr
    assert "to come" not in place.call("status").stdout
    ranking = json.loads(place.ok("compare", "--rank", "--format", "json").stdout)
    assert ranking["blocks"] == 1


def test_enqueue_adds_one_batch_after_another(place: Workplace) -> None:
    first = place.call("enqueue", "tiny.yaml", *SEARCH)
    assert first.stdout.splitlines() == [
        "Added 4 trials (0 already present). 4 queued; run `dropbench submit`.",
        "6 candidates of searches remaining: run the same `dropbench enqueue` again when these trials are done.",
    ], first.stderr
    same = json.loads(place.call("enqueue", "tiny.yaml", *SEARCH, "--json").stdout)
    assert (same["added"], len(same["present"]), same["unasked"]) == ([], 4, 6)
    place.ok("submit", "--executor", "debug")
    more = json.loads(place.call("enqueue", "tiny.yaml", *SEARCH, "--json").stdout)
    assert (len(more["added"]), more["unasked"]) == (4, 2)


def test_candidates_that_fall_behind_are_pruned(place: Workplace) -> None:
    """The second seed of a useless learning rate among six is never trained."""
    (place.folder / "rates.yaml").write_text(RATES, encoding="utf-8")
    done = place.call("run", "rates.yaml", "--executor", "debug")
    assert done.returncode == 0, "a pruned candidate is no failure"
    (pruned,) = [line for line in done.stderr.splitlines() if ": cancelled: " in line]
    assert "none, tiny, seed 1: cancelled: pruned: dev accuracy" in pruned
    assert pruned.endswith("after 4 evaluations, median pruner")
    assert "[1] of 6 candidates, 1 pruned (lr=1e-09: dev accuracy" in done.stdout
    assert "nothing to train" in place.call("run", "rates.yaml").stderr, "pruned candidates are not requested again"
    assert len(place.directories()) == 11


@pytest.mark.slow
def test_trials_of_another_suite_are_not_pruned(place: Workplace) -> None:
    (place.folder / "rates.yaml").write_text(RATES, encoding="utf-8")
    place.ok("enqueue", "tiny.yaml", "--set", "lr=1e-9")
    done = place.ok("run", "rates.yaml", "--executor", "debug")
    assert "cancelled" not in done.stderr
    assert "1 pruned" not in done.stdout
    assert len([directory for directory in place.directories() if directory.result()]) == 12


@pytest.mark.slow
def test_a_running_trial_that_is_pruned_stops_and_reports_why(place: Workplace) -> None:
    place.pause.write_text("0.5")
    process = place.start("run", "tiny.yaml", "--preset", "one", "--parallel", "1")
    (directory,) = wait(place.running, "a trial in training")
    directory.cancel(f"{PRUNED}for a test")
    wait(lambda: directory.attempts()[-1]["state"] == "cancelled", "the end of the pruned trial")
    place.pause.write_text("0")
    _, err = process.communicate(timeout=PATIENCE)
    assert f"{directory.id} tiny, none, tiny, seed 0: cancelled: {PRUNED}for a test" in err
    assert process.returncode == 0, "a pruned candidate is no failure"
    assert directory.attempts()[-1]["cause"] == f"{PRUNED}for a test"
    with open_store(place.database) as store:
        collect(store, place.settings)
        assert store.states([directory.id])[directory.id].reason == f"{PRUNED}for a test"
    assert RunDirectory(directory.path).cancelled() == f"{PRUNED}for a test"
