"""SLURM's command-line programs: run them, and parse their answers into plain values.

Functions raise `SlurmCommandError` if their program fails, unless they return a default then.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace

from dropbench.harness.errors import InputError
from dropbench.jobs.slurm.execution import NEVER_STARTS, Execution

COMMAND_TIMEOUT_S = 60.0
"""Seconds to wait for an answer; a busy slurmctld may take as long."""

DEFAULT_MAX_ARRAY_SIZE = 1000
"""Elements of an array if the cluster does not report its limit. SLURM's default is 1001, counted from 0."""


class SlurmCommandError(Exception):
    """A program is missing, failed or timed out; the message says which and why, in one line."""


class SubmissionRefusedError(InputError):
    """sbatch refuses a script; the message contains its answer."""

    @property
    def job_limit_reached(self) -> bool:
        """Return whether it refuses because a user, an account or the cluster has reached its limit of jobs.

        Limits on a single job come with a text that names all limits: "job submit limit, user's size and/or time".
        """
        limits = r"job submit limit|MaxSubmit|MaxJobCount"
        return re.search(limits, str(self)) is not None and not re.search(NEVER_STARTS, str(self))

    @property
    def array_too_long(self) -> bool:
        """Return whether the array is longer than the cluster's MaxArraySize, which scontrol did not report."""
        return "Invalid job array specification" in str(self)

    @property
    def temporary(self) -> bool:
        """Return whether the controller was not reached, as while it restarts or is busy."""
        unreachable = r"Socket timed out|Unable to contact slurm controller|Connection refused|temporarily un"
        return re.search(unreachable, str(self)) is not None


def run_command(*command: str, timeout: float = COMMAND_TIMEOUT_S) -> str:
    """Run a program and return its output; raise SlurmCommandError if the program is missing, failed or timed out."""
    environment = dict(os.environ)
    if command[0] != "sbatch":  # sbatch passes its environment on to the job
        # Times in UTC, and no output format of the user's.
        formats = re.compile(r"S(QUEUE|ACCT|LURM_TIME)_")
        environment = {key: value for key, value in os.environ.items() if not formats.match(key)} | {"TZ": "UTC"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True, env=environment)
    except FileNotFoundError:
        raise SlurmCommandError(f"{command[0]} not found") from None
    except subprocess.TimeoutExpired:
        raise SlurmCommandError(f"{command[0]} did not answer within {timeout:.0f} s") from None
    except subprocess.CalledProcessError as error:
        message = " ".join((error.stderr or error.stdout or f"exit code {error.returncode}").split())
        raise SlurmCommandError(message if message.startswith(command[0]) else f"{command[0]}: {message}") from None
    return done.stdout


def sleep(seconds: float) -> None:
    """Wait; a simulated cluster advances its clock instead."""
    time.sleep(seconds)


def list_jobs(names: Iterable[str]) -> Iterator[tuple[str, str, int, Execution]]:
    """Yield the name, job id, array element and current execution of every job with one of these names (squeue)."""
    output = run_command(
        *("squeue", "--noheader", "--array", "--states=all", "--format=%F|%K|%T|%N|%S|%r|%j"),
        f"--name={','.join(names)}",
    )
    for job_id, element, state, nodes, started_at, reason, name in _table(output, 7):
        execution = Execution(state, nodes, _utc(started_at), reason=reason)
        yield name, job_id, int(element) if element.isdigit() else 0, execution


def list_executions(job_ids: Iterable[str]) -> dict[str, list[Execution]]:
    """Return every execution of some jobs by id, those of an array's elements as ``12_3``, in order (sacct)."""
    # --duplicates: a requeued job has one line per execution.
    output = run_command(
        *("sacct", "--duplicates", "--noheader", "--parsable2", f"--jobs={','.join(job_ids)}"),
        "--format=JobID,State,NodeList,Start,ExitCode,MaxRSS",
    )
    executions: dict[str, list[Execution]] = {}
    for id, state, nodes, started_at, exit_code, max_rss in _table(output, 6):
        id, _, step = id.partition(".")
        state = state.partition(" ")[0].rstrip("+")  # CANCELLED by 1000
        if not step:
            for element in _elements(id):
                executions.setdefault(element, []).append(Execution(state, nodes, _utc(started_at), exit_code))
        elif id in executions:
            last = executions[id][-1]
            peak = max((value for value in (last.max_rss, _bytes(max_rss)) if value is not None), default=None)
            executions[id][-1] = replace(last, step_states=(*last.step_states, state), max_rss=peak)
    return executions


def max_array_size() -> int:
    """Return how many elements an array may have."""
    limit = _configured("MaxArraySize")
    return DEFAULT_MAX_ARRAY_SIZE if limit is None else max(1, limit - 1)


def default_memory() -> float | None:
    """Return the GB that a job of one CPU core gets if it requests none; None if that is unlimited or not known."""
    limit = _configured("DefMemPer(?:CPU|Node)")
    return None if limit is None else limit / 1024


def _configured(name: str) -> int | None:
    """Return a number of the cluster's configuration; None if it has none, or does not answer."""
    try:
        value = re.search(rf"^{name}\s*=\s*(\d+)", run_command("scontrol", "show", "config"), re.MULTILINE)
    except SlurmCommandError:
        return None
    return int(value[1]) if value else None


def list_nodes(partition: str | None) -> set[str]:
    """Return the nodes of a partition, or of all; empty if sinfo does not answer."""
    option = [f"--partition={partition}"] if partition else []
    try:
        return set(run_command("sinfo", "--noheader", "--Node", "--format=%N", *option).split())
    except SlurmCommandError:
        return set()


def submit(script: str) -> str:
    """Submit a script; return its id. Raise SlurmCommandError if sbatch refuses, or is silent: the job may exist."""
    output = run_command("sbatch", "--parsable", script)
    job_id = output.strip().partition(";")[0]
    if not job_id.isdigit():
        raise SlurmCommandError(f"sbatch: expected a job id, got '{' '.join(output.split())}'")
    return job_id


def cancel(name: str) -> None:
    """Cancel the jobs of a name, pending or running; after an error they may still run."""
    run_command("scancel", f"--name={name}")


def cancel_elements(array: str, elements: Iterable[int]) -> None:
    """Cancel elements of an array, pending or running; after an error they may still run."""
    # With --state=PENDING, SLURM (22.05) cancels all pending elements of the array, not these alone.
    run_command("scancel", f"{array}_[{','.join(map(str, elements))}]")


def _table(output: str, columns: int) -> list[list[str]]:
    lines = [line.split("|", columns - 1) for line in output.splitlines()]
    if bad := next((line for line in lines if len(line) != columns), None):
        raise SlurmCommandError(f"expected {columns} columns, got '{'|'.join(bad)}'")
    return lines


def _elements(id: str) -> list[str]:
    """Return the ids of an array's elements from ``12_[0,2-4%2]``, the id of those that never started."""
    array, bracket, elements = id.rstrip("]").partition("_[")
    if not bracket:
        return [id]
    ranges = (part.partition("-") for part in elements.partition("%")[0].split(","))
    return [f"{array}_{number}" for first, _, last in ranges for number in range(int(first), int(last or first) + 1)]


def _utc(time: str) -> str | None:
    """Return 2026-01-31T12:00:00 with its offset; None for "Unknown" and "None"."""
    return f"{time}+00:00" if time[:1].isdigit() else None


def _bytes(size: str) -> int | None:
    match = re.fullmatch(r"([\d.]+)([KMGT]?)", size)
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2] or " ")) if match else None
