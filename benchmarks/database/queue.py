"""Measure the queue and the index of results, with a million trials and ten million metric rows, against fixed limits.

``DROPBENCH_BENCHMARK_TRIALS=10000`` makes it smaller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.database import campaign
from benchmarks.measure import Measurement, repeat_within, within
from dropbench.db.queries.results import results
from dropbench.db.store.store import Store, open_store
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.status import read_status

TRIALS, ACTIVE = 1_000_000, 1000
ENQUEUED_PER_SECOND, STATUS_SECONDS, RESULTS_SECONDS = 10_000, 1.0, 3.0
GROUP_BY = ["regularizer"]


def queue() -> list[Measurement]:
    """Measure in a temporary folder, which takes some gigabytes for a while."""
    with TemporaryDirectory() as folder:
        return at_scale(Path(folder), int(os.environ.get("DROPBENCH_BENCHMARK_TRIALS", TRIALS)))


def at_scale(folder: Path, count: int) -> list[Measurement]:
    """Measure one database, from its first trial until all have results."""
    settings = Settings(runs=folder / "runs", database=f"sqlite:///{folder}/queue.db")
    settings.runs.mkdir()
    with open_store(settings.database) as store:
        enqueued, ids = enqueue(store, count)
        rows = [enqueued, status(store, settings, f"{count:,} trials")]
        campaign.activate(store, settings, ids[:: max(1, count // ACTIVE)][:ACTIVE])
        metric_rows = campaign.finish(store)
        active = sum(1 for _ in settings.runs.iterdir())
        rows.append(status(store, settings, f"{count:,} trials, {active:,} of them active"))
        name = f"results --group-by {GROUP_BY[0]}, {metric_rows:,} metric rows"
        rows.append(repeat_within(name, RESULTS_SECONDS, lambda: results(store, group_by=GROUP_BY)))
    for words, limit_s in ((["status"], STATUS_SECONDS), (["results", "--group-by", *GROUP_BY], RESULTS_SECONDS)):
        command = campaign.command(settings, *words)
        rows.append(repeat_within(f"dropbench {' '.join(words)}, the whole process", limit_s, command))
    return rows


def enqueue(store: Store, count: int) -> tuple[Measurement, list[str]]:
    """Enqueue a campaign in one call, which computes the ids; the time to create the trials is subtracted."""
    creating = [0.0]
    start = time.perf_counter()
    ids = store.enqueue(timed(campaign.trials(count), creating)).added
    seconds = time.perf_counter() - start
    without = seconds - creating[0]
    row = within(f"enqueueing {count:,} trials", count / ENQUEUED_PER_SECOND, [without])
    row.detail.update(per_second=round(count / without), per_second_with_creation=round(count / seconds))
    return row, ids


def status(store: Store, settings: Settings, of: str) -> Measurement:
    """Measure the query of `dropbench status` on an open database."""
    return repeat_within(f"status, {of}", STATUS_SECONDS, lambda: read_status(store, settings))


def timed(trials: Iterable[Trial], spent: list[float]) -> Iterator[Trial]:
    """Yield the trials, and add the seconds to create them to ``spent[0]``."""
    iterator = iter(trials)
    while True:
        start = time.perf_counter()
        trial = next(iterator, None)
        spent[0] += time.perf_counter() - start
        if trial is None:
            return
        yield trial
