from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.run_record import read_run_record
from dropbench.db.store.store import Store, SubmissionRow, open_store
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.suites.request import read_request, request_files
from dropbench.harness.trials.trial import WeightsRef
from tests.db.records import attempt, dump, make_directory, make_trial
from tests.requests import named

NOT_REBUILT = ("submissions",)
"""Tables that run directories do not contain; the attempts still record where each trial ran."""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Run directories in every possible state."""
    folder = tmp_path / "runs"
    done = {"test/accuracy": 88.25, "dev/accuracy": 87.5}
    twice = [attempt("lost", "killed"), attempt("succeeded")]
    make_directory(folder, make_trial(0), attempts=twice, metrics=done, losses=[2.0, 1.0], suites=["a", "b"])
    make_directory(
        folder, make_trial(1), attempts=[attempt("failed", "ValueError: boom", message="Trace…")], suites=["a"]
    )
    make_directory(folder, make_trial(2), attempts=[attempt("interrupted", "SIGTERM", cpu_seconds=1.5)])
    make_directory(folder, make_trial(3), attempts=[attempt("running")], losses=[1.0])
    make_directory(folder, make_trial(4), suites=["b"])
    weights = WeightsRef(path="/w.pt", digest="ab")
    make_directory(folder, make_trial(5, weights=weights), metrics={"test/accuracy": float("nan")})
    return folder


def collected(store: Store, runs: Path) -> None:
    """Fill a database as enqueueing, dispatching and collecting do."""
    directories = list(Runs(runs))
    store.enqueue(directory.trial() for directory in directories)
    store.add_requests(read_request(file) for file in request_files(runs))
    ids = [directory.id for directory in directories]
    store.intend(ids, SubmissionRow("a" * 32, "local", "/jobs", "here", 1))
    store.submitted("a" * 32, "7")
    for _ in range(2):
        for directory in directories:
            store.record([read_run_record(directory)])
    store.end_submission("a" * 32)


def test_rebuilding_gives_the_rows_that_collecting_gave(store: Store, runs: Path, tmp_path: Path) -> None:
    collected(store, runs)
    before = dump(store, *NOT_REBUILT)
    assert len(before["trials"]) == 6
    assert {table: len(rows) for table, rows in before.items() if not rows} == {}
    ticks: list[int] = []
    with open_store(f"sqlite:///{tmp_path}/empty.db") as empty:
        done = rebuild(empty, runs, lambda: ticks.append(1))
        assert dump(empty, *NOT_REBUILT) == before
    assert (done.recorded, done.requests, done.damaged, done.without_directory, len(ticks)) == (6, 4, [], 0, 6)
    rebuild(store, runs)
    assert dump(store, *NOT_REBUILT) == before


def test_a_stale_database_is_brought_up_to_date(store: Store, runs: Path) -> None:
    collected(store, runs)
    waiting = make_trial(99)
    store.enqueue([waiting], [named("a", waiting)])
    right = dump(store)
    store.set_states({make_trial(0).id: ("running", None), make_trial(1).id: ("succeeded", None)})
    done = rebuild(store, runs)
    assert dump(store) == right
    assert done.without_directory == 1
    assert store.states()[waiting.id].state == "queued"


def test_damaged_directories_are_reported_and_have_failed(store: Store, runs: Path) -> None:
    for seed, name in ((0, "result.json"), (1, "trial.json")):
        file = runs / make_trial(seed).id / name
        file.write_bytes(file.read_bytes()[:-30])
    request = next(request_files(runs))
    request.write_bytes(request.read_bytes()[:-30])
    (runs / "no-run-directory").mkdir()
    (runs / ("0" * 12)).mkdir()
    done = rebuild(store, runs)
    assert done.recorded == 4
    assert (done.requests, len(done.damaged)) == (3, 3)
    assert all("\n" not in line for line in done.damaged)
    assert any(make_trial(0).id in line and "result.json" in line for line in done.damaged)
    assert any(make_trial(1).id in line and "trial.json" in line for line in done.damaged)
    failed = store.states()[make_trial(0).id]
    assert failed.state == "failed"
    assert failed.reason in done.damaged
    assert set(store.states()) == {
        make_trial(0).id, make_trial(2).id, make_trial(3).id, make_trial(4).id,
        make_trial(5, weights=WeightsRef(path="/elsewhere.pt", digest="ab")).id,
    }  # fmt: skip


def test_without_a_runs_folder(store: Store, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder: expected the run directories"):
        rebuild(store, tmp_path / "nowhere")
