"""Several processes at one database: none waits in vain, nothing is lost, nothing is handed out twice."""

from __future__ import annotations

import json
import multiprocessing
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import func, select

from db.connection import reading
from db.models import Metrics
from db.snapshot import Snapshot
from db.store import SubmissionRow, open_store
from harness.trial import Trial

PROCESSES = 4
SECONDS = 3.0


def work(number: int, url: str, trials: list[Trial], out: Path) -> None:
    """Enqueue, claim and record what this process claimed, until the time is up; writes what it claimed."""
    try:
        rng = random.Random(number)
        claimed: list[str] = []
        by_id = {trial.id: trial for trial in trials}
        end = time.monotonic() + SECONDS
        with open_store(url) as store:
            while time.monotonic() < end:
                store.enqueue([(trial, f"suite-{number}") for trial in rng.sample(trials, 20)])
                ids = store.find("queued")
                name = f"{number:02d}{len(claimed):030d}"
                mine = store.intend(
                    rng.sample(ids, min(5, len(ids))), SubmissionRow(name, "local", "/", "here", number)
                )
                claimed += mine
                store.record(
                    [Snapshot(by_id[id], "succeeded", None, [], [], [("test/accuracy", -1, number)]) for id in mine]
                )
                store.counts()
        out.write_text(json.dumps(claimed), encoding="utf-8")
    except BaseException:
        out.write_text(traceback.format_exc(), encoding="utf-8")
        raise


def open_only(url: str, out: Path) -> None:
    try:
        open_store(url).close()
        out.write_text("opened", encoding="utf-8")
    except BaseException:
        out.write_text(traceback.format_exc(), encoding="utf-8")
        raise


def test_nothing_lost_and_nothing_claimed_twice(url: str, tmp_path: Path, make_trial: Callable[..., Trial]) -> None:
    trials = [make_trial(seed) for seed in range(400)]
    context = multiprocessing.get_context("fork")
    files = [tmp_path / f"{number}.json" for number in range(PROCESSES)]
    workers = [
        context.Process(target=work, args=(number, url, trials, file)) for number, file in enumerate(files)
    ]  # fmt: skip
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0] * PROCESSES, [file.read_text() for file in files]
    claimed = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    times = Counter(id for ids in claimed for id in ids)
    assert sum(times.values()) > 20
    assert set(times.values()) == {1}
    with open_store(url) as store:
        succeeded = set(store.find("succeeded"))
        assert succeeded == set(times)
        counts = store.counts()
        assert counts["submitted"] == 0
        assert counts["queued"] + counts["succeeded"] == len(store.states())
        with reading(store.engine) as connection:
            assert connection.scalar(select(func.count()).select_from(Metrics)) == len(succeeded)
        suites = store.suites(list(succeeded))
        assert all(suites[id] for id in succeeded)


def test_many_may_make_the_database_at_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    url = f"sqlite:///{tmp_path}/new.db"
    files = [tmp_path / f"{number}.txt" for number in range(6)]
    workers = [context.Process(target=open_only, args=(url, file)) for file in files]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [file.read_text(encoding="utf-8") for file in files] == ["opened"] * 6
    with open_store(url, create=False) as store, reading(store.engine) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
