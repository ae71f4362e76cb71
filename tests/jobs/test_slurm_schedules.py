"""Random schedules of everything that can go wrong on a cluster: no trial is lost, none is run to its end twice.

The dispatch, collect and worker are the real ones; SLURM and its clock are simulated. `SCHEDULES=10000` runs as many.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from db.store import open_store
from harness.errors import InputError
from harness.rundir import CANCELLED, RunDirectory
from harness.settings import Settings
from harness.trial import FINAL_STATES, Trial
from jobs.collect import collect, look
from jobs.dispatch import Plan, dispatch
from jobs.job import name, read_elements
from jobs.profile import Profile
from jobs.queue import cancel, enqueue, retry
from jobs.retry import GAVE_UP
from jobs.slurm import later
from jobs.status import tally
from jobs.wishes import PREEMPTED
from tests.jobs.simulated_slurm import Element, Killed, SimulatedSlurm, simulated

SCHEDULES = int(os.environ.get("SCHEDULES", "60"))


class Schedules(RuleBasedStateMachine):
    """A user, a cluster, and bad luck."""

    trials: ClassVar[list[Trial]]

    def __init__(self) -> None:
        super().__init__()
        # In memory where there is such a folder: nothing here is about disks.
        self.folder = Path(mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
        (self.folder / "bin").mkdir()
        self.context = simulated(self.folder / "bin")
        self.slurm: SimulatedSlurm = self.context.__enter__()
        self.settings = Settings(runs=self.folder / "runs", database=f"sqlite:///{self.folder}/bench.db")
        self.asked: set[str] = set()
        self.cancelled: set[str] = set()

    def teardown(self) -> None:
        try:
            self.finish()
        finally:
            self.context.__exit__(None, None, None)
            shutil.rmtree(self.folder)

    @initialize(count=st.integers(1, 7), apart=st.booleans())
    def ask(self, count: int, apart: bool) -> None:
        self.slurm.apart = apart
        with open_store(self.settings.database) as store:
            enqueue(store, self.settings, [(trial, "tiny") for trial in self.trials[:count]])
        self.asked = {trial.id for trial in self.trials[:count]}

    @rule(
        pack=st.integers(1, 3),
        throttle=st.sampled_from([None, 1, 2]),
        sbatch=st.sampled_from(["", "", "silent", "late", "before", "after"]),
        squeue=st.booleans(),
    )
    def submit(self, pack: int, throttle: int | None, sbatch: str, squeue: bool) -> None:
        """By a process that may be killed, of a cluster that may not answer."""
        self.slurm.silent = {"sbatch"} if sbatch == "silent" else set()
        self.slurm.late = sbatch == "late"
        self.slurm.dying = sbatch if sbatch in ("before", "after") else None
        if squeue and sbatch:
            self.slurm.silent |= {"squeue"}
        plan = Plan("slurm", profile=Profile(), pack=pack, throttle=throttle)
        try:
            with open_store(self.settings.database) as store:
                collect(store, self.settings)
                dispatch(store, self.settings, store.find("queued"), plan)
        except (InputError, Killed):
            pass
        self.slurm.silent, self.slurm.late, self.slurm.dying, self.slurm.dead = set(), False, None, False

    @rule(seconds=st.sampled_from([1, 5, 120]))
    def wait(self, seconds: int) -> None:
        self.slurm.tick(seconds)

    @precondition(lambda self: self.slurm.running())
    @rule(data=st.data(), steps=st.integers(1, 8))
    def work(self, data: st.DataObject, steps: int) -> None:
        self.slurm.step(self.pick(data), steps)

    @precondition(lambda self: self.slurm.running())
    @rule(data=st.data(), fate=st.sampled_from(["NODE_FAIL", "TIMEOUT", "FAILED", "REQUEUED"]))
    def strike(self, data: st.DataObject, fate: str) -> None:
        """The worker is killed, and SLURM says so, or it has killed it."""
        self.slurm.end(self.pick(data), fate, requeue=fate in ("NODE_FAIL", "REQUEUED"))

    @precondition(lambda self: self.slurm.running())
    @rule(data=st.data(), number=st.sampled_from([PREEMPTED, signal.SIGTERM]))
    def preempt(self, data: st.DataObject, number: int) -> None:
        self.slurm.preempt(self.pick(data), number)

    @rule(silent=st.sets(st.sampled_from(["squeue", "sacct"])))
    def collect(self, silent: set[str]) -> None:
        self.slurm.silent = silent
        with open_store(self.settings.database) as store:
            collect(store, self.settings)
        self.slurm.silent = set()

    @precondition(lambda self: self.slurm.running())
    @rule(data=st.data(), cut_off=st.booleans())
    def orphan(self, data: st.DataObject, cut_off: bool) -> None:
        """It goes on beside the job that takes its place, perhaps only after a while."""
        self.slurm.lose(self.pick(data), cut_off=cut_off)

    @precondition(lambda self: self.slurm.orphans)
    @rule(steps=st.integers(1, 8))
    def haunt(self, steps: int) -> None:
        for process in self.slurm.orphans:
            process.beats = True
            for _ in range(steps):
                process.go()

    @rule(silent=st.booleans())
    def status(self, silent: bool) -> None:
        """It changes nothing, and what it says of each trial is so."""
        self.slurm.silent = {"squeue"} if silent else set()
        with open_store(self.settings.database) as store:
            before = store.states()
            asked = self.slurm.now.isoformat(timespec="milliseconds")
            looked = look(store, self.settings)  # once: to ask what sacct does not know yet takes time
            found = tally("", store.counts(), looked)
            shown = {id: row.state for id, row in before.items()}
            shown |= {id: verdict.state for id, (_, _, verdict) in looked.items()}
            assert store.states() == before
            submissions = {name(one.id): one for one in store.open_submissions()}
        self.slurm.silent = set()
        assert found.counts == {state: list(shown.values()).count(state) for state in found.counts}
        directories = {id: RunDirectory(self.settings.runs / id) for id in shown}
        locked = {id for id, directory in directories.items() if directory.path.exists() and directory.locked()}
        succeeded = {id for id, state in shown.items() if state == "succeeded"}
        # A worker that has written its result has still to say that it has.
        assert self.done() - locked <= succeeded <= self.done()
        alive = {
            id: one.state
            for one in self.slurm.elements
            if one.state in ("PENDING", "RUNNING") and one.name in submissions
            for id, element in read_elements(one.folder).items()
            if element == one.index and before[id].submission_id == submissions[one.name].id
        }
        for id, state in shown.items():
            directory = directories[id]
            if id in locked:
                possible = {"running"}
                if directory.attempts()[-1]["started_at"] > asked:  # while sacct was waited for, after squeue's answer
                    possible.add("submitted")
                if id in self.cancelled:
                    possible.add("cancelled")
                assert state in possible, id
            elif id in alive.keys() - self.done():
                # An attempt that nobody is known to have ended runs on, as far as anybody can say.
                attempts = directory.attempts()
                unknown = bool(attempts) and attempts[-1]["state"] == "running"
                young = unknown and later(attempts[-1]["started_at"], 60) > self.slurm.now.isoformat()[:19]
                possible = {"submitted"}
                if unknown and (silent or young or alive[id] == "RUNNING"):
                    possible.add("running")
                if (directory.path / CANCELLED).exists():
                    possible.add("cancelled")
                assert state in possible, id
            elif not silent:
                assert state != "running"
                assert state != "failed" or directory.attempts()[-1]["cause"].startswith(GAVE_UP)
                assert state != "cancelled" or id in self.cancelled

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), silent=st.booleans())
    def cancel(self, data: st.DataObject, silent: bool) -> None:
        id = data.draw(st.sampled_from(sorted(self.asked)))
        self.slurm.silent = {"scancel"} if silent else set()
        with open_store(self.settings.database) as store:
            cancel(store, self.settings, [id])
        self.slurm.silent = set()
        self.cancelled.add(id)

    def finish(self) -> None:
        """From now on all goes well: every trial that is asked for again ends, once, and is known to."""
        with open_store(self.settings.database) as store:
            for _ in range(60):
                collect(store, self.settings)
                retry(store, self.settings, store.find("state=cancelled,failed"))
                states = {row.state for row in store.states().values()}
                if states <= FINAL_STATES:
                    break
                if waiting := store.find("queued"):
                    dispatch(store, self.settings, waiting, Plan("slurm", profile=Profile()))
                for orphan in self.slurm.orphans:
                    for _ in range(12):
                        orphan.go()
                for _ in range(10):
                    self.slurm.tick(30)
                    for element in self.slurm.running():
                        self.slurm.step(element, 12)
            rows = store.states()
        assert {id: row.state for id, row in rows.items()} == dict.fromkeys(self.asked, "succeeded"), rows
        assert self.slurm.results == dict.fromkeys(self.asked, 1)
        assert not self.slurm.errors
        for id in self.asked:
            attempts = RunDirectory(self.settings.runs / id).attempts()
            assert [attempt["number"] for attempt in attempts] == list(range(1, len(attempts) + 1))
            assert [attempt["state"] for attempt in attempts].count("succeeded") == 1
            assert attempts[-1]["state"] == "succeeded"
            assert "running" not in {attempt["state"] for attempt in attempts}

    def pick(self, data: st.DataObject) -> Element:
        running = self.slurm.running()
        return running[data.draw(st.integers(0, len(running) - 1))]

    def done(self) -> set[str]:
        return {id for id in self.asked if (self.settings.runs / id / "result.json").exists()}


def test_whatever_happens_every_trial_ends_once(tiny: Callable[..., list[Trial]]) -> None:
    Schedules.trials = tiny(seeds=7)
    few = settings(
        max_examples=SCHEDULES,
        stateful_step_count=30,
        suppress_health_check=list(HealthCheck),
        deadline=None,
        phases=[Phase.generate],  # to make a schedule shorter would take minutes
    )
    run_state_machine_as_test(Schedules, settings=few)
