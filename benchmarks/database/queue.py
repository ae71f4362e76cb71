"""The queue and the index of results: a million trials and ten million metric rows, against fixed limits.

``DROPBENCH_BENCHMARK_TRIALS=10000`` makes it smaller. `benchmarks.database.stores` puts it beside Optuna and MLflow.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.database import campaign, stores
from benchmarks.measure import Measurement, process
from db.queries.results import results
from db.store.store import Store, open_store
from harness.settings import Settings
from harness.trials.trial import Trial
from jobs.queue.status import read_status

TRIALS, ACTIVE, ROUNDS = 1_000_000, 1000, 5
ENQUEUED_A_SECOND, STATUS_SECONDS, RESULTS_SECONDS = 10_000, 1.0, 3.0
GROUP_BY = ["regularizer"]


def queue() -> list[Measurement]:
    """In a temporary folder, which takes some gigabytes for a while."""
    count = int(os.environ.get("DROPBENCH_BENCHMARK_TRIALS", TRIALS))
    with TemporaryDirectory() as folder:
        return [*at_scale(Path(folder), count), *stores.beside_peers(Path(folder))]


def at_scale(folder: Path, count: int) -> list[Measurement]:
    """One database, from its first trial until all have results."""
    settings = Settings(runs=folder / "runs", database=f"sqlite:///{folder}/queue.db")
    settings.runs.mkdir()
    with open_store(settings.database) as store:
        found, ids = enqueue(store, count)
        found.append(status(store, settings, f"{count:,} trials"))
        campaign.activate(store, settings, ids[:: max(1, count // ACTIVE)][:ACTIVE])
        rows = campaign.finish(store)
        active = sum(1 for _ in settings.runs.iterdir())
        found.append(status(store, settings, f"{count:,} trials, {active:,} of them active"))
        name = f"results --group-by {GROUP_BY[0]}, {rows:,} metric rows"
        found.append(repeated(name, RESULTS_SECONDS, lambda: results(store, group_by=GROUP_BY)))
    places = f"DROPBENCH_DB={settings.database}", f"DROPBENCH_RUNS={settings.runs}"
    for words, limit in ((["status"], STATUS_SECONDS), (["results", "--group-by", *GROUP_BY], RESULTS_SECONDS)):
        command = process("env", *places, sys.executable, "-m", "harness.cli.main", *words)
        found.append(repeated(f"dropbench {' '.join(words)}, the whole process", limit, command))
    return found


def enqueue(store: Store, count: int) -> tuple[list[Measurement], list[str]]:
    """Enqueue a campaign at one go; the ids are worked out in it, the making of the trials is measured apart."""
    making = [0.0]
    start = time.perf_counter()
    ids = store.enqueue((trial, "campaign") for trial in timed(campaign.trials(count), making)).added
    seconds = time.perf_counter() - start
    without = seconds - making[0]
    measured = judged(f"enqueueing {count:,} trials", [without], count / ENQUEUED_A_SECOND)
    rates = {"a_second": round(count / without), "a_second_with_making_them": round(count / seconds)}
    measured.detail.update(rates)
    return [measured], ids


def status(store: Store, settings: Settings, of: str) -> Measurement:
    """Run the query of `dropbench status` on an open database."""
    return repeated(f"status, {of}", STATUS_SECONDS, lambda: read_status(store, settings))


def repeated(name: str, limit: float, call: Callable[[], object]) -> Measurement:
    """The median of some calls, in seconds, against a limit."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return judged(name, seconds, limit)


def judged(name: str, seconds: Sequence[float], limit: float) -> Measurement:
    """Measured seconds against those that it may take, in the place of a peer."""
    taken = statistics.median(seconds)
    sides = round(1000 * taken, 1), round(1000 * limit, 1)
    return Measurement(name, f"{limit:g} s", round(taken / limit, 3), 1.0, *sides, detail={"rounds": len(seconds)})


def timed(trials: Iterable[Trial], spent: list[float]) -> Iterator[Trial]:
    """The same trials; adds the seconds that making them takes to ``spent[0]``."""
    iterator = iter(trials)
    while True:
        start = time.perf_counter()
        trial = next(iterator, None)
        spent[0] += time.perf_counter() - start
        if trial is None:
            return
        yield trial
