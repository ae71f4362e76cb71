"""One execution of a SLURM job, and the state of the attempt that it ran."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from dropbench.harness.errors import count_of

CANCELLED = "cancelled on the cluster"
"""The cause of a trial whose job was cancelled by SLURM's own programs."""
OUT_OF_MEMORY = "killed: out of memory"  # followed by peak and node

_CLOCK_SKEW_S = 5

_ALIVE = {
    "PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "STOPPED", "COMPLETING", "RESIZING", "SIGNALING", "STAGE_OUT",
    "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD",
}  # fmt: skip
"""States of jobs that run or will run. A held job counts: it runs once it is released."""

NEVER_STARTS = r"PerJob|WallDuration|Partition(Config|.*Limit)|BadConstraints|NotAllowed|^Invalid(QOS|Account)"
"""Pattern of the reasons for which a job waits in vain: it requests what it cannot get."""
WAITS: dict[str, str] = {
    NEVER_STARTS: "it never starts: cancel its trials, change the profile, `dropbench retry` and `submit` them",
    "Held|held": "release it: `scontrol release JOBID`",
    "(QOS|Assoc).*Minutes": "the budget is used up: wait for the next one, or set another `account` or `qos`",
    "QOS|Assoc": "a limit of your QOS or account: it starts when other jobs end",
    "ReqNodeNotAvail|Down|DOWN|Inactive|Reservation": "its nodes are not available: see `sinfo`",
}
"""Patterns of SLURM's reasons for which a job waits, other than its turn, and what to do; the first that fits holds."""


@dataclass(frozen=True)
class Execution:
    """One execution of a job or of an array element; a requeued job has several.

    Attributes:
        state: SLURM's state: COMPLETED, NODE_FAIL, …
        nodes: SLURM's node list.
        started_at: ISO 8601, UTC; None while pending.
        exit_code: exit code and signal, as ``0:9``.
        step_states: states of its steps.
        max_rss: peak memory of a task of its steps in bytes, as far as SLURM sampled it.
        reason: why it waits, by SLURM's name.
    """

    state: str
    nodes: str = ""
    started_at: str | None = None
    exit_code: str | None = None
    step_states: tuple[str, ...] = ()
    max_rss: int | None = None
    reason: str = ""

    @property
    def alive(self) -> bool:
        """Return whether it runs or will run."""
        return self.state in _ALIVE


def exit_cause(execution: Execution, log: str = "") -> tuple[str, str] | None:
    """Return the state and the cause of an attempt from how SLURM ended its job; None if SLURM did not end it.

    If SLURM limits memory by polling, only the job's log says that it killed the job.
    """
    state, where = execution.state, f" on {execution.nodes}" if execution.nodes else ""
    if "OUT_OF_MEMORY" in (state, *execution.step_states) or re.search(r"[Ee]xceeded (job|step) memory limit", log):
        peak = f" (peak {execution.max_rss / 2**20:,.0f} MiB)" if execution.max_rss else ""
        return "out_of_memory", f"{OUT_OF_MEMORY}{peak}{where}"
    causes = {
        "NODE_FAIL": ("node_failure", f"the node failed: {execution.nodes}"),
        "BOOT_FAIL": ("node_failure", f"the node did not boot: {execution.nodes}"),
        "TIMEOUT": ("timeout", f"killed at its time limit{where}"),
        "DEADLINE": ("timeout", f"killed at its deadline{where}"),
        "PREEMPTED": ("preempted", f"preempted without a checkpoint{where}"),
        "REQUEUED": ("preempted", f"requeued without a checkpoint{where}"),
        "CANCELLED": ("cancelled", CANCELLED),
    }
    return causes.get(state)


def explain_waits(executions: Iterable[Execution]) -> list[str]:
    """Return a line per reason for which pending jobs wait, if it is not that others come first."""
    lines = []
    for reason, count in Counter(run.reason for run in executions if run.state == "PENDING").items():
        advice = next((advice for pattern, advice in WAITS.items() if re.search(pattern, reason)), None)
        if advice is not None:
            lines.append(f"{count_of(count, 'job')} waiting in SLURM ({reason}): {advice}.")
    return lines


def last_started_by(executions: Sequence[Execution], time: str | None) -> Execution | None:
    """Return the last execution that started by `time` (ISO 8601, UTC), or the last of all; None if there is none.

    The time may come from another machine's clock, and SLURM's times are whole seconds.
    """
    if time is not None:
        limit = add_seconds(time, _CLOCK_SKEW_S)
        executions = [run for run in executions if run.started_at is not None and run.started_at[:19] <= limit]
    return executions[-1] if executions else None


def add_seconds(time: str, seconds: int) -> str:
    """Return an ISO 8601 time plus some seconds, in UTC, to the second and without an offset."""
    return datetime.fromtimestamp(datetime.fromisoformat(time).timestamp() + seconds, UTC).isoformat()[:19]
