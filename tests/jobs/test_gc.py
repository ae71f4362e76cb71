"""What is deleted and what never is, in run directories that the real engine made."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from db.store import Store, SubmissionRow, open_store
from harness.errors import InputError
from harness.rundir import CANCELLED, RunDirectory
from harness.trial import Trial, WeightsRef
from jobs import places
from jobs.attempts import Attempt
from jobs.collect import collect
from jobs.gc import Freed, gc
from jobs.job import ELEMENTS
from jobs.queue import cancel, retry
from jobs.wishes import STOP
from jobs.worker import Worker
from tests.patience import PATIENCE, wait

if TYPE_CHECKING:
    from tests.jobs.workplace import Workplace

Tiny = Callable[..., list[Trial]]
Work = Callable[[list[Trial]], str]
DAY = 86400


@pytest.fixture
def store(place: Workplace) -> Iterator[Store]:
    with open_store(place.database) as opened:
        yield opened


@pytest.fixture
def work(place: Workplace, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Runs queued trials in this process, with a checkpoint a step, as a submission whose id is returned."""
    import torch

    threads = torch.get_num_threads()
    monkeypatch.setenv("TINY_FAULT", str(place.trouble))
    number = iter(range(10, 100))

    def run(trials: list[Trial]) -> str:
        id = f"{next(number):032x}"
        folder = places.home(place.runs) / id
        folder.mkdir(parents=True)
        store.enqueue([(trial, "mine") for trial in trials])
        ids = store.intend([trial.id for trial in trials], SubmissionRow(id, "local", str(folder), "here", 1))
        store.submitted(id, "77")
        for name in ("77_submitted.pkl", "77_0_result.pkl", "77_0_log.out"):
            (folder / name).write_bytes(b"x" * 10)
        directories = [str(RunDirectory.create(place.runs, trial).path) for trial in trials if trial.id in ids]
        payload = replace(place.settings, device="cpu", checkpoint_seconds=0.0).to_payload()
        Worker(directories, payload, submission=id, folder=str(folder), executor="local")()
        collect(store, place.settings)
        return id

    yield run
    torch.set_num_threads(threads)


def grow_old(folder: Path, days: float = 40) -> None:
    then = time.time() - days * DAY
    for file in folder.rglob("*"):
        if file.is_file():
            os.utime(file, (then, then))


def contents(*folders: Path) -> dict[Path, bytes]:
    """All that must never be lost."""
    kept = (
        "trial.json",
        "suites.json",
        "result.json",
        "events.jsonl",
        "log.txt",
        "environment.json",
        "attempts",
        "analysis",
    )
    found = [file for folder in folders for file in folder.rglob("*") if file.is_file() and file.name[0] != "."]
    return {file: file.read_bytes() for file in found if file.name in kept or file.parent.name in kept}


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir()) if folder.exists() else []


def kinds(freed: Freed) -> dict[str, int]:
    return {kind: count for kind, count in freed.files.items() if count}


def test_a_failed_trial_goes_on_and_one_that_was_collected_starts_anew(
    place: Workplace, workplace: Callable[[Path], Workplace], store: Store, work: Work, tiny: Tiny
) -> None:
    trials = tiny(3)
    place.trouble.write_text("raise 25")
    work(trials)
    place.trouble.write_text("")
    work(trials[2:])  # what has failed is not queued
    assert store.counts()["failed"] == 3
    young, old, _ = directories = [RunDirectory(place.runs / trial.id) for trial in trials]
    retry(store, place.settings, [trials[2].id])
    work(trials[2:])
    assert {id: row.state for id, row in store.states().items()}[trials[2].id] == "succeeded"
    for directory in directories[1:]:
        grow_old(directory.path)
    before = contents(place.runs)
    expected = sum(file.stat().st_size for file in (old.path / "checkpoint").iterdir())
    freed = gc(store, place.settings)
    assert kinds(freed) == {"checkpoints": 3, "jobs": 4}, "two training states, the selected weights; pickles"
    assert freed.bytes["checkpoints"] == expected > 5000
    assert names(old.path / "checkpoint") == []
    assert len(names(young.path / "checkpoint")) == 3
    assert contents(place.runs) == before
    assert kinds(gc(store, place.settings)) == {}, "again there is nothing to do"

    retry(store, place.settings, [trial.id for trial in trials])
    work(trials[:2])
    assert store.counts()["succeeded"] == 3
    resumed = [[event["step"] for event in one.events() if event["event"] == "resume"] for one in (young, old)]
    assert resumed == [[0, 24], [0, 0]]
    quiet = workplace(place.folder / "quiet")
    for directory in directories:
        undisturbed = RunDirectory.create(quiet.runs, directory.trial())
        payload = replace(quiet.settings, device="cpu").to_payload()
        Worker([str(undisturbed.path)], payload, submission="s", folder=str(quiet.folder), executor="local")()
        assert undisturbed.result() == directory.result()
        assert [attempt["state"] for attempt in directory.attempts()] == ["failed", "succeeded"]


def test_what_is_kept_of_a_trial_that_succeeded(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    first, second = tiny(2)
    work([first, second])
    checkpoint = RunDirectory(place.runs / first.id).path / "checkpoint"
    (weights,) = names(checkpoint)
    for name in ("step-000000040.pt", "part-000000040.pt"):  # killed between the result and the end
        (checkpoint / name).write_bytes(b"x")
    (checkpoint / ".weights-000000040.pt.abc").write_bytes(b"x")
    (checkpoint / "notes").write_bytes(b"the user's own")
    grow_old(place.runs)
    assert kinds(gc(store, place.settings)) == {"half-written": 1, "states": 2, "jobs": 3}
    assert names(checkpoint) == ["notes", weights]
    given = WeightsRef(path=str(checkpoint / weights), digest="0" * 64)
    store.enqueue([(second.model_copy(update={"weights": given}), None)])
    assert kinds(gc(store, place.settings, weights=True)) == {"weights": 1}, "a trial begins with the first's"
    assert names(checkpoint) == ["notes", weights]
    assert names(place.runs / second.id / "checkpoint") == []
    assert store.counts()["succeeded"] == 2


def test_cancelled_skipped_queued_and_unknown_ones(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    trials = tiny(6)
    place.trouble.write_text("raise 5")
    work(trials)
    ids = [trial.id for trial in trials]
    retry(store, place.settings, ids[:4])
    cancel(store, place.settings, ids[:2])
    store.skip(trials[2], None, "no such data")
    (place.runs / ids[4] / "trial.json").write_text("{")
    with store.engine.begin() as connection:
        for table, key in (
            ("memberships", "trial_id"),
            ("attempts", "trial_id"),
            ("metrics", "trial_id"),
            ("trials", "id"),
        ):
            for id in ids[4:]:
                connection.exec_driver_sql(f"DELETE FROM {table} WHERE {key} = '{id}'")
    grow_old(place.runs)
    os.utime(place.runs / ids[1] / CANCELLED)  # cancelled today
    before = contents(place.runs)
    gc(store, place.settings)
    left = [bool(names(place.runs / id / "checkpoint")) for id in ids]
    assert left == [False, True, False, True, False, False], "the second is young, the fourth is queued"
    assert contents(place.runs) == before
    (place.runs / ids[5] / "trial.json").unlink()
    (place.runs / ids[5] / "checkpoint" / "step-000000003.pt").write_bytes(b"x")
    assert kinds(gc(store, place.settings)) == {}, "written today"
    assert kinds(gc(store, place.settings, days=0)) == {"checkpoints": 2 + 1}


def test_a_filter_and_the_age(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    trials = tiny(2)
    place.trouble.write_text("raise 25")
    work(trials)
    grow_old(place.runs, 10)
    assert kinds(gc(store, place.settings, [trials[0].id])) == {}
    assert kinds(gc(store, place.settings, [trials[0].id, "0" * 12], days=9)) == {"checkpoints": 3}
    assert names(place.runs / trials[0].id / "checkpoint") == []
    assert len(names(place.runs / trials[1].id / "checkpoint")) == 3


def test_a_dry_run_says_the_same_and_changes_nothing(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    trials = tiny(3)
    place.trouble.write_text("raise 25 1")
    work(trials[:2])
    # The third has a submission that ended a moment ago, and nobody has looked.
    folder = places.home(place.runs) / ("f" * 32)
    folder.mkdir()
    (folder / "9_submitted.pkl").touch()
    store.enqueue([(trials[2], None)])
    store.intend([trials[2].id], SubmissionRow(folder.name, "local", str(folder), "here", 1))
    grow_old(place.runs)
    before = {file: file.read_bytes() for file in place.runs.rglob("*") if file.is_file()}
    states = store.states()
    said = gc(store, place.settings, weights=True, dry_run=True)
    assert {file: file.read_bytes() for file in place.runs.rglob("*") if file.is_file()} == before
    assert store.states() == states
    done = gc(store, place.settings, weights=True)
    assert kinds(done) == kinds(said) == {"weights": 1, "checkpoints": 3, "jobs": 4}
    assert done.bytes == said.bytes
    assert said.render().splitlines()[-1].endswith(" in      8 files would be freed")
    assert done.render().splitlines()[-1].endswith(" in      8 files were freed")


def test_nothing_of_those_that_are_at_work(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    trials = tiny(4)
    place.trouble.write_text("raise 5")
    work(trials)
    ids = [trial.id for trial in trials]
    directories = [RunDirectory(place.runs / id) for id in ids]
    for directory in directories:
        (directory.path / "checkpoint" / ".half").write_bytes(b"x")
    retry(store, place.settings, ids[:1])
    submission = SubmissionRow("e" * 32, "local", "/", "here", 1)
    store.intend(ids[:1], submission)
    held = places.home(place.runs) / "places" / f"{submission.id}.0.here"
    folder = places.home(place.runs) / submission.id
    folder.mkdir()
    (folder / "1_submitted.pkl").touch()
    # The third is run by a worker of another database on another machine: its files alone tell.
    Attempt(directories[2], submission="s9", executor="slurm", job_id="1")
    grow_old(place.runs)
    before = [names(directory.path / "checkpoint") for directory in directories]
    with open(held, "wb") as file, directories[1].lock() as mine:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert mine
        assert gc(store, place.settings, dry_run=True).busy == 1
        freed = gc(store, place.settings)
        assert freed.busy == 1
        after = [names(directory.path / "checkpoint") for directory in directories]
    assert after == [*before[:3], []]
    assert store.states(ids[:1])[ids[0]].state == "submitted"
    assert names(folder) == ["1_submitted.pkl"]
    assert held.exists()
    assert "1 run directories are being worked at, and were left alone" in freed.render()


def test_submissions(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    ended = work(tiny(1))
    home = places.home(place.runs)
    for id in ("a" * 32, "b" * 32, "c" * 32, "d" * 32):  # of another database
        (home / id).mkdir()
        (home / id / "5_submitted.pkl").write_bytes(b"x")
    (home / ("b" * 32) / ELEMENTS).write_text("{}")  # a cluster's, which does not answer here
    (home / ("c" * 32) / "folder").mkdir()
    (home / "places" / f"{'d' * 32}.0.here").touch()
    (home / "probe-1").write_bytes(b"x")
    (home / "mine").mkdir()
    (home / "mine" / "5_submitted.pkl").touch()
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (home / ("9" * 32)).symlink_to(elsewhere)
    (home / ended / STOP).touch()
    assert kinds(gc(store, place.settings)) == {"jobs": 2}
    assert names(home / ended) == ["77_0_log.out", STOP], "logs may be asked for yet"
    grow_old(home)
    with open(home / "places" / f"{'d' * 32}.0.here", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert kinds(gc(store, place.settings)) == {"half-written": 1, "jobs": 2 + 1 + 1}
    assert names(home) == sorted(["9" * 32, "b" * 32, "c" * 32, "d" * 32, "lock", "mine", "places"])
    assert names(elsewhere) == ["precious"]
    assert names(home / ("c" * 32)) == ["folder"]


def test_what_cannot_be_read_or_deleted(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    trials = tiny(3)
    place.trouble.write_text("raise 5")
    work(trials)
    (place.runs / trials[0].id / "attempts" / "x.json").write_text("{}")
    (place.runs / trials[1].id / "attempts" / "1.json").write_text("[]")
    grow_old(place.runs)
    freed = gc(store, place.settings)
    assert kinds(freed)["checkpoints"] == 2
    assert sorted(freed.left_out) == sorted(f"{place.runs / one.id}: its attempts cannot be read" for one in trials[:2])
    with pytest.raises(InputError, match="no such folder: expected the run directories"):
        gc(store, replace(place.settings, runs=place.folder / "nowhere"))
    assert not (place.folder / "nowhere").exists()


def test_the_command_beside_a_live_worker(place: Workplace) -> None:
    place.trouble.write_text("raise 5 1")
    place.pause.write_text("2")
    process = place.start("run", "tiny.yaml", "--parallel", "1", "--checkpoint-seconds", "0")
    wait(place.running, "a trial in training")
    done = place.call("gc", "--older-than", "0", "--weights", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["dry_run", "files", "bytes", "kinds", "busy", "left_out"]
    assert found["left_out"] == []
    place.pause.write_text("0")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, "those of seed 1 fail"
    assert [len(one.attempts()) for one in place.directories()] == [1] * 4, "none was disturbed"
    said = place.call("gc", "failed", "--older-than", "0", "--dry-run")
    assert said.stdout.splitlines()[-1].endswith("files would be freed"), said.stderr
    assert "checkpoints of failed, cancelled and skipped trials" in said.stdout
    wrong = place.call("gc", "faild")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    assert "did you mean failed" in wrong.stderr


@pytest.mark.parametrize("moment", range(3))
def test_killed_on_its_way(
    moment: int, place: Workplace, store: Store, work: Work, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it is ended, the trial goes on, to the same result as one that nobody has disturbed."""
    (trial,) = tiny()
    deleted: list[str] = []
    place.trouble.write_text("raise 25")
    work([trial])
    place.trouble.write_text("")
    directory = RunDirectory(place.runs / trial.id)
    grow_old(directory.path)
    unlink = Path.unlink

    def ended(file: Path) -> None:
        if len(deleted) == moment:
            raise SystemExit
        deleted.append(file.name)
        unlink(file)

    monkeypatch.setattr(Path, "unlink", ended)
    with pytest.raises(SystemExit):
        gc(store, place.settings, [trial.id])
    monkeypatch.setattr(Path, "unlink", unlink)
    assert len(names(directory.path / "checkpoint")) == 3 - moment
    retry(store, place.settings, [trial.id])
    work([trial])
    first, second = (event for event in directory.events() if event["event"] == "resume")
    assert (first["step"], second["step"]) == (0, 24 if moment < 2 else 0)
    assert [event for event in directory.events() if event["event"] == "damaged"] == []
    (place.folder / "quiet").mkdir()
    undisturbed = RunDirectory.create(place.folder / "quiet", trial)
    payload = replace(place.settings, device="cpu").to_payload()
    Worker([str(undisturbed.path)], payload, submission="s", folder=str(place.folder / "quiet"), executor="local")()
    assert undisturbed.result() == directory.result()
    assert store.states()[trial.id].state == "succeeded"
