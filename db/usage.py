"""What trials cost: what was given to their attempts, used or not, for as long as they had it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from sqlalchemy import select

from db.connection import reading
from db.models import Attempts, Memberships, Submissions
from db.store import Store

By = Literal["suite", "user", "attempt"]


@dataclass
class Usage:
    """What some attempts cost together.

    Attributes:
        name: of the suite or user, or of the attempt (trial id/number); "" for what has none.
        attempts: how many.
        gpu_hours: that they had GPUs, each counted.
        cpu_hours: likewise of CPU cores.
        peak_memory_bytes: the most that one of them held, as far as known.
        waited_hours: that they waited between being submitted, or the end of the attempt before, and their start.
        states: how many ended in which state.
    """

    name: str
    attempts: int = 0
    gpu_hours: float = 0.0
    cpu_hours: float = 0.0
    peak_memory_bytes: int | None = None
    waited_hours: float = 0.0
    states: dict[str, int] = field(default_factory=dict)

    def add(self, row: Any, hours: float) -> None:
        """One more attempt, that lasted so many hours."""
        self.attempts += 1
        self.gpu_hours += hours * (row.gpus or 0)
        self.cpu_hours += hours * (row.cpus or 1)
        if row.peak_memory_bytes is not None:
            self.peak_memory_bytes = max(self.peak_memory_bytes or 0, row.peak_memory_bytes)
        self.waited_hours += (row.waited_seconds or 0) / 3600
        self.states[row.state] = self.states.get(row.state, 0) + 1

    def to_json(self) -> dict[str, Any]:
        """The fields."""
        return asdict(self)


def usage(store: Store, by: By) -> tuple[list[Usage], Usage]:
    """What all attempts cost, grouped, and in all.

    An attempt counts for every suite that asked for its trial, and once in the sum. One that runs counts until now.

    Args:
        store: the database.
        by: what to group by.
    """
    groups: dict[str, Usage] = {}
    whole = Usage("all")
    now = datetime.now(UTC)
    for names, row in _attempts(store, by):
        hours = 0.0
        if row.started_at:
            ended = datetime.fromisoformat(row.ended_at) if row.ended_at else now
            hours = max(0.0, (ended - datetime.fromisoformat(row.started_at)).total_seconds() / 3600)
        whole.add(row, hours)
        for name in names:
            groups.setdefault(name, Usage(name)).add(row, hours)
    return [groups[name] for name in sorted(groups)], whole


def _attempts(store: Store, by: By) -> Iterator[tuple[list[str], Any]]:
    columns = (
        *(Attempts.c.trial_id, Attempts.c.number, Attempts.c.state, Attempts.c.started_at, Attempts.c.ended_at),
        *(
            Attempts.c.gpus,
            Attempts.c.cpus,
            Attempts.c.peak_memory_bytes,
            Attempts.c.waited_seconds,
            Submissions.c.username,
        ),
    )
    query = select(*columns).outerjoin(Submissions, Submissions.c.id == Attempts.c.submission_id)
    with reading(store.engine) as connection:
        suites: dict[str, list[str]] = {}
        if by == "suite":
            for suite, id in connection.execute(select(Memberships.c.suite, Memberships.c.trial_id)):
                suites.setdefault(id, []).append(suite)
        for row in connection.execution_options(yield_per=10_000).execute(query):
            if by == "suite":
                yield suites.get(row.trial_id, [""]), row
            else:
                yield [row.username or "" if by == "user" else f"{row.trial_id}/{row.number}"], row


def table(groups: list[Usage], whole: Usage, by: By) -> tuple[list[str], list[list[str]]]:
    """Header and texts, for people; the sum is the last row."""
    head = [by, "attempts", "GPU-hours", "CPU-hours", "peak memory", "hours waited", "ended"]
    return head, [_texts(one) for one in [*groups, whole]]


def _texts(one: Usage) -> list[str]:
    memory = "" if one.peak_memory_bytes is None else f"{one.peak_memory_bytes / 2**30:.1f} GiB"
    states = ", ".join(f"{count} {state}" for state, count in sorted(one.states.items()))
    numbers = [f"{hours:.2f}" for hours in (one.gpu_hours, one.cpu_hours)]
    return [one.name or "(none)", str(one.attempts), *numbers, memory, f"{one.waited_hours:.2f}", states]
