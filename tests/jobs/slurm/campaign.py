"""A campaign on a simulated SLURM with limits, whose login node dies three times, and without sacct.

    python -m tests.jobs.slurm.campaign [--trials 10000]

Arrays, submitted and running jobs are limited, and a worker is killed now and then. Dispatch, collect and workers are
the real ones. Every trial must end exactly once; otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from dropbench.db.store.store import open_store
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import FINAL_STATES, Trial
from dropbench.jobs.queue.reconcile import collect
from dropbench.jobs.queue.status import read_status, render
from dropbench.jobs.slurm.profile import Profile
from dropbench.jobs.submission.dispatch import Plan
from dropbench.jobs.submission.submit import submit
from dropbench.jobs.worker import stop_requests
from dropbench.jobs.worker.stop_requests import StopRequests
from tests.jobs.slurm import worker_thread
from tests.jobs.slurm.simulated_slurm import SimulatedSlurm, simulated
from tests.jobs.slurm.worker_thread import Killed, WorkerThread
from tests.requests import named

NODES = 50
MAX_ARRAY_SIZE, MAX_SUBMITTED, MAX_RUNNING = 101, 250, 40
STEP_S, STEPS = 3.0, 20
"""Virtual seconds per step, and steps per trial."""
INTERVAL_STEPS = 20
"""Steps between two calls of the cron job that collects and submits."""
DEATHS = "before", "after", "while collecting"
"""When the login node dies: before or after sbatch takes effect, or in a pass that asks squeue first."""
KILL_STEPS, MIN_RUNNING = 33, 20
"""Steps between two kills of a worker, and workers that have to run then: a trial is given up after five in a row."""
SQUEUE_KEEPS_S = 300
"""Virtual seconds for which squeue lists a job after its end."""


@dataclass
class Report:
    """The course of a campaign.

    Attributes:
        deaths: calls of the cron job whose process was killed.
        kills: number of killed workers.
        passes: number of calls of the cron job.
        waits: the line of the status on jobs that the QOS holds, as it was first shown.
        look_ups: of workers for marker files on the shared file system.
        worker_seconds: virtual seconds of all workers.
        seconds: real seconds.
        calls: to SLURM's programs.
        attempts: number of attempts by state.
        problems: lines on trials that did not end exactly once.
    """

    deaths: int = 0
    kills: int = 0
    passes: int = 0
    waits: str = ""
    look_ups: int = 0
    worker_seconds: float = 0.0
    seconds: float = 0.0
    calls: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    attempts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """Count the refusals of the cluster by their message."""
        try:
            yield
        except InputError as error:
            self.refusals[str(error)] += 1
            print(error, file=sys.stderr)

    @property
    def look_up_rate(self) -> float:
        """Look-ups per worker and second."""
        return self.look_ups / self.worker_seconds

    def __str__(self) -> str:
        return "\n".join([
            f"{self.seconds:.0f} s; {self.passes} passes, of which {self.deaths} died; {self.kills} workers killed",
            f"calls: {dict(self.calls)}",
            f"attempts: {dict(self.attempts)}",
            f"look-ups per worker and second: {self.look_up_rate:.3f}",
            self.waits,
            *(self.problems or ["every trial ended exactly once"]),
        ])  # fmt: skip


def run(folder: Path, trials: Sequence[Trial], trials_per_job: int) -> Report:
    """Run a campaign in an empty folder."""
    settings = Settings(runs=folder / "runs", database=f"sqlite:///{folder}/bench.db")
    report, begin, draw = Report(), time.perf_counter(), random.Random(0)
    interval = StopRequests.POLL_INTERVAL_S
    (folder / "bin").mkdir()
    with simulated(folder / "bin", NODES) as slurm, _counting(slurm, report, interval):
        slurm.max_array_size, slurm.max_submitted, slurm.max_running = MAX_ARRAY_SIZE, MAX_SUBMITTED, MAX_RUNNING
        slurm.unresponsive = {"sacct"}
        with open_store(settings.database) as store:
            store.enqueue(trials, [named("tiny", *trials)])
        step = 0
        while True:
            if step % INTERVAL_STEPS == 0 and _pass(slurm, settings, report, trials_per_job):
                break
            slurm.tick(STEP_S)
            report.worker_seconds += STEP_S * len(slurm.running())
            for element in slurm.running():
                slurm.step(element)
            step += 1
            if step % KILL_STEPS == 0 and len(slurm.running()) >= MIN_RUNNING:
                slurm.end(draw.choice(slurm.running()), "FAILED", requeue=False)
                report.kills += 1
            since = slurm.now - timedelta(seconds=SQUEUE_KEEPS_S)
            slurm.elements = [
                element
                for element in slurm.elements
                if element.state in ("PENDING", "RUNNING") or (element.runs[-1].ended or slurm.now) > since
            ]
        report.seconds, report.calls = time.perf_counter() - begin, slurm.calls
        report.problems += [f"a worker ended with {error!r}" for error in slurm.errors]
        report.problems += [
            f"{trial.id}: {count} results" for trial in trials if (count := slurm.results.get(trial.id, 0)) != 1
        ]
    for trial in trials:
        states = [attempt["state"] for attempt in RunDirectory(settings.runs / trial.id).attempts()]
        report.attempts.update(states)
        if states.count("succeeded") != 1 or states[-1] != "succeeded":
            report.problems.append(f"{trial.id}: {states}")
    return report


def _pass(slurm: SimulatedSlurm, settings: Settings, report: Report, trials_per_job: int) -> bool:
    """Collect and submit, as a cron job; return whether all trials have succeeded.

    After the first, three passes die: before sbatch takes effect, after it, and while collecting.
    """
    report.passes += 1
    if report.passes > 1 and report.deaths < len(DEATHS):
        slurm.dies = DEATHS[report.deaths]
    slurm.dead = slurm.dies == "while collecting"
    plan = Plan("slurm", profile=Profile(trials_per_job=trials_per_job))
    try:
        with open_store(settings.database) as store:
            collect(store, settings)
            if queued := store.find("queued"):
                with report.refusing():
                    submit(store, settings, queued, plan)
            status = read_status(store, settings)
    except Killed:
        report.deaths += 1
        slurm.dies, slurm.dead = None, False
        return False
    report.waits = report.waits or next((line for line in render(status).splitlines() if "QOS" in line), "")
    succeeded = status.counts["succeeded"]
    print(f"{slurm.now:%d %H:%M}  {succeeded:6,} succeeded", file=sys.stderr, flush=True)
    return all(state in FINAL_STATES for state, count in status.counts.items() if count)


@contextlib.contextmanager
def _counting(slurm: SimulatedSlurm, report: Report, interval: float) -> Iterator[None]:
    """Let workers look for marker files as often as in real jobs, by the cluster's clock, and count their look-ups."""
    cancelled, should_stop = RunDirectory.cancelled, StopRequests.should_stop

    def count() -> None:
        report.look_ups += WorkerThread.current() is not None

    def counted_cancelled(directory: RunDirectory) -> str | None:
        count()
        return cancelled(directory)

    def counted_should_stop(requests: StopRequests) -> bool:
        count()
        return should_stop(requests)

    class Clock:
        monotonic = staticmethod(lambda: slurm.now.timestamp())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker_thread, "STEPS", STEPS)
        patch.setattr(StopRequests, "POLL_INTERVAL_S", interval)
        patch.setattr(stop_requests, "time", Clock)
        patch.setattr(RunDirectory, "cancelled", counted_cancelled)
        patch.setattr(StopRequests, "should_stop", counted_should_stop)
        yield


def main() -> None:
    """Run the command line."""
    from dropbench.harness.trials.plugins import load_plugins
    from dropbench.harness.trials.task import TASKS
    from dropbench.harness.trials.trial import TrialRequest
    from tests.jobs.workplace import PLUGIN

    parser = argparse.ArgumentParser(prog="python -m tests.jobs.slurm.campaign", description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    count = parser.parse_args().trials
    # As for all tests: workers set and remove it, and here they are threads of one process.
    os.environ["HF_HUB_OFFLINE"] = "1"
    load_plugins([PLUGIN])
    trial = TASKS.get("tiny").trial_for(TrialRequest(task="tiny", data="tiny", model="tiny"), Settings())
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        report = run(Path(folder), [trial.model_copy(update={"seed": seed}) for seed in range(count)], 10)
    print(report)
    sys.exit(bool(report.problems))


if __name__ == "__main__":
    main()
