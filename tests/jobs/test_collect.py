"""What is made of a run directory, whatever state it was left in."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from db.store import Store, SubmissionRow, open_store
from harness.rundir import CANCELLED, RunDirectory
from harness.trial import Trial
from jobs import places
from jobs.attempts import Attempt, settle
from jobs.collect import adopt, collect, judge
from jobs.job import Job
from jobs.queue import cancel, enqueue, retry, revive
from jobs.retry import LIMIT
from jobs.slurm import View
from jobs.status import look_at

if TYPE_CHECKING:
    from tests.jobs.workplace import Workplace

ALIVE = Job("s1", alive=True)
DEAD = Job("s1", alive=False)
FAR = Job("s1", alive=True, view=View(answered=False))


@pytest.fixture
def trial(tiny: Callable[..., list[Trial]]) -> Trial:
    return tiny()[0]


@pytest.fixture
def directory(place: Workplace, trial: Trial) -> RunDirectory:
    return RunDirectory.create(place.runs, trial)


@pytest.fixture
def store(place: Workplace) -> Iterator[Store]:
    with open_store(place.database) as opened:
        yield opened


def begin(directory: RunDirectory, submission: str = "s1") -> Attempt:
    return Attempt(directory, submission=submission, executor="local", job_id=None)


def ended(state: str, submission: str = "s1") -> Callable[[RunDirectory], None]:
    return lambda directory: begin(directory, submission).finish(state, "a cause")


def nothing(directory: RunDirectory) -> None:
    """No attempt has begun."""


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
    ("left", "job", "state"),
    [
        (nothing, ALIVE, "submitted"),
        (nothing, DEAD, "queued"),
        (nothing, None, "queued"),
        (begin, ALIVE, "queued"),
        (begin, DEAD, "queued"),
        (begin, FAR, "running"),
        (done, ALIVE, "succeeded"),
        (done, DEAD, "succeeded"),
        (done, None, "succeeded"),
        (killed_after_the_result, DEAD, "succeeded"),
        (killed_after_the_result, FAR, "succeeded"),
        (ended("failed"), ALIVE, "failed"),
        (ended("failed"), DEAD, "failed"),
        (ended("failed"), None, "failed"),
        (ended("failed", "s0"), ALIVE, "submitted"),
        (ended("failed", "s0"), DEAD, "queued"),
        (ended("out_of_memory"), ALIVE, "queued"),
        (ended("preempted"), ALIVE, "submitted"),
        (ended("preempted"), DEAD, "queued"),
        (ended("interrupted"), ALIVE, "queued"),
        (ended("interrupted"), FAR, "submitted"),
        (ended("preempted"), FAR, "submitted"),
        (ended("failed"), FAR, "failed"),
        (ended("lost"), ALIVE, "queued"),
        (ended("cancelled"), DEAD, "cancelled"),
        (cancelled, ALIVE, "cancelled"),
        (cancelled, DEAD, "cancelled"),
    ],
)
def test_verdicts(directory: RunDirectory, left: Callable[[RunDirectory], Any], job: Job | None, state: str) -> None:
    left(directory)
    before = {file: file.read_bytes() for file in directory.path.rglob("*") if file.is_file()}
    verdict = judge(directory, job)
    assert verdict.state == state
    assert verdict.died == (left in (begin, killed_after_the_result) and not (job == FAR and state == "running"))
    assert before == {file: file.read_bytes() for file in directory.path.rglob("*") if file.is_file()}
    with directory.lock():
        assert judge(directory, job).state == "running", "whoever holds the lock is at it"


def submit(store: Store, place: Workplace, *ids: str, id: str = "s1") -> None:
    store.intend(ids, SubmissionRow(id=id, executor="local", folder=str(place.runs), host="here", pid=1))


def state(store: Store, trial: Trial) -> str:
    return store.states([trial.id])[trial.id].state


def test_a_submission_lives_and_dies(place: Workplace, store: Store, trial: Trial, directory: RunDirectory) -> None:
    enqueue(store, place.settings, [(trial, "tiny")])
    with places.keeper(place.runs):
        (slot,) = places.take(place.runs, "s1", wanted=1, limit=1)
    submit(store, place, trial.id)
    assert collect(store, place.settings) == {}
    with directory.lock():
        begin(directory)
        assert look_at(store, place.settings).to_json()["running"] == 1
        assert state(store, trial) == "submitted", "looking changes nothing"
        assert collect(store, place.settings) == {trial.id: "running"}
        assert collect(store, place.settings) == {}
    slot.close()
    assert look_at(store, place.settings).to_json()["queued"] == 1
    assert collect(store, place.settings) == {trial.id: "queued"}
    assert [attempt["state"] for attempt in directory.attempts()] == ["lost"]
    assert store.open_submissions() == []
    assert not list((places.home(place.runs) / "places").iterdir())


def test_intended_by_a_process_that_died(place: Workplace, store: Store, trial: Trial) -> None:
    enqueue(store, place.settings, [(trial, None)])
    submit(store, place, trial.id)
    assert collect(store, place.settings) == {trial.id: "queued"}
    assert store.open_submissions() == []


def test_always_dying_ends_as_failed_and_a_new_run_tries_again(
    place: Workplace, store: Store, trial: Trial, directory: RunDirectory
) -> None:
    enqueue(store, place.settings, [(trial, None)])
    for number in range(LIMIT):
        assert state(store, trial) == "queued"
        submit(store, place, trial.id, id=f"s{number}")
        begin(directory, f"s{number}")
        collect(store, place.settings)
    row = store.states([trial.id])[trial.id]
    assert row.state == "failed"
    assert "left no new checkpoint" in (row.reason or "")
    assert revive(store, [trial.id]) == [trial.id]
    store.set_states({trial.id: ("failed", "ZeroDivisionError")})
    assert revive(store, [trial.id]) == []
    assert retry(store, place.settings, [trial.id]) == [trial.id]
    assert state(store, trial) == "queued"


def test_a_database_that_was_lost(place: Workplace, store: Store, trial: Trial, directory: RunDirectory) -> None:
    done(directory)
    enqueue(store, place.settings, [(trial, "tiny")])
    assert state(store, trial) == "succeeded"
    assert adopt(store, place.settings, [trial.id]) == []
    assert directory.suites() == ["tiny"]
    store.set_states({trial.id: ("queued", None)})
    assert collect(store, place.settings) == {}
    assert collect(store, place.settings, thorough=True) == {trial.id: "succeeded"}


@pytest.mark.parametrize("content", ["", "{", '{"metrics": 3}', '{"metrics": {"test/accuracy": "high"}}'])
def test_a_damaged_result(place: Workplace, store: Store, trial: Trial, directory: RunDirectory, content: str) -> None:
    enqueue(store, place.settings, [(trial, None)])
    submit(store, place, trial.id)
    begin(directory).finish("succeeded")
    (directory.path / "result.json").write_text(content)
    collect(store, place.settings)
    row = store.states([trial.id])[trial.id]
    assert row.state == "failed"
    assert "result.json" in (row.reason or "")
    retry(store, place.settings, [trial.id])
    enqueue(store, place.settings, [(trial, None)])
    assert state(store, trial) == "failed", "the damage is still there"
    (directory.path / "result.json").unlink()
    retry(store, place.settings, [trial.id])
    enqueue(store, place.settings, [(trial, None)])
    assert state(store, trial) == "queued"


def test_a_run_directory_that_was_deleted(place: Workplace, store: Store, trial: Trial) -> None:
    enqueue(store, place.settings, [(trial, None)])
    submit(store, place, trial.id)
    place.runs.mkdir(exist_ok=True)
    assert collect(store, place.settings) == {trial.id: "queued"}
    assert state(store, trial) == "queued"


def test_cancelling(place: Workplace, store: Store, tiny: Callable[..., list[Trial]]) -> None:
    waiting, given, running, finished = trials = tiny(4)
    enqueue(store, place.settings, [(trial, None) for trial in trials])
    with places.keeper(place.runs):
        (slot,) = places.take(place.runs, "s1", wanted=1, limit=1)
    submit(store, place, given.id, running.id, finished.id)
    directories = [RunDirectory.create(place.runs, trial) for trial in (given, running, finished)]
    done(directories[2])
    with directories[1].lock():
        attempt = begin(directories[1])
        found = cancel(store, place.settings, [trial.id for trial in trials])
        assert sorted(found.waiting) == sorted([waiting.id, given.id])
        assert found.stopping == [running.id]
        attempt.finish("cancelled", "cancelled by the user")
    collect(store, place.settings)
    assert [state(store, trial) for trial in trials] == ["cancelled", "cancelled", "cancelled", "succeeded"]
    again = retry(store, place.settings, [trial.id for trial in trials])
    assert sorted(again) == sorted([waiting.id, given.id, running.id])
    assert not list(place.runs.glob(f"*/{CANCELLED}"))
    slot.close()


def test_curves_of_running_trials_only_when_asked(
    place: Workplace, store: Store, trial: Trial, directory: RunDirectory
) -> None:
    from sqlalchemy import func, select

    from db.models import Metrics

    def points() -> int:
        with store.engine.connect() as connection:
            return connection.scalar(select(func.count()).select_from(Metrics)) or 0

    enqueue(store, place.settings, [(trial, None)])
    submit(store, place, trial.id)
    with directory.lock():
        begin(directory)
        collect(store, place.settings)
        directory.append_event("train", step=1, loss=0.5, lr=0.1)
        collect(store, place.settings)
        assert points() == 0
        collect(store, place.settings, thorough=True)
        assert points() == 2


def test_settling_is_only_for_the_dead(place: Workplace, directory: RunDirectory) -> None:
    settle(directory)
    begin(directory).finish("failed", "a cause")
    before = json.dumps(directory.attempts())
    settle(directory)
    assert json.dumps(directory.attempts()) == before
    assert Path(directory.path / "attempts").is_dir()
