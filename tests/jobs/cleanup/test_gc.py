"""Garbage collection next to workers, with resumed trials, as a dry run, and when it is killed."""

from __future__ import annotations

import fcntl
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dropbench.db.store.store import Store, SubmissionRow
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.cleanup.gc import gc
from dropbench.jobs.queue.operations import retry
from dropbench.jobs.worker import slots
from dropbench.jobs.worker.attempt import Attempt
from dropbench.jobs.worker.worker import Worker
from tests.jobs.cleanup.files import Work, grow_old, kinds, names, read_permanent
from tests.jobs.workplace import Tiny, Workplace
from tests.patience import PATIENCE, wait


def undisturbed(place: Workplace, trial: Trial) -> dict[str, Any] | None:
    """Return the result of a trial that is trained in one go, elsewhere."""
    quiet = place.folder / "quiet"
    directory = RunDirectory.create(quiet, trial)
    payload = replace(place.settings, device="cpu").to_payload()
    Worker([str(directory.path)], payload, submission="s", folder=str(quiet), executor="local")()
    return directory.result()


@pytest.mark.slow
def test_a_failed_trial_resumes_and_one_whose_checkpoints_are_deleted_restarts(
    place: Workplace, store: Store, work: Work, tiny: Tiny
) -> None:
    trials = tiny(3)
    place.trouble.write_text("raise 25")
    work(trials)
    place.trouble.write_text("")
    work(trials[2:])  # failed trials are not queued
    assert store.counts()["failed"] == 3
    recent, old, _ = directories = [RunDirectory(place.runs / trial.id) for trial in trials]
    retry(store, place.settings, [trials[2].id])
    work(trials[2:])
    assert {id: row.state for id, row in store.states().items()}[trials[2].id] == "succeeded"
    for directory in directories[1:]:
        grow_old(directory.path)
    before = read_permanent(place.runs)
    expected = sum(file.stat().st_size for file in (old.path / "checkpoint").iterdir())
    freed = gc(store, place.settings)
    assert kinds(freed) == {"checkpoints": 3, "jobs": 4}, "two training states and the selected weights; pickles"
    assert freed.bytes["checkpoints"] == expected > 5000
    assert names(old.path / "checkpoint") == []
    assert len(names(recent.path / "checkpoint")) == 3
    assert read_permanent(place.runs) == before
    assert kinds(gc(store, place.settings)) == {}, "a second collection finds nothing"

    retry(store, place.settings, [trial.id for trial in trials])
    work(trials[:2])
    assert store.counts()["succeeded"] == 3
    resumed = [[event["step"] for event in run.events() if event["event"] == "resume"] for run in (recent, old)]
    assert resumed == [[0, 24], [0, 0]]
    for directory in directories:
        assert undisturbed(place, directory.trial()) == directory.result()
        assert [attempt["state"] for attempt in directory.attempts()] == ["failed", "succeeded"]


def test_a_dry_run_reports_the_same_and_changes_nothing(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    trials = tiny(3)
    place.trouble.write_text("raise 25 1")
    work(trials[:2])
    # The third trial's submission has ended, which is not collected yet.
    folder = slots.jobs_folder(place.runs) / ("f" * 32)
    folder.mkdir()
    (folder / "9_submitted.pkl").touch()
    store.enqueue([trials[2]])
    store.intend([trials[2].id], SubmissionRow(folder.name, "local", str(folder), "here", 1))
    grow_old(place.runs)
    before = {file: file.read_bytes() for file in place.runs.rglob("*") if file.is_file()}
    states = store.states()
    planned = gc(store, place.settings, weights=True, dry_run=True)
    assert {file: file.read_bytes() for file in place.runs.rglob("*") if file.is_file()} == before
    assert store.states() == states
    done = gc(store, place.settings, weights=True)
    assert kinds(done) == kinds(planned) == {"weights": 1, "checkpoints": 3, "jobs": 4}
    assert done.bytes == planned.bytes
    assert planned.render().splitlines()[-1].endswith(" in      8 files would be freed")
    assert done.render().splitlines()[-1].endswith(" in      8 files freed")


def test_busy_run_directories_are_skipped(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
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
    held = slots.jobs_folder(place.runs) / "places" / f"{submission.id}.0.here"
    folder = slots.jobs_folder(place.runs) / submission.id
    folder.mkdir()
    (folder / "1_submitted.pkl").touch()
    # A worker of another database on another machine runs the third, as only its files show.
    Attempt(directories[2], submission="s9", executor="slurm", job_id="1")
    grow_old(place.runs)
    before = [names(directory.path / "checkpoint") for directory in directories]
    with open(held, "wb") as file, directories[1].lock() as locked:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert locked
        assert gc(store, place.settings, dry_run=True).busy == 1
        freed = gc(store, place.settings)
        assert freed.busy == 1
        after = [names(directory.path / "checkpoint") for directory in directories]
    assert after == [*before[:3], []]
    assert store.states(ids[:1])[ids[0]].state == "submitted"
    assert names(folder) == ["1_submitted.pkl"]
    assert held.exists()
    assert "Skipped 1 run directory that workers hold." in freed.render()


@pytest.mark.slow
def test_the_command_next_to_a_live_worker(place: Workplace) -> None:
    place.trouble.write_text("raise 5 1")
    place.pause.write_text("2")
    process = place.start("run", "tiny.yaml", "--parallel", "1", "--checkpoint-seconds", "0")
    wait(place.running, "a trial in training")
    done = place.ok("gc", "--older-than", "0", "--weights", "--json")
    report = json.loads(done.stdout)
    assert list(report) == ["dry_run", "files", "bytes", "kinds", "busy", "left_out"]
    assert report["left_out"] == []
    place.pause.write_text("0")
    process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, "the trials of seed 1 fail"
    assert [len(directory.attempts()) for directory in place.directories()] == [1] * 4, "no attempt was disturbed"
    planned = place.call("gc", "failed", "--older-than", "0", "--dry-run")
    assert planned.stdout.splitlines()[-1].endswith("files would be freed"), planned.stderr
    assert "checkpoints of failed, cancelled and skipped trials" in planned.stdout
    wrong = place.call("gc", "faild")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (2, "", 1)
    assert "did you mean failed" in wrong.stderr


@pytest.mark.slow
@pytest.mark.parametrize("moment", range(3))
def test_a_killed_collection_leaves_trials_that_can_resume(
    moment: int, place: Workplace, store: Store, work: Work, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at any point, the trial resumes to the same result as an undisturbed one."""
    (trial,) = tiny()
    deleted: list[str] = []
    place.trouble.write_text("raise 25")
    work([trial])
    place.trouble.write_text("")
    directory = RunDirectory(place.runs / trial.id)
    grow_old(directory.path)
    unlink = Path.unlink

    def unlink_or_exit(file: Path, **options: bool) -> None:
        if file.parent.name == "checkpoint":
            if len(deleted) == moment:
                raise SystemExit
            deleted.append(file.name)
        unlink(file, **options)

    monkeypatch.setattr(Path, "unlink", unlink_or_exit)
    with pytest.raises(SystemExit):
        gc(store, place.settings, [trial.id])
    monkeypatch.setattr(Path, "unlink", unlink)
    assert len(names(directory.path / "checkpoint")) == 3 - moment
    retry(store, place.settings, [trial.id])
    work([trial])
    first, second = (event for event in directory.events() if event["event"] == "resume")
    assert (first["step"], second["step"]) == (0, 24 if moment < 2 else 0)
    assert [event for event in directory.events() if event["event"] == "damaged"] == []
    assert undisturbed(place, trial) == directory.result()
    assert store.states()[trial.id].state == "succeeded"
