"""A campaign on a simulated SLURM of a thousand nodes: what the queue does to SLURM, and what it takes by itself.

Dispatch, collect and retry are the real ones, called every four hours of the cluster's time as a cron job calls
`dropbench submit`; the nodes, their faults and the answers of SLURM's programs are made up, in virtual time. What a
trial takes, and what becomes of it, depends on its id alone.

    python -m benchmarks.cluster [--trials 1000000] [--nodes 1000] [--every 4]
"""

from __future__ import annotations

import contextlib
import os
import resource
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from benchmarks.cluster.nodes import Cluster
from benchmarks.database import campaign
from db.store.store import Store, open_store
from harness.settings import Settings
from harness.trials.trial import FINAL_STATES
from jobs.queue.reconcile import collect
from jobs.queue.status import read_status
from jobs.slurm import client, job_states
from jobs.slurm.profile import Profile
from jobs.submission.dispatch import Plan
from jobs.submission.submit import submit

HOUR = 3600.0
EVERY = 4 * HOUR
"""From one call of the cron job to the next."""

PACK = 10
"""Trials a job."""


@dataclass
class Report:
    """The cost of a campaign.

    Attributes:
        seconds: of each kind of work, one a time; "nodes" is what these would have done themselves.
        calls: of SLURM's programs.
        hours: of the cluster.
    """

    trials: int
    nodes: int
    seconds: dict[str, list[float]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    states: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    hours: float = 0.0
    most_calls: int = 0
    database_bytes: int = 0
    peak_bytes: int = 0

    def lines(self) -> Iterator[str]:
        """For people."""
        calls = sum(self.calls.values())
        yield f"{self.trials:,} trials, {self.nodes:,} nodes, {self.hours:,.0f} hours of the cluster's time"
        yield f"states: {_listed(self.states)}"
        yield f"attempts: {self.attempts:,}; of them {_listed(self.faults)}"
        a_minute = calls / (60 * self.hours)
        yield f"calls to SLURM: {_listed(self.calls)}: {a_minute:.2f} a minute, {self.most_calls} at a time at most"
        for name, seconds in self.seconds.items():
            middle, most, all = statistics.median(seconds), max(seconds), sum(seconds)
            yield f"{name}: {len(seconds)} times; seconds: median {middle:.2f}, most {most:.2f}, in all {all:.0f}"
        sizes = self.database_bytes / 2**20, self.peak_bytes / 2**20
        yield "database: {:,.0f} MiB; memory of this process: {:,.0f} MiB".format(*sizes)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)


def run(folder: Path, trials: int, nodes: int, every: float = EVERY, progress: bool = False) -> Report:
    """A campaign from its first trial to its last, in `folder`, which takes some gigabytes for each 100,000 trials.

    Args:
        folder: an empty one.
        trials: how many.
        nodes: how many; each runs one job at a time.
        every: seconds of the cluster's time from one call to the next.
        progress: say at each call how many trials have succeeded.
    """
    settings = Settings(runs=folder / "runs", database=f"sqlite:///{folder}/queue.db")
    settings.runs.mkdir(parents=True)
    cluster, report = Cluster(settings.runs, nodes), Report(trials, nodes)
    plan = Plan("slurm", profile=Profile(time=60 * 24, trials_per_job=PACK))
    with _in_place(cluster, folder / "bin"), open_store(settings.database) as store:
        with _timed(report, "enqueue"):
            store.enqueue((trial, "campaign") for trial in campaign.trials(trials))
        while True:
            before = sum(cluster.calls.values())
            with _timed(report, "collect"):
                collect(store, settings)
            with _timed(report, "submit"):
                waiting = store.find("queued")
                if waiting:
                    with contextlib.suppress(client.SubmissionRefusedError):  # not one job more
                        submit(store, settings, waiting, plan)
            report.most_calls = max(report.most_calls, sum(cluster.calls.values()) - before)
            with _timed(report, "status"):
                counts = read_status(store, settings).counts
            if progress:
                print(
                    f"{cluster.clock / HOUR:6.0f} h  {counts['succeeded']:9,} of {trials:,}",
                    file=sys.stderr,
                    flush=True,
                )
            if all(state in FINAL_STATES for state, count in counts.items() if count):
                break
            with _timed(report, "nodes"):
                cluster.advance(every)
        report.states = {str(state): count for state, count in store.counts().items()}
        report.attempts = _count(store)
    report.calls, report.faults, report.hours = cluster.calls, cluster.faults, cluster.clock / HOUR
    report.database_bytes = sum(file.stat().st_size for file in folder.glob("queue.db*"))
    report.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return report


@contextlib.contextmanager
def _in_place(cluster: Cluster, bin: Path) -> Iterator[None]:
    """The cluster in the place of SLURM's programs, and of the clock; `bin` is for files that are looked for."""
    bin.mkdir()
    for program in ("srun", "sbatch", "squeue"):
        (bin / program).touch(mode=0o755)
    with (
        mock.patch.dict(os.environ, {"PATH": f"{bin}:{os.environ['PATH']}"}),
        mock.patch.object(client, "run_command", cluster.run_command),
        mock.patch.object(job_states, "utc_now_iso", cluster.utc_now_iso),
        mock.patch.object(client, "sleep", cluster.advance),
    ):
        yield


@contextlib.contextmanager
def _timed(report: Report, name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    report.seconds.setdefault(name, []).append(time.perf_counter() - start)


def _count(store: Store) -> int:
    from sqlalchemy import func, select

    from db.schema.connection import reading
    from db.schema.tables import Attempts

    with reading(store.engine) as connection:
        return connection.scalar(select(func.count()).select_from(Attempts)) or 0
