"""The state of a trial from its run directory, in whatever state workers left it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dropbench.db.store.store import Store, SubmissionRow
from dropbench.harness.runs.run_directory import CANCELLED, RunDirectory
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.operations import cancel, enqueue, requeue_exhausted, retry
from dropbench.jobs.queue.reconcile import collect, determine_state, import_results
from dropbench.jobs.queue.status import explain_failed, read_status
from dropbench.jobs.slurm.job_states import JobStates
from dropbench.jobs.submission.submission import Submission
from dropbench.jobs.worker import slots
from dropbench.jobs.worker.attempt import Attempt
from dropbench.jobs.worker.retry import MAX_FRUITLESS_ATTEMPTS
from tests.jobs.workplace import Tiny, Workplace
from tests.requests import requested

ALIVE = Submission("s1", alive=True)
DEAD = Submission("s1", alive=False)
REMOTE = Submission("s1", alive=True, jobs=JobStates(answered=False))


@pytest.fixture
def trial(tiny: Tiny) -> Trial:
    return tiny()[0]


@pytest.fixture
def directory(place: Workplace, trial: Trial) -> RunDirectory:
    return RunDirectory.create(place.runs, trial)


def begin(directory: RunDirectory, submission: str = "s1") -> Attempt:
    return Attempt(directory, submission=submission, executor="local", job_id=None)


def ended(state: str, submission: str = "s1") -> Callable[[RunDirectory], None]:
    return lambda directory: begin(directory, submission).finish(state, "a cause")


def nothing(directory: RunDirectory) -> None:
    """No attempt has started."""


def done(directory: RunDirectory) -> None:
    attempt = begin(directory)
    directory.write_result({"metrics": {"test/accuracy": 88.4}})
    attempt.finish("succeeded")


def killed_after_the_result(directory: RunDirectory) -> None:
    begin(directory)
    directory.write_result({"metrics": {"test/accuracy": 88.4}})


def cancelled(directory: RunDirectory) -> None:
    (directory.path / CANCELLED).touch()


@pytest.mark.parametrize(
    ("leave", "submission", "state"),
    [
        (nothing, ALIVE, "submitted"),
        (nothing, DEAD, "queued"),
        (nothing, None, "queued"),
        (begin, ALIVE, "queued"),
        (begin, DEAD, "queued"),
        (begin, REMOTE, "running"),
        (done, ALIVE, "succeeded"),
        (done, DEAD, "succeeded"),
        (done, None, "succeeded"),
        (killed_after_the_result, DEAD, "succeeded"),
        (killed_after_the_result, REMOTE, "succeeded"),
        (ended("failed"), ALIVE, "failed"),
        (ended("failed"), DEAD, "failed"),
        (ended("failed"), None, "failed"),
        (ended("failed", "s0"), ALIVE, "submitted"),
        (ended("failed", "s0"), DEAD, "queued"),
        (ended("out_of_memory"), ALIVE, "queued"),
        (ended("preempted"), ALIVE, "submitted"),
        (ended("preempted"), DEAD, "queued"),
        (ended("interrupted"), ALIVE, "queued"),
        (ended("interrupted"), REMOTE, "submitted"),
        (ended("preempted"), REMOTE, "submitted"),
        (ended("failed"), REMOTE, "failed"),
        (ended("lost"), ALIVE, "queued"),
        (ended("cancelled"), DEAD, "cancelled"),
        (cancelled, ALIVE, "cancelled"),
        (cancelled, DEAD, "cancelled"),
    ],
)
def test_observed_states(
    directory: RunDirectory, leave: Callable[[RunDirectory], Any], submission: Submission | None, state: str
) -> None:
    leave(directory)
    before = {file: file.read_bytes() for file in directory.path.rglob("*") if file.is_file()}
    observed = determine_state(directory, submission)
    assert observed.state == state
    alive = submission == REMOTE and state == "running"
    assert observed.died == (leave in (begin, killed_after_the_result) and not alive)
    assert before == {file: file.read_bytes() for file in directory.path.rglob("*") if file.is_file()}
    with directory.lock():
        assert determine_state(directory, submission).state == "running", "a worker holds the lock"


def submit(store: Store, place: Workplace, *ids: str, id: str = "s1") -> None:
    store.intend(ids, SubmissionRow(id=id, executor="local", folder=str(place.runs), host="here", pid=1))


def state(store: Store, trial: Trial) -> str:
    return store.states([trial.id])[trial.id].state


def test_a_submission_from_start_to_death(
    place: Workplace, store: Store, trial: Trial, directory: RunDirectory
) -> None:
    enqueue(store, place.settings, requested("tiny", trial))
    with slots.dispatch_lock(place.runs):
        (slot,) = slots.acquire(place.runs, "s1", count=1, max_workers=1)
    submit(store, place, trial.id)
    assert collect(store, place.settings) == {}
    with directory.lock():
        begin(directory)
        assert read_status(store, place.settings).to_json()["running"] == 1
        assert state(store, trial) == "submitted", "reading the status changes nothing"
        assert collect(store, place.settings) == {trial.id: "running"}
        assert collect(store, place.settings) == {}
    slot.close()
    assert read_status(store, place.settings).to_json()["queued"] == 1
    assert collect(store, place.settings) == {trial.id: "queued"}
    assert [attempt["state"] for attempt in directory.attempts()] == ["lost"]
    assert store.open_submissions() == []
    assert not list((slots.jobs_folder(place.runs) / "places").iterdir())


def test_trials_claimed_by_a_process_that_died_are_queued(place: Workplace, store: Store, trial: Trial) -> None:
    enqueue(store, place.settings, requested("", trial))
    submit(store, place, trial.id)
    assert collect(store, place.settings) == {trial.id: "queued"}
    assert store.open_submissions() == []


def test_a_trial_without_progress_fails_and_a_new_run_retries_it(
    place: Workplace, store: Store, trial: Trial, directory: RunDirectory
) -> None:
    enqueue(store, place.settings, requested("", trial))
    for number in range(MAX_FRUITLESS_ATTEMPTS):
        assert state(store, trial) == "queued"
        submit(store, place, trial.id, id=f"s{number}")
        begin(directory, f"s{number}")
        collect(store, place.settings)
    row = store.states([trial.id])[trial.id]
    assert row.state == "failed"
    assert "without a new checkpoint" in (row.reason or "")
    assert requeue_exhausted(store, [trial.id]) == [trial.id]
    store.set_states({trial.id: ("failed", "ZeroDivisionError")})
    assert requeue_exhausted(store, [trial.id]) == []
    assert retry(store, place.settings, [trial.id]) == ([trial.id], {})
    assert state(store, trial) == "queued"


def test_results_are_imported_into_a_new_database(
    place: Workplace, store: Store, trial: Trial, directory: RunDirectory
) -> None:
    done(directory)
    enqueue(store, place.settings, requested("tiny", trial))
    assert state(store, trial) == "succeeded"
    assert import_results(store, place.settings, [trial.id]) == []
    assert store.suites([trial.id]) == {trial.id: ["tiny"]}
    store.set_states({trial.id: ("queued", None)})
    assert collect(store, place.settings) == {}
    assert collect(store, place.settings, thorough=True) == {trial.id: "succeeded"}


@pytest.mark.parametrize("content", ["", "{", '{"metrics": 3}', '{"metrics": {"test/accuracy": "high"}}'])
def test_a_damaged_result(place: Workplace, store: Store, trial: Trial, directory: RunDirectory, content: str) -> None:
    enqueue(store, place.settings, requested("", trial))
    submit(store, place, trial.id)
    begin(directory).finish("succeeded")
    (directory.path / "result.json").write_text(content)
    collect(store, place.settings)
    row = store.states([trial.id])[trial.id]
    assert row.state == "failed"
    assert "result.json" in (row.reason or "")
    retry(store, place.settings, [trial.id])
    enqueue(store, place.settings, requested("", trial))
    assert state(store, trial) == "failed", "the file is still damaged"
    (directory.path / "result.json").unlink()
    retry(store, place.settings, [trial.id])
    enqueue(store, place.settings, requested("", trial))
    assert state(store, trial) == "queued"


def test_cancel_and_retry(place: Workplace, store: Store, tiny: Tiny) -> None:
    queued, submitted, running, finished = trials = tiny(4)
    enqueue(store, place.settings, requested("", *trials))
    with slots.dispatch_lock(place.runs):
        (slot,) = slots.acquire(place.runs, "s1", count=1, max_workers=1)
    submit(store, place, submitted.id, running.id, finished.id)
    directories = [RunDirectory.create(place.runs, trial) for trial in (submitted, running, finished)]
    done(directories[2])
    with directories[1].lock():
        attempt = begin(directories[1])
        result = cancel(store, place.settings, [trial.id for trial in trials])
        assert sorted(result.cancelled) == sorted([queued.id, submitted.id])
        assert result.stopping == [running.id]
        attempt.finish("cancelled", "cancelled by the user")
    collect(store, place.settings)
    assert [state(store, trial) for trial in trials] == ["cancelled", "cancelled", "cancelled", "succeeded"]
    requeued, _ = retry(store, place.settings, [trial.id for trial in trials])
    assert sorted(requeued) == sorted([queued.id, submitted.id, running.id])
    assert not list(place.runs.glob(f"*/{CANCELLED}"))
    slot.close()


def test_curves_of_running_trials_are_imported_by_a_thorough_collect_only(
    place: Workplace, store: Store, trial: Trial, directory: RunDirectory
) -> None:
    from sqlalchemy import func, select

    from dropbench.db.schema.tables import Metrics

    def points() -> int:
        with store.engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(Metrics)) or 0

    enqueue(store, place.settings, requested("", trial))
    submit(store, place, trial.id)
    with directory.lock():
        begin(directory)
        collect(store, place.settings)
        directory.append_event("train", step=1, loss=0.5, lr=0.1)
        collect(store, place.settings)
        assert points() == 0
        collect(store, place.settings, thorough=True)
        assert points() == 2


def test_status_names_the_reasons_of_failed_trials_most_frequent_first() -> None:
    reasons = {"1": "ValueError: one", "2": "a " * 300, "3": "a " * 300, **{f"x{n}": f"other {n}" for n in range(6)}}
    first, second, *_, last = explain_failed(reasons)
    assert first.startswith("2 trials failed: a a a")
    assert first.endswith(" … (`dropbench logs 2`)")
    assert len(first) < 260
    assert second == "1 trial failed: ValueError: one (`dropbench logs 1`)"
    assert last == "3 trials failed for other reasons."
