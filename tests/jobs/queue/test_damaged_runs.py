"""A damaged run directory is the trouble of its trial alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.db.store.rebuild import rebuild
from dropbench.db.store.store import Store, SubmissionRow, open_store
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.jobs.cleanup.gc import gc
from dropbench.jobs.queue.operations import cancel, enqueue, retry
from dropbench.jobs.queue.reconcile import collect
from dropbench.jobs.queue.status import activity
from dropbench.jobs.submission.dispatch import _queued
from dropbench.jobs.worker.attempt import Attempt
from tests.damage import DAMAGES, age, damage
from tests.jobs.workplace import Tiny, Workplace
from tests.requests import requested

FILES = (
    *("lease/1", "lease", "attempts/1.json", "attempts", "events.jsonl", "trial.json", "result.json"),
    *("cancelled", "lock", "log.txt", "environment.json", "checkpoint", "checkpoint/step-last.pt"),
)

FAST = ("foreign", "folder", "loop")


@pytest.fixture
def campaign(place: Workplace, store: Store, tiny: Tiny) -> list[RunDirectory]:
    """Submitted trials, of which every second one has succeeded and the others were killed."""
    trials = tiny(2 * len(FILES) + 1)
    enqueue(store, place.settings, requested("tiny", *trials))
    store.intend([trial.id for trial in trials], SubmissionRow("s1", "local", "/jobs", "here", 1))
    directories = [RunDirectory.create(place.runs, trial) for trial in trials]
    for number, directory in enumerate(directories):
        with directory.lock():
            attempt = Attempt(directory, submission="s1", executor="local", job_id=None)
            directory.append_event("train", step=1, loss=1.0)
            if number % 2 == 0:
                directory.write_result({"metrics": {"test/accuracy": 88.4}})
                attempt.finish("succeeded")
    return directories


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in FAST else pytest.mark.slow) for kind in DAMAGES]
)
def test_everything_else_is_collected(
    place: Workplace, store: Store, campaign: list[RunDirectory], kind: str, tmp_path: Path
) -> None:
    files = [damage(directory.path / FILES[number // 2], kind) for number, directory in enumerate(campaign[:-1])]
    for directory in campaign:
        age(directory.path)
    seen = activity(store, place.settings)
    assert seen.states[campaign[-1].id] == ("succeeded", None)
    collect(store, place.settings, thorough=True)
    rows = store.states()
    assert rows[campaign[-1].id].state == "succeeded"
    assert {row.state for row in rows.values()} <= {"queued", "failed", "succeeded", "cancelled"}
    for file, directory in zip(files, campaign, strict=False):
        row = rows[directory.id]
        if row.state == "failed":
            assert str(directory.path) in (row.reason or "")
            assert file.parent.name in (row.reason or "")
            assert file.name in (row.reason or "") or file.parent.name == "attempts"
    broken = {directory.id for file, directory in zip(files, campaign, strict=False) if file.name == "trial.json"}
    assert all(rows[id].state == "failed" for id in broken)

    # The other commands go on, too.
    ids = list(rows)
    queued = [id for id in ids if store.states([id])[id].state == "queued"]
    assert set(_queued(store, place.settings, queued, 100)) <= set(queued)
    retry(store, place.settings, ids)
    enqueue(store, place.settings, requested("again", *store.trials(ids).values()))
    cancel(store, place.settings, [id for id in ids if store.states([id])[id].state == "submitted"])
    gc(store, place.settings)
    with open_store(f"sqlite:///{tmp_path}/rebuilt.db") as rebuilt:
        summary = rebuild(rebuilt, place.runs)
        assert rebuilt.states()[campaign[-1].id].state == "succeeded"
        left_out = [line for line in summary.damaged if "/checkpoint/" not in line]
        assert summary.recorded + len(left_out) == len(campaign)
