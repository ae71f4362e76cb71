"""The answers of SLURM's programs about simulated jobs, in the formats that `dropbench.jobs.slurm.client` requests."""

from __future__ import annotations

import re
import signal
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from dropbench.jobs.slurm import client
from tests.jobs.slurm.worker_thread import Killed, WorkerThread

SACCT_LAG_S = 2.0
"""Seconds until sacct knows what squeue does."""

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


@dataclass
class Run:
    """One execution of an array element, as sacct reports it."""

    state: str
    node: str
    started: datetime
    ended: datetime | None = None


@dataclass
class Element:
    """An element of an array."""

    array: int
    index: int
    name: str
    folder: Path
    throttle: int
    excluded_nodes: set[str]
    state: str = "PENDING"
    eligible_at: datetime = START
    runs: list[Run] = field(default_factory=list)
    worker: WorkerThread | None = None

    @property
    def id(self) -> str:
        return f"{self.array}_{self.index}"


class SlurmPrograms:
    """The programs and the state that they report.

    Attributes:
        now: the cluster's clock.
        unresponsive: programs that do not answer and have no effect.
        late: sbatch does not answer, but takes effect later.
        dies: the calling process is killed: "before" or "after" sbatch takes effect.
        dead: it was.
        accepted: scripts that sbatch has yet to act on.
        max_array_size: as scontrol reports it: one more than the elements of an array.
        max_submitted: number of jobs that may be pending or running; None: any.
        max_running: number of jobs that the QOS lets run at a time; None: any.
        held: whether the QOS held pending jobs when jobs were started last.
        calls: number of calls by program.
    """

    def __init__(self, nodes: int) -> None:
        self.max_array_size = 5
        self.max_submitted: int | None = None
        self.max_running: int | None = None
        self.held = False
        self.calls: Counter[str] = Counter()
        self.now = START
        self.nodes = [f"node{number}" for number in range(1, nodes + 1)]
        self.elements: list[Element] = []
        self.arrays = 0
        self.unresponsive: set[str] = set()
        self.late = False
        self.dies: str | None = None
        self.dead = False
        self.accepted: list[Path] = []

    def end(self, element: Element, state: str, *, requeue: bool) -> None:
        """End a job from outside."""
        raise NotImplementedError

    def run_command(self, *command: str, timeout: float = client.COMMAND_TIMEOUT_S) -> str:
        """Replace `dropbench.jobs.slurm.client.run_command`."""
        if self.dead:
            raise Killed
        program = command[0]
        self.calls[program] += 1
        if program in self.unresponsive:
            raise client.SlurmCommandError(f"{program}: Socket timed out")
        if program == "sbatch" and self.dies == "before":
            self.dead = True
            raise Killed
        if program == "sbatch" and self.late:
            self.accepted.append(Path(command[-1]))
            raise client.SlurmCommandError("sbatch: Socket timed out")
        output = str(getattr(self, f"_{program}")(*command[1:]))
        if program == "sbatch" and self.dies == "after":
            self.dead = True
            raise Killed
        return output

    def _sbatch(self, *arguments: str) -> str:
        script = Path(arguments[-1]).read_text()
        last, throttle = map(int, re.findall(r"--array=0-(\d+)%(\d+)", script)[0])
        if last >= self.max_array_size:
            raise client.SlurmCommandError("sbatch: error: Invalid job array specification")
        if self.max_submitted is not None and len(self.alive()) + last >= self.max_submitted:
            raise client.SlurmCommandError("sbatch: error: QOSMaxSubmitJobPerUserLimit")
        self.arrays += 1
        name = re.findall(r"--job-name=(\S+)", script)[0]
        excluded = {node for nodes in re.findall(r"--exclude=(\S+)", script) for node in nodes.split(",")}
        for index in range(last + 1):
            self.elements.append(Element(self.arrays, index, name, Path(arguments[-1]).parent, throttle, excluded))
        return f"{self.arrays}\n"

    def alive(self) -> list[Element]:
        """Return the pending and running elements."""
        return [element for element in self.elements if element.state in ("PENDING", "RUNNING")]

    def _squeue(self, *arguments: str) -> str:
        (names,) = (word.removeprefix("--name=").split(",") for word in arguments if word.startswith("--name="))
        lines = []
        for element in self.elements:
            if element.name in names:
                reason = "QOSMaxJobsPerUserLimit" if self.held and element.state == "PENDING" else "None"
                last = element.runs[-1] if element.runs and element.state != "PENDING" else None
                node, started = (last.node, _format_time(last.started)) if last else ("", "N/A")
                lines.append(
                    f"{element.array}|{element.index}|{element.state}|{node}|{started}|{reason}|{element.name}"
                )
        return "\n".join(lines)

    def _sacct(self, *arguments: str) -> str:
        (arrays,) = (word.removeprefix("--jobs=").split(",") for word in arguments if word.startswith("--jobs="))
        lines = []
        for element in self.elements:
            if str(element.array) in arrays:
                for run in element.runs:
                    known = run.ended is not None and (self.now - run.ended).total_seconds() >= SACCT_LAG_S
                    state = run.state if known else "RUNNING"
                    lines.append(f"{element.id}|{state}|{run.node}|{_format_time(run.started)}|0:0|")
                if element.state == "CANCELLED" and not element.runs:
                    lines.append(f"{element.id}|CANCELLED by 0|None assigned|Unknown|0:0|")
        return "\n".join(lines)

    def _scancel(self, *arguments: str) -> str:
        (chosen,) = arguments
        for element in self.elements:
            is_chosen = chosen == f"--name={element.name}" or element.id in client._elements(chosen)
            if is_chosen and element.state in ("PENDING", "RUNNING"):
                if element.worker is not None:
                    element.worker.send(signal.SIGTERM)
                    for _ in range(3):
                        element.worker.resume()
                self.end(element, "CANCELLED", requeue=False)
        return ""

    def _sinfo(self, *arguments: str) -> str:
        return "\n".join(self.nodes)

    def _scontrol(self, *arguments: str) -> str:
        return f"MaxArraySize            = {self.max_array_size}\n"


def _format_time(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S")
