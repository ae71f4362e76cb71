"""Many processes on the same database: none starves, no row is lost, no trial is claimed twice.

``STRESS_SECONDS=60`` lets them run for a minute; ``pytest -s`` then prints their rates.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from dropbench.db.queries.results import results
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Attempts, Metrics
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, SubmissionRow, open_store
from dropbench.harness.trials.trial import Trial
from tests.db.records import make_trial
from tests.patience import PATIENCE
from tests.requests import named

SECONDS = float(os.environ.get("STRESS_SECONDS", "6"))
MIN_TURNS = 5
"""Operations of each process, however slow the machine is."""
ENQUEUE, COLLECT, QUERY = 6, 6, 4
"""Processes of each kind."""
SHARED = 5
"""Trials of a batch that every process requests; the others are requested by a single process."""
MAX_QUEUED = 1000
"""Queued trials above which none is added."""

Log = dict[str, Any]


class Watch:
    """Iterate until the time is up, counting timed operations and keeping the longest duration."""

    def __init__(self) -> None:
        self.end = time.monotonic() + SECONDS
        self.done, self.longest = 0, 0.0

    def __iter__(self) -> Iterator[int]:
        while time.monotonic() < self.end or self.done < MIN_TURNS:
            yield self.done

    @contextmanager
    def timed(self) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.longest = max(self.longest, time.monotonic() - start)
        self.done += 1


def final(id: str) -> float:
    """Return the expected final value of a trial."""
    return int(id, 16) / 16**12


def enqueue(store: Store, number: int, watch: Watch) -> Log:
    requested: dict[str, str] = {}
    for batch in watch:
        if store.counts()["queued"] > MAX_QUEUED:
            time.sleep(0.01)
            continue
        trials = [make_trial(seed, data="shared", overrides={"batch": batch}) for seed in range(SHARED)]
        trials += [make_trial(seed, data=f"data-{number}", overrides={"batch": batch}) for seed in range(20)]
        with watch.timed():
            store.enqueue(trials, [named(f"suite-{number}", *trials)])
        requested |= {trial.id: f"suite-{number}" for trial in trials}
    return {"asked": requested}


def collect(store: Store, number: int, watch: Watch) -> Log:
    rng = random.Random(number)
    claimed: list[str] = []
    for turn in watch:
        with watch.timed():
            ids = store.find("queued")
            name = f"{number:02d}{turn:030d}"
            mine = store.intend(rng.sample(ids, min(10, len(ids))), SubmissionRow(name, "local", "/", "here", number))
            if mine:
                store.submitted(name, f"job-{turn}")
                trials = store.trials(mine).values()
                store.record([RunRecord(trial, "running") for trial in trials])
                store.record([succeeded(trial, number) for trial in trials])
                store.end_submission(name)
        claimed += mine
    return {"claimed": claimed}


def succeeded(trial: Trial, number: int) -> RunRecord:
    curve = [("train/loss", step, step + final(trial.id)) for step in range(5)]
    metrics = [*curve, ("test/accuracy", -1, final(trial.id)), ("test/loss", -1, None)]
    attempt = {"number": 1, "state": "succeeded", "pid": number}
    return RunRecord(trial, "succeeded", None, [attempt], metrics)


def query(store: Store, number: int, watch: Watch) -> Log:
    """Check that counts never decrease between queries, and that each query is consistent."""
    trials, finished = 0, 0
    for _ in watch:
        with watch.timed():
            now = sum(store.counts().values())
            assert now >= trials
            trials = now
            rows = results(store, group_by=["data"])
            now = sum(row["n"] for row in rows if row["metric"] == "accuracy")
            assert now >= finished
            finished = now
            assert all(0 <= row["mean"] < 1 for row in rows if row["n"])
            assert len(store.find("succeeded")) >= finished
            suite = f"suite-{number % ENQUEUE}"
            for row in results(store, [f"suite={suite}", f"data=data-{number % ENQUEUE}"])[:50]:
                assert row["suite"] == suite
    return {"looked": watch.done}


def work(kind: Callable[..., Log], url: str, number: int) -> Log:
    """Return what a process did."""
    watch = Watch()
    with open_store(url) as store:
        log = kind(store, number, watch)
    return {**log, "done": watch.done, "longest": watch.longest}


def make_database(url: str) -> None:
    open_store(url).close()


def processes(number: int) -> ProcessPoolExecutor:
    """Return processes that work at the same time; one that fails ends the test with its traceback."""
    return ProcessPoolExecutor(number, multiprocessing.get_context("fork"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_nothing_lost_and_nothing_claimed_twice(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    where: str = request.getfixturevalue("url") if kind == "sqlite" else request.getfixturevalue("postgresql")()
    open_store(where).close()
    kinds = [enqueue] * ENQUEUE + [collect] * COLLECT + [query] * QUERY
    with processes(len(kinds)) as pool:
        logs = list(pool.map(work, kinds, repeat(where), range(len(kinds)), timeout=SECONDS + PATIENCE))
    requested: dict[str, set[str]] = {}
    for log in logs:
        for id, suite in log.get("asked", {}).items():
            requested.setdefault(id, set()).add(suite)
    claimed = Counter(id for log in logs for id in log.get("claimed", ()))
    assert claimed
    assert set(claimed.values()) == {1}
    with open_store(where) as store:
        assert set(store.states()) == set(requested)
        suites = store.suites([*requested])
        assert {id: {*names} for id, names in suites.items()} == requested
        assert set(store.find("succeeded")) == set(claimed)
        counts = store.counts()
        assert counts["queued"] + counts["succeeded"] == len(requested)
        assert store.open_submissions() == []
        with reading(store.engine) as connection:
            columns = Metrics.c.trial_id, Metrics.c.name, Metrics.c.step, Metrics.c.value
            metrics = {(id, name, step): value for id, name, step, value in connection.execute(select(*columns))}
            attempts = connection.execute(select(Attempts.c.trial_id, Attempts.c.number, Attempts.c.pid)).all()
        expected = {(id, "train/loss", step): step + final(id) for id in claimed for step in range(5)}
        expected |= {(id, "test/accuracy", -1): final(id) for id in claimed}
        assert metrics == expected | {(id, "test/loss", -1): None for id in claimed}
        by_process = {id: number for number, log in enumerate(logs) for id in log.get("claimed", ())}
        assert {id: pid for id, _, pid in attempts} == by_process
        assert len(attempts) == len(claimed)
        (row,) = (row for row in results(store, group_by=["task"]) if row["metric"] == "accuracy")
        assert row["n"] == len(claimed)
        assert row["mean"] == pytest.approx(math.fsum(map(final, claimed)) / len(claimed), rel=1e-12)
    turns = {does.__name__: [log for log, other in zip(logs, kinds, strict=True) if other is does] for does in kinds}
    summary = ", ".join(
        f"{name} {sum(log['done'] for log in some)} times, {max(log['longest'] for log in some):.2f} s at most"
        for name, some in turns.items()
    )
    print(f"\n{kind}, {SECONDS:g} s, {len(kinds)} processes: {len(requested)} trials, {len(claimed)} run; {summary}")


def test_many_may_make_the_database_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    with processes(6) as pool:
        list(pool.map(make_database, [url] * 6, timeout=PATIENCE))
    with open_store(url, create=False) as store, reading(store.engine) as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
