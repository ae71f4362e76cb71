"""Simulate a SLURM of many nodes: the answers of its programs, and the files that workers would write.

The duration and fate of a trial depend on its id alone. The tests have another simulation, of three nodes, whose
workers act step by step.
"""

from __future__ import annotations

import heapq
import json
import math
import random
import re
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from dropbench.harness.runs.stamps import stamped
from dropbench.jobs.slurm import client
from dropbench.jobs.submission.submission import read_elements
from dropbench.jobs.worker.retry import pieces
from dropbench.jobs.worker.stop_requests import STARTED_SUFFIX

START = datetime(2026, 1, 1, tzinfo=UTC)
MINUTES = 8.0
"""Median duration of a trial."""

JOBS = 10_000
"""Largest number of submitted jobs: SLURM's default of MaxJobCount."""

KNOWN_FOR = 300.0
"""Seconds for which squeue lists a job after its end."""

FAULTS = {"out_of_memory": 0.004, "killed": 0.002, "failed": 0.0005, "node": 0.0002, "preempted": 0.01}
"""Fates of an attempt and their probabilities."""


@dataclass
class Run:
    """One execution of a job: when, where, and how it ended."""

    node: str
    started: float
    ended: float | None = None
    state: str = "RUNNING"


@dataclass
class Element:
    """A job of an array, with the trials that it still has to run."""

    array: Array
    index: int
    left: deque[str]
    state: str = "PENDING"
    runs: list[Run] = field(default_factory=list)

    @property
    def id(self) -> str:
        return f"{self.array.number}_{self.index}"


@dataclass
class Array:
    """A submission."""

    number: int
    name: str
    folder: Path
    submission: str
    elements: list[Element] = field(default_factory=list)
    open: int = 0


class Cluster:
    """SLURM's programs, and the jobs that run meanwhile.

    Attributes:
        clock: virtual seconds since the start.
        attempts: of the trials that have begun and not succeeded.
        calls: by program.
        faults: of attempts, by kind.
    """

    def __init__(self, runs: Path, nodes: int) -> None:
        self.runs, self.clock = str(runs), 0.0
        self.attempts: dict[str, list[dict[str, Any]]] = {}
        self.free = [f"n{number:04d}" for number in range(nodes)]
        self.arrays: dict[str, Array] = {}
        self.waiting: deque[Element] = deque()
        self.events: list[tuple[float, int, Element, str, str]] = []
        self.calls: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.count = self.jobs = 0

    def now(self) -> datetime:
        return START + timedelta(seconds=self.clock)

    def utc_now_iso(self) -> str:
        """Replace `dropbench.jobs.slurm.job_states.utc_now_iso`."""
        return self.now().isoformat()

    def run_command(self, *command: str, timeout: float = client.COMMAND_TIMEOUT_S) -> str:
        """Replace `dropbench.jobs.slurm.client.run_command`."""
        self.calls[command[0]] += 1
        return str(getattr(self, f"_{command[0]}")(*command[1:]))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        end = self.clock + seconds
        self._fill()
        while self.events and self.events[0][0] <= end:
            self.clock, _, element, trial, fate = heapq.heappop(self.events)
            self._happen(element, trial, fate)
            self._fill()
        self.clock = end

    def _fill(self) -> None:
        while self.waiting and self.free:
            element, node = self.waiting.popleft(), self.free.pop()
            element.state = "RUNNING"
            element.runs.append(Run(node, self.clock))
            _write(f"{element.array.folder}/{element.id}{STARTED_SUFFIX}")
            self._begin(element)

    def _begin(self, element: Element) -> None:
        """Begin the next trial of a job, as a worker does."""
        while element.left and Path(f"{self.runs}/{element.left[0]}/result.json").exists():
            element.left.popleft()
        if not element.left:
            self._end(element, "COMPLETED")
            return
        trial = element.left[0]
        attempts = self.attempts.setdefault(trial, [])
        if not attempts:
            Path(f"{self.runs}/{trial}/attempts").mkdir(parents=True, exist_ok=True)
        node, number = element.runs[-1].node, len(attempts) + 1
        attempt = {
            "number": number, "submission": element.array.submission, "executor": "slurm", "job_id": element.id,
            "node": node, "host": node, "pid": 1, "cpus": 1, "gpus": 0, "state": "running",
            "started_at": self.now().isoformat(timespec="milliseconds"), "steps_done": 100 * number,
            "micro_batch_splits": pieces(attempts),
        }  # fmt: skip
        _write(f"{self.runs}/{trial}/attempts/{number}.json", stamped(attempt, trial))
        draw = random.Random(f"{trial} {len(attempts)}")
        attempts.append(attempt)
        seconds, fate = 60 * MINUTES * math.exp(draw.gauss(0, 1)), "succeeded"
        chance = draw.random()
        for name, often in FAULTS.items():
            if chance < often:
                fate, seconds = name, seconds * draw.random()
                break
            chance -= often
        self.count += 1
        heapq.heappush(self.events, (self.clock + seconds, self.count, element, trial, fate))

    def _happen(self, element: Element, trial: str, fate: str) -> None:
        """End an attempt."""
        if fate != "succeeded":
            self.faults[fate] += 1
        if fate in ("killed", "node"):  # the worker reports nothing
            if fate == "node":
                self._end(element, "NODE_FAIL", again=True)
            else:
                self._end(element, "FAILED")
            return
        attempts = self.attempts[trial] if fate != "succeeded" else self.attempts.pop(trial)
        if fate == "succeeded":
            accuracy = 80 + int(trial, 16) % 1000 / 100
            metrics = {"test/accuracy": accuracy, "dev/accuracy": accuracy}
            _write(f"{self.runs}/{trial}/result.json", stamped({"metrics": metrics}, trial))
        cause = None if fate == "succeeded" else f"simulated: {fate}"
        attempts[-1] |= {"state": fate, "cause": cause, "ended_at": self.now().isoformat()}
        file = f"{self.runs}/{trial}/attempts/{attempts[-1]['number']}.json"
        Path(file).unlink()  # ext4 waits for the disk where a file is cut to nothing and written anew
        _write(file, stamped(attempts[-1], trial))
        if fate == "preempted":
            self._end(element, "PREEMPTED", again=True)
            return
        element.left.popleft()
        self._begin(element)

    def _end(self, element: Element, state: str, *, again: bool = False) -> None:
        run = element.runs[-1]
        run.ended, run.state = self.clock, state
        self.free.append(run.node)
        element.state = "PENDING" if again else state
        if again:
            self.waiting.append(element)
        else:
            element.array.open -= 1
            self.jobs -= 1

    def _sbatch(self, *arguments: str) -> str:
        script = Path(arguments[-1])
        said = script.read_text()
        size = int(re.findall(r"--array=0-(\d+)%", said)[0]) + 1
        if self.jobs + size > JOBS:
            raise client.SlurmCommandError("sbatch: error: AssocMaxSubmitJobLimit")
        (name,) = re.findall(r"--job-name=(\S+)", said)
        array = Array(len(self.arrays) + 1, name, script.parent, script.parent.name, open=size)
        packs: list[deque[str]] = [deque() for _ in range(size)]
        for trial, index in read_elements(script.parent).items():
            packs[index].append(trial)
        array.elements = [Element(array, index, pack) for index, pack in enumerate(packs)]
        self.arrays[name] = array
        self.waiting.extend(array.elements)
        self.jobs += size
        return f"{array.number}\n"

    def _squeue(self, *arguments: str) -> str:
        lines = []
        for array in self._asked("--name=", arguments):
            for one in array.elements:
                last = one.runs[-1] if one.runs and one.state != "PENDING" else None
                if last is None or last.ended is None or self.clock - last.ended < KNOWN_FOR:
                    where, when = (last.node, _time(last.started)) if last else ("", "N/A")
                    lines.append(f"{array.number}|{one.index}|{one.state}|{where}|{when}|None|{array.name}")
        return "\n".join(lines)

    def _sacct(self, *arguments: str) -> str:
        lines = []
        numbers = {number for word in arguments if word.startswith("--jobs=") for number in word[7:].split(",")}
        for array in self.arrays.values():
            for one in array.elements if str(array.number) in numbers else ():
                for run in one.runs:
                    rest = f"{run.state}|{run.node}|{_time(run.started)}|0:0|"
                    lines += [f"{one.id}|{rest}", f"{one.id}.batch|{rest}12M", f"{one.id}.0|{rest}900M"]
        return "\n".join(lines)

    def _sinfo(self, *arguments: str) -> str:
        return "\n".join({*self.free} | {one.runs[-1].node for _, _, one, _, _ in self.events})

    def _scontrol(self, *arguments: str) -> str:
        return "MaxArraySize            = 1001\n"

    def _asked(self, option: str, arguments: tuple[str, ...]) -> Iterator[Array]:
        for word in arguments:
            if word.startswith(option):
                yield from (self.arrays[name] for name in word[len(option) :].split(",") if name in self.arrays)


def _write(file: str, content: object = None) -> None:
    """Write a file as a worker on a node does, without waiting for the disk, which is the nodes'."""
    with open(file, "wb", buffering=0) as written:
        if content is not None:
            written.write(json.dumps(content).encode())


def _time(clock: float) -> str:
    return (START + timedelta(seconds=clock)).strftime("%Y-%m-%dT%H:%M:%S")
