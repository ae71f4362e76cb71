"""Run a campaign on a simulated SLURM: the calls to SLURM, and the time of each command, against fixed limits.

Dispatch, collect and retry are the real ones, called every four hours of the cluster's time, as a cron job calls
`dropbench submit`. The nodes, their faults and the answers of SLURM's programs are simulated, in virtual time.

``DROPBENCH_BENCHMARK_CLUSTER=1000000`` sets the number of trials. A thousand trials per node take ten days of the
cluster's time at any size, and a million trials half an hour and 30 GB.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest import mock

from sqlalchemy import func, select

from benchmarks.cluster.nodes import Cluster
from benchmarks.database import campaign
from benchmarks.measure import Measurement, within
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Attempts
from dropbench.db.store.store import open_store
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import FINAL_STATES
from dropbench.jobs.queue.reconcile import collect
from dropbench.jobs.queue.status import read_status
from dropbench.jobs.slurm import client, job_states
from dropbench.jobs.slurm.profile import Profile
from dropbench.jobs.submission.dispatch import Plan
from dropbench.jobs.submission.submit import submit

TRIALS, TRIALS_PER_NODE, TRIALS_PER_JOB = 20_000, 1000, 10
HOUR = 3600.0
INTERVAL_S = 4 * HOUR
"""Virtual seconds between two calls of the cron job."""
LIMITS_S = {"enqueue": 200.0, "collect": 60.0, "submit": 60.0, "status": 10.0}
"""Largest acceptable medians, for a million trials."""
MAX_CALLS = 100
"""Largest acceptable number of calls to SLURM's programs by one call of the cron job."""


@dataclass
class Report:
    """The cost of a campaign.

    Attributes:
        seconds: of each command, one number per call; "nodes" is the simulation itself.
        calls: by program of SLURM.
        faults: by kind.
        states: number of trials by state, at the end.
        attempts: of all trials.
        hours: of the cluster's time.
        max_calls: to SLURM's programs, by one call of the cron job.
        database_bytes: of the file at the end.
        peak_bytes: largest resident memory of this process.
    """

    seconds: dict[str, list[float]] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    states: dict[str, int] = field(default_factory=dict)
    attempts: int = 0
    hours: float = 0.0
    max_calls: int = 0
    database_bytes: int = 0
    peak_bytes: int = 0


def cluster() -> list[Measurement]:
    """Measure in a temporary folder."""
    trials = int(os.environ.get("DROPBENCH_BENCHMARK_CLUSTER", TRIALS))
    nodes = max(1, trials // TRIALS_PER_NODE)
    with TemporaryDirectory() as folder:
        return measurements(simulate(Path(folder), trials, nodes), trials, nodes)


def measurements(report: Report, trials: int, nodes: int) -> list[Measurement]:
    """Compare the cost of a campaign with the limits; the detail of the first row has all counts."""
    of = f"{trials:,} trials, {nodes:,} simulated nodes"
    slowest = {name: round(max(seconds), 2) for name, seconds in report.seconds.items()}
    counts = {**{name: value for name, value in vars(report).items() if name != "seconds"}, "slowest_s": slowest}
    ratio = round(report.max_calls / MAX_CALLS, 3)
    calls = Measurement(
        f"calls to SLURM per pass, {of}", f"{MAX_CALLS} calls", ratio, 1.0, report.max_calls, MAX_CALLS, "calls", counts
    )
    times = (within(f"{name}, {of}", limit_s, report.seconds[name]) for name, limit_s in LIMITS_S.items())
    return [calls, *times]


def simulate(folder: Path, trials: int, nodes: int) -> Report:
    """Run a campaign in an empty folder from its first trial to its last; each node runs one job at a time."""
    settings = Settings(runs=folder / "runs", database=f"sqlite:///{folder}/queue.db")
    settings.runs.mkdir(parents=True)
    slurm, report = Cluster(settings.runs, nodes), Report()
    plan = Plan("slurm", profile=Profile(time=60 * 24, trials_per_job=TRIALS_PER_JOB))
    with _installed(slurm, folder / "bin"), open_store(settings.database) as store:
        with _timed(report, "enqueue"):
            store.enqueue(campaign.trials(trials))
        while True:
            before = sum(slurm.calls.values())
            with _timed(report, "collect"):
                collect(store, settings)
            # SLURM refuses more than its number of jobs. The next call submits more.
            with _timed(report, "submit"), contextlib.suppress(client.SubmissionRefusedError):
                if queued := store.find("queued"):
                    submit(store, settings, queued, plan)
            report.max_calls = max(report.max_calls, sum(slurm.calls.values()) - before)
            with _timed(report, "status"):
                counts = read_status(store, settings).counts
            hours, succeeded = slurm.clock / HOUR, counts["succeeded"]
            print(f"{hours:6.0f} h  {succeeded:9,} of {trials:,} succeeded", file=sys.stderr, flush=True)
            if all(state in FINAL_STATES for state, count in counts.items() if count):
                break
            with _timed(report, "nodes"):
                slurm.advance(INTERVAL_S)
        report.states = {str(state): count for state, count in store.counts().items() if count}
        with reading(store.engine) as connection:
            report.attempts = connection.scalar(select(func.count()).select_from(Attempts)) or 0
    report.calls, report.faults, report.hours = dict(slurm.calls), dict(slurm.faults), slurm.clock / HOUR
    report.database_bytes = sum(file.stat().st_size for file in folder.glob("queue.db*"))
    report.peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return report


@contextlib.contextmanager
def _installed(slurm: Cluster, bin: Path) -> Iterator[None]:
    """Replace SLURM's programs, and the clock, by a simulated cluster; `bin` holds empty files for the programs."""
    bin.mkdir()
    for program in ("srun", "sbatch", "squeue"):
        (bin / program).touch(mode=0o755)
    with (
        mock.patch.dict(os.environ, {"PATH": f"{bin}:{os.environ['PATH']}"}),
        mock.patch.object(client, "run_command", slurm.run_command),
        mock.patch.object(job_states, "utc_now_iso", slurm.utc_now_iso),
        mock.patch.object(client, "sleep", slurm.advance),
    ):
        yield


@contextlib.contextmanager
def _timed(report: Report, name: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    report.seconds.setdefault(name, []).append(time.perf_counter() - start)
