"""The cost of trials: the resources allocated to their attempts, used or not, and for how long."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Attempts, Submissions
from dropbench.db.store.requests import MEMBERS
from dropbench.db.store.store import Store
from dropbench.harness.cli.text_table import TextTable

By = Literal["suite", "user", "attempt"]


@dataclass
class Usage:
    """The total cost of some attempts.

    Attributes:
        name: the suite, the user, or the attempt (trial id/number); "" for attempts without a suite or user.
        attempts: number of attempts.
        gpu_hours: GPU-hours allocated.
        cpu_hours: CPU-core-hours allocated.
        peak_memory_bytes: the maximum over the attempts, as far as known.
        waited_hours: from the submission, or the end of the previous attempt, to the start.
        states: number of attempts by state.
    """

    name: str
    attempts: int = 0
    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    peak_memory_bytes: int | None = None
    waited_hours: float = 0.0
    states: dict[str, int] = field(default_factory=dict)

    def add(self, row: Any, hours: float) -> None:
        """Add an attempt that lasted `hours`."""
        self.attempts += 1
        self.gpu_hours += hours * (row.gpus or 0)
        self.cpu_hours += hours * (row.cpus or 1)
        if row.peak_memory_bytes is not None:
            self.peak_memory_bytes = max(self.peak_memory_bytes or 0, row.peak_memory_bytes)
        self.waited_hours += (row.waited_seconds or 0) / 3600
        self.states[row.state] = self.states.get(row.state, 0) + 1


def usage(store: Store, by: By) -> tuple[list[Usage], Usage]:
    """Return the cost of all attempts by group, and their total.

    An attempt counts for every suite that contains its trial, but once in the total. A running one counts until now.
    """
    groups: dict[str, Usage] = {}
    total = Usage("all")
    now = datetime.now(UTC)
    for names, row in _attempts(store, by):
        hours = 0.0
        if row.started_at:
            ended = datetime.fromisoformat(row.ended_at) if row.ended_at else now
            hours = max(0.0, (ended - datetime.fromisoformat(row.started_at)).total_seconds() / 3600)
        total.add(row, hours)
        for name in names:
            groups.setdefault(name, Usage(name)).add(row, hours)
    return [groups[name] for name in sorted(groups)], total


def _attempts(store: Store, by: By) -> Iterator[tuple[list[str], Any]]:
    costs = Attempts.c["started_at", "ended_at", "gpus", "cpus", "peak_memory_bytes", "waited_seconds"]
    query = select(*Attempts.c["trial_id", "number", "state"], *costs, Submissions.c.username)
    query = query.outerjoin(Submissions, Submissions.c.id == Attempts.c.submission_id)
    with reading(store.engine) as connection:
        suites: dict[str, list[str]] = {}
        if by == "suite":
            for suite, id in connection.execute(select(MEMBERS.c.suite, MEMBERS.c.trial)):
                suites.setdefault(id, []).append(suite)
        for row in connection.execution_options(yield_per=10_000).execute(query):
            if by == "suite":
                yield suites.get(row.trial_id, [""]), row
            else:
                yield [row.username or "" if by == "user" else f"{row.trial_id}/{row.number}"], row


def table(groups: list[Usage], total: Usage, by: By) -> TextTable:
    """Return a readable table, the total last."""
    rows = []
    for usage in [*groups, total]:
        gpu, cpu, waited = (f"{hours:.2f}" for hours in (usage.gpu_hours, usage.cpu_hours, usage.waited_hours))
        memory = "" if usage.peak_memory_bytes is None else f"{usage.peak_memory_bytes / 2**30:.1f} GiB"
        states = ", ".join(f"{count} {state}" for state, count in sorted(usage.states.items()))
        rows.append([usage.name or "(none)", str(usage.attempts), gpu, cpu, memory, waited, states])
    header = (by, "attempts", "GPU-hours", "CPU-hours", "peak memory", "hours waited", "ended")
    return TextTable.of_rows(header, rows)
