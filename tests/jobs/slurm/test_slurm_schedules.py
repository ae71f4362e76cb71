"""Random schedules of faults on a cluster: no trial is lost, and none is run to its end twice.

Dispatch, collect and workers are the real ones; SLURM and its clock are simulated. `SCHEDULES` sets their number.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from dropbench.db.store.store import open_store
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import CANCELLED, RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import FINAL_STATES, Trial
from dropbench.jobs.queue.operations import cancel, enqueue, retry
from dropbench.jobs.queue.reconcile import collect
from dropbench.jobs.queue.status import observe
from dropbench.jobs.slurm.execution import add_seconds
from dropbench.jobs.slurm.profile import Profile
from dropbench.jobs.submission.dispatch import Plan, dispatch
from dropbench.jobs.submission.submission import job_name, read_elements
from dropbench.jobs.worker.retry import EXHAUSTED
from dropbench.jobs.worker.stop_requests import PREEMPTION_SIGNAL
from tests.jobs.slurm.simulated_slurm import SimulatedSlurm, simulated
from tests.jobs.slurm.slurm_programs import Element
from tests.jobs.slurm.worker_thread import Killed
from tests.jobs.workplace import Tiny
from tests.requests import requested

SCHEDULES = int(os.environ.get("SCHEDULES", "40"))


class Schedules(RuleBasedStateMachine):
    """A user and a cluster with faults."""

    trials: ClassVar[list[Trial]]

    def __init__(self) -> None:
        super().__init__()
        # In memory if possible, as disks are not tested here.
        self.folder = Path(mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        (self.folder / "bin").mkdir()
        self.context = simulated(self.folder / "bin")
        self.slurm: SimulatedSlurm = self.context.__enter__()
        self.settings = Settings(runs=self.folder / "runs", database=f"sqlite:///{self.folder}/bench.db")
        self.requested: set[str] = set()
        self.cancelled: set[str] = set()

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            self.context.__exit__(None, None, None)
            shutil.rmtree(self.folder)

    @initialize(count=st.integers(1, 7), separate_locks=st.booleans())
    def enqueue(self, count: int, separate_locks: bool) -> None:
        self.slurm.separate_locks = separate_locks
        with open_store(self.settings.database) as store:
            enqueue(store, self.settings, requested("tiny", *self.trials[:count]))
        self.requested = {trial.id for trial in self.trials[:count]}

    @rule(
        trials_per_job=st.integers(1, 3),
        throttle=st.sampled_from([None, 1, 2]),
        sbatch=st.sampled_from(["", "", "unresponsive", "late", "before", "after"]),
        squeue_fails=st.booleans(),
    )
    def submit(self, trials_per_job: int, throttle: int | None, sbatch: str, squeue_fails: bool) -> None:
        """Submit by a process that may be killed, to a cluster that may not answer."""
        self.slurm.unresponsive = {"sbatch"} if sbatch == "unresponsive" else set()
        self.slurm.late = sbatch == "late"
        self.slurm.dies = sbatch if sbatch in ("before", "after") else None
        if squeue_fails and sbatch:
            self.slurm.unresponsive |= {"squeue"}
        plan = Plan("slurm", profile=Profile(trials_per_job=trials_per_job), throttle=throttle)
        try:
            with open_store(self.settings.database) as store:
                collect(store, self.settings)
                dispatch(store, self.settings, store.find("queued"), plan)
        except (InputError, Killed):
            pass
        self.slurm.unresponsive, self.slurm.late, self.slurm.dies, self.slurm.dead = set(), False, None, False

    @rule(seconds=st.sampled_from([1, 5, 120]))
    def wait(self, seconds: int) -> None:
        self.slurm.tick(seconds)

    @precondition(lambda self: self.slurm.running())
    @rule(data=st.data(), steps=st.integers(1, 8))
    def work(self, data: st.DataObject, steps: int) -> None:
        self.slurm.step(self.pick(data), steps)

    @precondition(lambda self: self.slurm.running())
    @rule(data=st.data(), state=st.sampled_from(["NODE_FAIL", "TIMEOUT", "FAILED", "REQUEUED"]))
    def kill_worker(self, data: st.DataObject, state: str) -> None:
        """Kill a worker; SLURM reports it, or has killed it."""
        self.slurm.end(self.pick(data), state, requeue=state in ("NODE_FAIL", "REQUEUED"))

    @precondition(lambda self: self.slurm.running())
    @rule(data=st.data(), number=st.sampled_from([PREEMPTION_SIGNAL, signal.SIGTERM]))
    def preempt(self, data: st.DataObject, number: int) -> None:
        self.slurm.preempt(self.pick(data), number)

    @rule(unresponsive=st.sets(st.sampled_from(["squeue", "sacct"])))
    def collect(self, unresponsive: set[str]) -> None:
        self.slurm.unresponsive = unresponsive
        with open_store(self.settings.database) as store:
            collect(store, self.settings)
        self.slurm.unresponsive = set()

    @precondition(lambda self: self.slurm.running())
    @rule(data=st.data(), cut_off=st.booleans())
    def orphan(self, data: st.DataObject, cut_off: bool) -> None:
        """The worker continues next to the job that replaces it, possibly after a pause."""
        self.slurm.lose_slurmd(self.pick(data), cut_off=cut_off)

    @precondition(lambda self: self.slurm.orphans)
    @rule(steps=st.integers(1, 8))
    def resume_orphans(self, steps: int) -> None:
        for worker in self.slurm.orphans:
            worker.renews_lease = True
            for _ in range(steps):
                worker.resume()

    @rule(squeue_fails=st.booleans())
    def status(self, squeue_fails: bool) -> None:
        """The status changes nothing, and the state of each trial is correct."""
        self.slurm.unresponsive = {"squeue"} if squeue_fails else set()
        with open_store(self.settings.database) as store:
            before = store.states()
            queried_at = self.slurm.now.isoformat(timespec="milliseconds")
            status, active = observe(store, self.settings)  # once, as waiting for sacct advances the clock
            shown = {id: row.state for id, row in before.items()}
            shown |= {id: trial.observed.state for id, trial in active.items()}
            assert store.states() == before
            submissions = {job_name(row.id): row for row in store.open_submissions()}
        self.slurm.unresponsive = set()
        assert status.counts == {state: list(shown.values()).count(state) for state in status.counts}
        directories = {id: RunDirectory(self.settings.runs / id) for id in shown}
        locked = {id for id, directory in directories.items() if directory.path.exists() and directory.locked()}
        succeeded = {id for id, state in shown.items() if state == "succeeded"}
        # A worker that has written its result has not recorded the end of its attempt yet.
        assert self.done() - locked <= succeeded <= self.done()
        alive = {
            id: element.state
            for element in self.slurm.elements
            if element.state in ("PENDING", "RUNNING") and element.name in submissions
            for id, index in read_elements(element.folder).items()
            if index == element.index and before[id].submission_id == submissions[element.name].id
        }
        for id, state in shown.items():
            directory = directories[id]
            if id in locked:
                possible = {"running"}
                if directory.attempts()[-1]["started_at"] > queried_at:  # started after squeue's answer
                    possible.add("submitted")
                if id in self.cancelled:
                    possible.add("cancelled")
                assert state in possible, id
            elif id in alive.keys() - self.done():
                # An attempt without a known end may still be running.
                attempts = directory.attempts()
                unfinished = bool(attempts) and attempts[-1]["state"] == "running"
                young = unfinished and add_seconds(attempts[-1]["started_at"], 60) > self.slurm.now.isoformat()[:19]
                possible = {"submitted"}
                if unfinished and (squeue_fails or young or alive[id] == "RUNNING"):
                    possible.add("running")
                if (directory.path / CANCELLED).exists():
                    possible.add("cancelled")
                assert state in possible, id
            elif not squeue_fails:
                assert state != "running"
                assert state != "failed" or directory.attempts()[-1]["cause"].startswith(EXHAUSTED)
                assert state != "cancelled" or id in self.cancelled

    @precondition(lambda self: self.requested)
    @rule(data=st.data(), scancel_fails=st.booleans())
    def cancel(self, data: st.DataObject, scancel_fails: bool) -> None:
        id = data.draw(st.sampled_from(sorted(self.requested)))
        self.slurm.unresponsive = {"scancel"} if scancel_fails else set()
        with open_store(self.settings.database) as store:
            cancel(store, self.settings, [id])
        self.slurm.unresponsive = set()
        self.cancelled.add(id)

    def finish(self) -> None:
        """Without further faults, every requested trial succeeds exactly once, and the database says so."""
        with open_store(self.settings.database) as store:
            for _ in range(60):
                collect(store, self.settings)
                retry(store, self.settings, store.find("state=cancelled,failed"))
                states = {row.state for row in store.states().values()}
                if states <= FINAL_STATES:
                    break
                if queued := store.find("queued"):
                    dispatch(store, self.settings, queued, Plan("slurm", profile=Profile()))
                for orphan in self.slurm.orphans:
                    for _ in range(12):
                        orphan.resume()
                for _ in range(10):
                    self.slurm.tick(30)
                    for element in self.slurm.running():
                        self.slurm.step(element, 12)
            rows = store.states()
        assert {id: row.state for id, row in rows.items()} == dict.fromkeys(self.requested, "succeeded"), rows
        assert self.slurm.results == dict.fromkeys(self.requested, 1)
        assert not self.slurm.errors
        for id in self.requested:
            attempts = RunDirectory(self.settings.runs / id).attempts()
            assert [attempt["number"] for attempt in attempts] == list(range(1, len(attempts) + 1))
            assert [attempt["state"] for attempt in attempts].count("succeeded") == 1
            assert attempts[-1]["state"] == "succeeded"
            assert "running" not in {attempt["state"] for attempt in attempts}

    def pick(self, data: st.DataObject) -> Element:
        running = self.slurm.running()
        return running[data.draw(st.integers(0, len(running) - 1))]

    def done(self) -> set[str]:
        return {id for id in self.requested if (self.settings.runs / id / "result.json").exists()}


@pytest.mark.parametrize("count", [SCHEDULES // 10, pytest.param(SCHEDULES, marks=pytest.mark.slow)])
def test_every_trial_ends_once_whatever_fails(tiny: Tiny, count: int) -> None:
    Schedules.trials = tiny(seeds=7)
    schedules = settings(
        max_examples=count,
        stateful_step_count=30,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        phases=[Phase.generate],  # shrinking a schedule would take minutes
    )
    run_state_machine_as_test(Schedules, settings=schedules)
