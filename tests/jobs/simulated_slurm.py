"""A SLURM in virtual time: it answers as `jobs.slurm` asks, and the real workers run in its jobs, step by step.

A worker is the real one, in a thread that waits at every step until the simulation lets it go on; it trains a number
that counts to `STEPS`. SIGKILL is an exception that nothing handles: whatever code does with it on its way out, a dead
process can change nothing any more.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from submitit.core.utils import DelayedSubmission

from harness import lease
from harness.rundir import RunDirectory
from harness.settings import Settings
from jobs import attempts, machine, slurm, worker
from jobs.team import Team
from jobs.wishes import PREEMPTED, Wishes
from tests.patience import PATIENCE

STEPS = 6
LAG = 2.0
"""Seconds until sacct knows what squeue does."""

START = datetime(2026, 1, 31, 12, tzinfo=UTC)

_REQUEUED = 5.0
"""Seconds until a requeued job may start."""


class Killed(BaseException):
    """SIGKILL."""


class Interrupted(Exception):
    """What the engine raises when it was asked to stop."""


@dataclass
class Run:
    """One execution of an element, as sacct tells it."""

    state: str
    node: str
    started: datetime
    ended: datetime | None = None


@dataclass
class Element:
    """A job of an array."""

    array: int
    index: int
    name: str
    folder: Path
    throttle: int
    shunned: set[str]
    state: str = "PENDING"
    eligible: datetime = START
    runs: list[Run] = field(default_factory=list)
    process: Process | None = None

    @property
    def id(self) -> str:
        return f"{self.array}_{self.index}"


class Process:
    """A worker in a job. Between two calls of `go` it stands still.

    Attributes:
        element: its job.
        dead: it was killed.
        over: it has ended, by itself or not.
        wishes: what it was asked for, as it sees it.
        lease: of the run directory that it is at.
        beats: whether it renews its lease; not while it is cut off from the others.
    """

    current = threading.local()

    def __init__(self, element: Element, node: str, work: Callable[[], None]) -> None:
        self.element, self.node, self.work = element, node, work
        self.lease: lease.Lease | None = None
        self.beats = True
        self.dead = self.over = False
        self.error: BaseException | None = None
        self.wishes: Wishes | None = None
        self.turn, self.back = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()

    def go(self) -> None:
        """Let it go on to its next step."""
        if not self.over:
            self.turn.release()
            assert self.back.acquire(timeout=PATIENCE), f"{self.element.id} hangs"

    def kill(self) -> None:
        """SIGKILL: it ends where it stands."""
        self.dead = True
        while not self.over:
            self.go()

    def ask(self, number: int) -> None:
        """Another signal, which it sees at its next step."""
        if self.wishes is not None and self.wishes.signal != PREEMPTED:
            self.wishes.signal, self.wishes.stopped = number, True

    def stand(self) -> None:
        """Called by the worker: wait for the next turn."""
        self.back.release()
        self.turn.acquire()
        if self.dead:
            raise Killed

    def _main(self) -> None:
        self.turn.acquire()
        Process.current.process = self
        try:
            if not self.dead:
                self.work()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.over = True
        self.back.release()


class SimulatedSlurm:
    """A cluster of some nodes with one place each.

    Attributes:
        now: its clock.
        silent: programs that give no answer, and do nothing.
        late: sbatch gives no answer, and does what it is asked at the next `tick`.
        orphans: workers that run on though SLURM has given up their node.
        dying: the process that calls is killed: "before" or "after" what sbatch does.
        results: how often a result was written, by trial.
        apart: the nodes' locks do not reach each other, so that only leases do.
    """

    def __init__(self, nodes: int = 3) -> None:
        self.now = START
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.elements: list[Element] = []
        self.arrays = 0
        self.silent: set[str] = set()
        self.late = False
        self.dying: str | None = None
        self.dead = False
        self.orphans: list[Process] = []
        self.accepted: list[Path] = []
        self.results: dict[str, int] = {}
        self.errors: list[BaseException] = []
        self.apart = False

    def call(self, *command: str, patience: float = slurm.PATIENCE) -> str:
        """As `jobs.slurm.call`."""
        if self.dead:
            raise Killed
        program = command[0]
        if program in self.silent:
            raise slurm.NoAnswerError(f"{program}: Socket timed out")
        if program == "sbatch" and self.dying == "before":
            self.dead = True
            raise Killed
        if program == "sbatch" and self.late:
            self.accepted.append(Path(command[-1]))
            raise slurm.NoAnswerError("sbatch: Socket timed out")
        said = str(getattr(self, f"_{program}")(*command[1:]))
        if program == "sbatch" and self.dying == "after":
            self.dead = True
            raise Killed
        return said

    def tick(self, seconds: float = 1.0) -> None:
        """Let time pass: jobs start where there is a node for them; ended workers end their jobs."""
        self.now += timedelta(seconds=seconds)
        self._reap()
        for process in [one.process for one in self.running()] + self.orphans:
            if process is not None and process.lease is not None and process.beats and not process.dead:
                self.beat(process.lease)
        while self.accepted:
            self._sbatch(str(self.accepted.pop()))
        busy = {one.runs[-1].node for one in self.elements if one.state == "RUNNING"}
        free = [node for node in self.nodes if node not in busy]
        for one in self.elements:
            side_by_side = sum(other.array == one.array and other.state == "RUNNING" for other in self.elements)
            if one.state == "PENDING" and one.eligible <= self.now and side_by_side < one.throttle:
                for node in [node for node in free if node not in one.shunned][:1]:
                    free.remove(node)
                    self._start(one, node)

    def running(self) -> list[Element]:
        """The elements that run."""
        return [one for one in self.elements if one.state == "RUNNING"]

    def step(self, element: Element, steps: int = 1) -> None:
        """Let a job's worker go on."""
        for _ in range(steps):
            if element.process is not None:
                element.process.go()
        self._reap()

    def end(self, element: Element, state: str, *, requeue: bool) -> None:
        """A job's end from outside: its worker is killed."""
        if element.process is not None:
            element.process.kill()
        self._close(element, state)
        if requeue:
            element.state, element.eligible = "PENDING", self.now + timedelta(seconds=_REQUEUED)

    def beat(self, held: lease.Lease) -> None:
        """A sign of life."""
        with contextlib.suppress(FileNotFoundError):  # there are newer ones
            os.utime(held.file, (self.now.timestamp(), self.now.timestamp()))

    def lose(self, element: Element, *, cut_off: bool) -> None:
        """Only slurmd dies: the worker runs on, and the job is queued again.

        Args:
            element: its job.
            cut_off: the worker stands still, and gives no signs of life until it goes on.
        """
        if element.process is not None:
            element.process.beats = not cut_off
            self.orphans.append(element.process)
            element.process = None
        self.end(element, "NODE_FAIL", requeue=True)

    def preempt(self, element: Element, number: int) -> None:
        """A signal, the grace to stop by itself, and the queue again."""
        process = element.process
        if process is None:
            return
        process.ask(number)
        for _ in range(3):
            process.go()
        self.end(element, "PREEMPTED", requeue=True)

    def _reap(self) -> None:
        for one in self.running():
            if one.process is not None and one.process.over:
                error = one.process.error
                if error is not None:
                    self.errors.append(error)
                self._close(one, "FAILED" if error is not None or one.process.dead else "COMPLETED")

    def _close(self, element: Element, state: str) -> None:
        element.state, element.process = state, None
        if element.runs and element.runs[-1].ended is None:
            element.runs[-1].state, element.runs[-1].ended = state, self.now

    def _start(self, element: Element, node: str) -> None:
        element.state = "RUNNING"
        element.runs.append(Run("RUNNING", node, self.now))
        pickle = element.folder / f"{element.id}_submitted.pkl"
        first = element.folder / f"{element.index}.pkl"
        if first.exists():
            first.rename(pickle)
        work = DelayedSubmission.load(pickle).function
        element.process = Process(element, node, work)
        element.process.go()

    def _sbatch(self, *arguments: str) -> str:
        script = Path(arguments[-1]).read_text()
        self.arrays += 1
        last, throttle = map(int, re.findall(r"--array=0-(\d+)%(\d+)", script)[0])
        name = re.findall(r"--job-name=(\S+)", script)[0]
        shunned = {node for nodes in re.findall(r"--exclude=(\S+)", script) for node in nodes.split(",")}
        for index in range(last + 1):
            self.elements.append(Element(self.arrays, index, name, Path(arguments[-1]).parent, throttle, shunned))
        return f"{self.arrays}\n"

    def _squeue(self, *arguments: str) -> str:
        (names,) = (word.removeprefix("--name=").split(",") for word in arguments if word.startswith("--name="))
        lines = []
        for one in self.elements:
            if one.name in names:
                last = one.runs[-1] if one.runs and one.state != "PENDING" else None
                where, when = (last.node, _time(last.started)) if last else ("", "N/A")
                lines.append(f"{one.array}|{one.index}|{one.state}|{where}|{when}|{one.name}")
        return "\n".join(lines)

    def _sacct(self, *arguments: str) -> str:
        (numbers,) = (word.removeprefix("--jobs=").split(",") for word in arguments if word.startswith("--jobs="))
        lines = []
        for one in self.elements:
            if str(one.array) in numbers:
                for run in one.runs:
                    known = run.ended is not None and (self.now - run.ended).total_seconds() >= LAG
                    state = run.state if known else "RUNNING"
                    lines.append(f"{one.id}|{state}|{run.node}|{_time(run.started)}|0:0|")
                if one.state == "CANCELLED" and not one.runs:
                    lines.append(f"{one.id}|CANCELLED by 0|None assigned|Unknown|0:0|")
        return "\n".join(lines)

    def _scancel(self, *arguments: str) -> str:
        name = arguments[-1].removeprefix("--name=")
        for one in self.elements:
            if one.name == name and one.state in ("PENDING", "RUNNING"):
                if one.process is not None:
                    one.process.ask(signal.SIGTERM)
                    for _ in range(3):
                        one.process.go()
                self.end(one, "CANCELLED", requeue=False)
        return ""

    def _sinfo(self, *arguments: str) -> str:
        return "\n".join(self.nodes)

    def _scontrol(self, *arguments: str) -> str:
        return "MaxArraySize            = 5\n"

    def train(self, directory: RunDirectory, settings: Settings, stop: Callable[[], bool]) -> dict[str, Any]:
        """In the place of the engine: count, with a checkpoint at every second step."""
        process: Process = Process.current.process
        step = attempts.checkpoint_step(directory)
        directory.append_event("resume", step=step)
        while step < STEPS:
            process.stand()
            step += 1
            directory.append_event("train", step=step, steps=STEPS, loss=1.0 / step)
            if step % 2 == 0 or stop():
                (directory.path / "checkpoint").mkdir(exist_ok=True)
                (directory.path / f"checkpoint/step-{step:09d}.pt").write_bytes(b"")
            if stop():
                raise Interrupted(f"stopped at step {step}")
        process.stand()
        return {"metrics": {"test/accuracy": float(int(directory.id, 16) % 97)}}


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S")


@contextlib.contextmanager
def simulated(bin: Path) -> Iterator[SimulatedSlurm]:
    """A cluster in the place of the real one; `bin` is an empty folder for programs that are looked for."""
    one = SimulatedSlurm()
    for program in ("srun", "sbatch", "squeue"):
        (bin / program).touch(mode=0o755)
    write_result, finish = RunDirectory.write_result, attempts.Attempt.finish

    def process() -> Process | None:
        found: Process | None = getattr(Process.current, "process", None)
        return found

    def written(directory: RunDirectory, result: dict[str, Any]) -> None:
        write_result(directory, result)
        one.results[directory.id] = one.results.get(directory.id, 0) + 1
        if (mine := process()) is not None:
            mine.stand()

    def finished(attempt: attempts.Attempt, *rest: Any) -> None:
        mine = process()
        if mine is None or not mine.dead:
            finish(attempt, *rest)

    def enter(wishes: Wishes) -> Wishes:
        if (mine := process()) is not None:
            mine.wishes = wishes
        return wishes

    def now() -> str:
        return one.now.isoformat(timespec="milliseconds")

    def machine_of() -> str:
        mine = process()
        return mine.node if one.apart and mine is not None else "login"

    def leased(held: lease.Lease) -> lease.Lease:
        if (mine := process()) is not None:
            mine.lease = held
        one.beat(held)
        return held

    def released(held: lease.Lease, *rest: Any) -> None:
        mine = process()
        if mine is not None and not mine.dead:
            mine.lease = None
            with contextlib.suppress(FileNotFoundError):
                os.utime(held.file, (0, 0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
        patch.setattr(slurm, "call", one.call)
        patch.setattr(slurm, "pause", one.tick)
        patch.setattr(slurm, "now", lambda: one.now)
        patch.setattr(worker, "_train", one.train)
        patch.setattr(worker, "pause", lambda seconds: Process.current.process.stand())
        patch.setattr(Team, "join", lambda folder, job, settings: Team())
        patch.setattr(lease, "now", lambda: one.now.timestamp())
        patch.setattr(lease, "machine", machine_of)
        patch.setattr(lease.Lease, "__enter__", leased)
        patch.setattr(lease.Lease, "__exit__", released)
        patch.setattr(RunDirectory, "lock_file", property(lambda self: f"{self.path}/lock-{machine_of()}"))
        patch.setattr(worker, "_interrupted", lambda: (Interrupted,))
        patch.setattr(worker, "_discard_training_states", lambda directory: None)
        patch.setattr(worker, "_log", lambda directory, number: contextlib.nullcontext())
        patch.setattr(worker, "_job_id", lambda: Process.current.process.element.id)
        patch.setattr(machine, "node", lambda: Process.current.process.node)
        patch.setattr(worker, "now", now)
        patch.setattr(attempts, "now", now)
        patch.setattr(attempts.Attempt, "finish", finished)
        patch.setattr(RunDirectory, "write_result", written)
        patch.setattr(Wishes, "__enter__", enter)
        patch.setattr(Wishes, "__exit__", lambda *rest: None)
        patch.setattr(Wishes, "PATIENCE", 0.0)
        try:
            yield one
        finally:
            for left in [element.process for element in one.elements] + one.orphans:
                if left is not None:
                    left.kill()
