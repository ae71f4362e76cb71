"""Garbage: the files that are deleted from run directories and submission folders."""

from __future__ import annotations

import fcntl
import os
from dataclasses import replace

import pytest

from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.store import predictions_path
from dropbench.harness.runs.run_directory import CANCELLED, RunDirectory
from dropbench.harness.trials.trial import WeightsRef
from dropbench.jobs.cleanup.gc import gc
from dropbench.jobs.queue.operations import cancel, retry
from dropbench.jobs.submission.submission import ELEMENTS_FILE
from dropbench.jobs.worker import slots
from dropbench.jobs.worker.stop_requests import STOP_FILE
from tests.damage import damage
from tests.jobs.cleanup.files import Work, grow_old, kinds, names, read_permanent
from tests.jobs.workplace import Tiny, Workplace


def test_files_kept_of_a_trial_that_succeeded(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    first, second = tiny(2)
    work([first, second])
    checkpoint = RunDirectory(place.runs / first.id).path / "checkpoint"
    (weights,) = names(checkpoint)
    states = ("step-000000040.pt", "part-000000040.pt", "evaluation.pt")
    for name in states:  # left by a worker killed after writing its result
        (checkpoint / name).write_bytes(b"x")
    (checkpoint / ".weights-000000040.pt.abc").write_bytes(b"x")
    (checkpoint / "notes").write_bytes(b"a file of the user")
    predictions = predictions_path(checkpoint.parent, "test")
    predictions.parent.mkdir()
    for name in (predictions.name, f".{predictions.name}.abc"):
        (predictions.parent / name).write_bytes(b"x")
    draft = checkpoint.parent / "lease" / ".node-1"
    draft.touch()
    grow_old(place.runs)
    assert kinds(gc(store, place.settings)) == {"half-written": 3, "states": 3, "jobs": 3}
    assert not draft.exists()
    assert names(predictions.parent) == [predictions.name]
    assert names(checkpoint) == ["notes", weights]
    weights_ref = WeightsRef(path=str(checkpoint / weights), digest="0" * 64)
    store.enqueue([second.model_copy(update={"weights": weights_ref})])
    assert kinds(gc(store, place.settings, weights=True)) == {"weights": 1}, "another trial starts from the first one's"
    assert names(checkpoint) == ["notes", weights]
    assert names(place.runs / second.id / "checkpoint") == []
    assert store.counts()["succeeded"] == 2


def test_cancelled_skipped_queued_and_unknown_trials(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    trials = tiny(6)
    place.trouble.write_text("raise 5")
    work(trials)
    ids = [trial.id for trial in trials]
    retry(store, place.settings, ids[:4])
    cancel(store, place.settings, ids[:2])
    store.set_states({ids[2]: ("skipped", "no such data")})
    (place.runs / ids[4] / "trial.json").write_text("{")
    with store.engine.begin() as connection:
        for table, key in (
            ("attempts", "trial_id"),
            ("metrics", "trial_id"),
            ("trials", "id"),
        ):
            for id in ids[4:]:
                connection.exec_driver_sql(f"DELETE FROM {table} WHERE {key} = '{id}'")
    grow_old(place.runs)
    os.utime(place.runs / ids[1] / CANCELLED)  # cancelled today
    before = read_permanent(place.runs)
    gc(store, place.settings)
    kept = [bool(names(place.runs / id / "checkpoint")) for id in ids]
    assert kept == [False, True, False, True, False, False], "the second is recent, the fourth is queued"
    assert read_permanent(place.runs) == before
    (place.runs / ids[5] / "trial.json").unlink()
    (place.runs / ids[5] / "checkpoint" / "step-000000003.pt").write_bytes(b"x")
    assert kinds(gc(store, place.settings)) == {}, "written today"
    assert kinds(gc(store, place.settings, days=0)) == {"checkpoints": 2 + 1}


def test_filter_and_minimum_age(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    trials = tiny(2)
    place.trouble.write_text("raise 25")
    work(trials)
    grow_old(place.runs, 10)
    assert kinds(gc(store, place.settings, [trials[0].id])) == {}
    assert kinds(gc(store, place.settings, [trials[0].id, "0" * 12], days=9)) == {"checkpoints": 3}
    assert names(place.runs / trials[0].id / "checkpoint") == []
    assert len(names(place.runs / trials[1].id / "checkpoint")) == 3


def test_files_of_submissions(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    ended = work(tiny(1))
    home = slots.jobs_folder(place.runs)
    for id in ("a" * 32, "b" * 32, "c" * 32, "d" * 32):  # of another database
        (home / id).mkdir()
        (home / id / "5_submitted.pkl").write_bytes(b"x")
    (home / ("b" * 32) / ELEMENTS_FILE).write_text("{}")  # of a cluster that does not answer
    (home / ("c" * 32) / "folder").mkdir()
    (home / "places" / f"{'d' * 32}.0.here").touch()
    (home / "probe-1").write_bytes(b"x")
    (home / "mine").mkdir()
    (home / "mine" / "5_submitted.pkl").touch()
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    (home / ("9" * 32)).symlink_to(elsewhere)
    (home / ended / STOP_FILE).touch()
    assert kinds(gc(store, place.settings)) == {"jobs": 2}
    assert names(home / ended) == ["77_0_log.out", STOP_FILE], "logs may still be needed"
    grow_old(home)
    with open(home / "places" / f"{'d' * 32}.0.here", "rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert kinds(gc(store, place.settings)) == {"half-written": 1, "jobs": 2 + 1 + 1}
    assert names(home) == sorted(["9" * 32, "b" * 32, "c" * 32, "d" * 32, "lock", "mine", "places"])
    assert names(elsewhere) == ["precious"]
    assert names(home / ("c" * 32)) == ["folder"]


def test_unreadable_files_are_reported(place: Workplace, store: Store, work: Work, tiny: Tiny) -> None:
    trials = tiny(3)
    place.trouble.write_text("raise 5")
    work(trials)
    damage(place.runs / trials[0].id / "attempts" / "1.json", "folder")
    damage(place.runs / trials[1].id / "attempts" / "1.json", "list")
    grow_old(place.runs)
    freed = gc(store, place.settings)
    assert kinds(freed)["checkpoints"] == 2
    files = [f"{place.runs / trial.id}/attempts/1.json: " for trial in trials[:2]]
    assert sorted(line[: len(files[0])] for line in freed.left_out) == sorted(files)
    with pytest.raises(InputError, match="no such folder: expected the run directories"):
        gc(store, replace(place.settings, runs=place.folder / "nowhere"))
    assert not (place.folder / "nowhere").exists()


def test_half_written_copies_of_plug_ins(place: Workplace, store: Store) -> None:
    copies = place.runs / "plugins"
    for name in ("3fa9c01b2e4d", ".3fa9c01b2e4d.77d0e2b4", ".77d0e2b40000.3fa9c01b"):
        (copies / name / "parts").mkdir(parents=True)
        (copies / name / "parts" / "factor.py").touch()
    grow_old(copies / ".3fa9c01b2e4d.77d0e2b4")
    grow_old(copies / "3fa9c01b2e4d")
    assert kinds(gc(store, place.settings)) == {"half-written": 1}
    assert [file.parent.parent.name for file in sorted(copies.rglob("*.py"))] == [
        ".77d0e2b40000.3fa9c01b",
        "3fa9c01b2e4d",
    ]
