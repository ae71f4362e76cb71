"""SLURM's programs and their answers, as plain values: the one place that knows their formats.

What lives is squeue's word; why something ended is sacct's, which may be late, or not there at all. Neither says
whether a trial is done: that is the run directory's.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from db.rows import chunks
from harness.errors import InputError

PATIENCE = 60.0
"""Seconds to wait for an answer; a busy slurmctld may take as long."""

LAG = 3.0
"""Seconds that sacct may be behind squeue."""

_PAUSE = 0.5

AT_ONCE = 200
"""Names or job numbers in one question: a command line may not have any length."""

MAX_ARRAY = 1000
"""Elements of an array where the cluster does not tell: its own default is 1001, counted from 0."""

CANCELLED = "cancelled on the cluster"
"""The cause where somebody took a job away by SLURM's own programs."""

_LIVING = {
    "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT",
    "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD",
}  # fmt: skip
"""States of jobs that run, or will. One on hold does when somebody lets it."""


_FULL = re.compile(r"job submit limit|MaxSubmit|MaxJobCount")
"""What SLURM says where a user, an account or the cluster has as many jobs as it may."""


class NoAnswerError(Exception):
    """A program is not there, failed, or took too long; the message says which and why, in one line."""

    @property
    def full(self) -> bool:
        """Whether there are as many jobs as there may be."""
        return bool(_FULL.search(str(self)))


class RefusedError(InputError):
    """sbatch does not take a script; `full`: because there are as many jobs as there may be."""

    def __init__(self, message: str, *, full: bool) -> None:
        super().__init__(message)
        self.full = full


@dataclass(frozen=True)
class Execution:
    """One time that a job, or an element of an array, was run, or is waiting to be.

    Attributes:
        state: SLURM's word: COMPLETED, NODE_FAIL, …
        nodes: SLURM's list of them.
        started: ISO 8601, UTC; None while it waits.
        code: the exit code, as ``0:9``: what it returned, and the signal that ended it.
        steps: states of its steps.
        memory: most bytes that a task of a step held, as far as SLURM looked.
    """

    state: str
    nodes: str = ""
    started: str | None = None
    code: str | None = None
    steps: tuple[str, ...] = ()
    memory: int | None = None

    @property
    def alive(self) -> bool:
        """Whether it runs, or will."""
        return self.state in _LIVING


@dataclass
class View:
    """What SLURM said of some jobs.

    Attributes:
        answered: whether squeue did; where not, everything may be alive.
        asked: when, ISO 8601 in UTC, to the second.
        now: what squeue lists, by job name and array element: those that live, and those that ended minutes ago.
        numbers: job numbers by name.
        executions: what sacct lists, by job id (``12_3``), in order; empty where it does not answer.
        lag: seconds that may still be waited for sacct to know what squeue does.
    """

    answered: bool = True
    asked: str = ""
    now: dict[str, dict[int, Execution]] = field(default_factory=dict)
    numbers: dict[str, str] = field(default_factory=dict)
    executions: dict[str, list[Execution]] = field(default_factory=dict)
    lag: float = LAG

    def alive(self, name: str, element: int | None = None) -> bool:
        """Whether any element of an array, or this one, runs or will; in doubt it does.

        For what is taken for dead is run again.
        """
        if not self.answered:
            return True
        elements = self.now.get(name, {})
        found = elements.values() if element is None else [elements[element]] if element in elements else []
        return any(one.alive for one in found)

    def ended(self, name: str, job: str, at: str | None = None) -> Execution | None:
        """How a job ended: the last execution that began by `at` (ISO 8601, UTC), or the last of all.

        None where nobody knows. sacct may be behind; it is waited for, once for all jobs of this view.

        Args:
            name: of the job.
            job: its number, with the element: ``12_3``.
            at: begin of what ended.
        """
        number, _, element = job.partition("_")
        while (found := _last(self.executions.get(job, []), at)) is not None and found.alive and self.lag > 0:
            self.lag -= _PAUSE
            pause(_PAUSE)
            try:
                self.executions |= executions([number])
            except NoAnswerError:
                break
        if found is not None and not found.alive:
            return found
        now = _last([self.now.get(name, {}).get(int(element or 0), Execution("PENDING"))], at)
        return now if now is not None and not now.alive else None


def call(*command: str, patience: float = PATIENCE) -> str:
    """What a program prints.

    Raises:
        NoAnswerError: see there.
    """
    environment = dict(os.environ)
    if command[0] != "sbatch":  # which hands its own to the job
        # Times in UTC; and no format of the user's own.
        own = re.compile(r"S(QUEUE|ACCT|LURM_TIME)_")
        environment = {**{key: value for key, value in environment.items() if not own.match(key)}, "TZ": "UTC"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience, check=True, env=environment)
    except FileNotFoundError:
        raise NoAnswerError(f"no {command[0]} here") from None
    except subprocess.TimeoutExpired:
        raise NoAnswerError(f"{command[0]} did not answer within {patience:.0f} s") from None
    except subprocess.CalledProcessError as error:
        said = " ".join((error.stderr or error.stdout or f"exit code {error.returncode}").split())
        raise NoAnswerError(said if said.startswith(command[0]) else f"{command[0]}: {said}") from None
    return done.stdout


def now() -> datetime:
    """This machine's clock."""
    return datetime.now(UTC)


def pause(seconds: float) -> None:
    """Wait."""
    time.sleep(seconds)


def look(jobs: Sequence[tuple[str, str | None]], *, causes: bool = False) -> View:
    """Ask for jobs by their name and, where it is known, their number.

    Args:
        jobs: (name, number) of each.
        causes: ask sacct, too.
    """
    view = View(asked=now().isoformat()[:19])
    asked = ("squeue", "--noheader", "--array", "--states=all", "--format=%F|%K|%T|%N|%S|%j")
    for part in chunks((name for name, _ in jobs), AT_ONCE):
        try:
            lines = _table(call(*asked, f"--name={','.join(part)}"), 6)
        except NoAnswerError:
            view.answered = False
            break
        for number, element, state, nodes, started, name in lines:
            view.numbers[name] = number
            one = Execution(state, nodes, _time(started))
            view.now.setdefault(name, {})[int(element) if element.isdigit() else 0] = one
    view.numbers |= {name: number for name, number in jobs if number}
    if causes:
        for part in chunks(view.numbers.values(), AT_ONCE):
            try:
                view.executions |= executions(part)
            except NoAnswerError:
                break
    return view


def executions(numbers: Iterable[str]) -> dict[str, list[Execution]]:
    """Every execution of some jobs, by id; all those of an array's elements, each with its steps.

    Raises:
        NoAnswerError: there is no accounting, or it does not answer.
    """
    # -D: a job that was requeued has a line for each time.
    said = call(
        *("sacct", "--duplicates", "--noheader", "--parsable2", f"--jobs={','.join(numbers)}"),
        "--format=JobID,State,NodeList,Start,ExitCode,MaxRSS",
    )
    found: dict[str, list[Execution]] = {}
    for id, state, nodes, started, code, memory in _table(said, 6):
        id, _, step = id.partition(".")
        state = state.partition(" ")[0].rstrip("+")  # CANCELLED by 1000
        if not step:
            found.setdefault(id, []).append(Execution(state, nodes, _time(started), code))
        elif id in found:
            last = found[id][-1]
            most = max((part for part in (last.memory, _bytes(memory)) if part is not None), default=None)
            found[id][-1] = replace(last, steps=(*last.steps, state), memory=most)
    return found


def cause(execution: Execution, log: str = "") -> tuple[str, str] | None:
    """The state of an attempt, and why it ended, from how SLURM ended its job; None where SLURM had no part in it.

    Args:
        execution: the job's.
        log: what the job printed: where memory is watched by polling, SLURM tells there alone of what it killed.
    """
    state, where = execution.state, f" on {execution.nodes}" if execution.nodes else ""
    if "OUT_OF_MEMORY" in (state, *execution.steps) or re.search(r"[Ee]xceeded (job|step) memory limit", log):
        held = f" of {execution.memory / 2**20:,.0f} MiB" if execution.memory else ""
        return "out_of_memory", f"killed for its memory{held}{where}"
    told = {
        "NODE_FAIL": ("node_failure", f"the node failed: {execution.nodes}"),
        "BOOT_FAIL": ("node_failure", f"the node did not start: {execution.nodes}"),
        "TIMEOUT": ("timeout", f"killed at its time limit{where}"),
        "DEADLINE": ("timeout", f"killed at its deadline{where}"),
        "PREEMPTED": ("preempted", f"preempted without a checkpoint{where}"),
        "REQUEUED": ("preempted", f"requeued without a checkpoint{where}"),
        "CANCELLED": ("cancelled", CANCELLED),
    }
    return told.get(state)


def largest_array() -> int:
    """Elements that an array may have at most."""
    try:
        found = re.search(r"^MaxArraySize\s*=\s*(\d+)", call("scontrol", "show", "config"), re.MULTILINE)
    except NoAnswerError:
        return MAX_ARRAY
    return max(1, int(found[1]) - 1) if found else MAX_ARRAY


def nodes(partition: str | None) -> set[str]:
    """The nodes of a partition, or of all; none where nobody tells."""
    where = [f"--partition={partition}"] if partition else []
    try:
        return set(call("sinfo", "--noheader", "--Node", "--format=%N", *where).split())
    except NoAnswerError:
        return set()


def submit(script: str) -> str:
    """Hand a script to sbatch; returns the job's number.

    Raises:
        NoAnswerError: it refuses, or there is no answer; then the job may be there all the same.
    """
    said = call("sbatch", "--parsable", script)
    number = said.strip().partition(";")[0]
    if not number.isdigit():
        raise NoAnswerError(f"sbatch: expected a job's number, got '{' '.join(said.split())}'")
    return number


def cancel(name: str) -> None:
    """Take the jobs of a name out of the queue, and end those that run.

    Raises:
        NoAnswerError: they may live on.
    """
    call("scancel", f"--name={name}")


def later(time: str, seconds: int) -> str:
    """So many seconds after a time, to the second, in UTC and without saying so."""
    return datetime.fromtimestamp(datetime.fromisoformat(time).timestamp() + seconds, UTC).isoformat()[:19]


def _last(known: Sequence[Execution], at: str | None) -> Execution | None:
    """The last of those that began by a time, which is another machine's; SLURM's are whole seconds."""
    if at is not None:
        known = [one for one in known if one.started is not None and one.started[:19] <= later(at, 5)]
    return known[-1] if known else None


def _table(said: str, columns: int) -> list[list[str]]:
    lines = [line.split("|", columns - 1) for line in said.splitlines()]
    if odd := next((line for line in lines if len(line) != columns), None):
        raise NoAnswerError(f"expected {columns} columns, got '{'|'.join(odd)}'")
    return lines


def _time(said: str) -> str | None:
    """2026-01-31T12:00:00 in UTC; None for Unknown and None."""
    return f"{said}+00:00" if said[:1].isdigit() else None


def _bytes(said: str) -> int | None:
    found = re.fullmatch(r"([\d.]+)([KMGT]?)", said)
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " ")) if found else None
