"""What the first page shows: how many trials are in which state, what runs, the suites, and what changed last."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from db.connection import reading
from db.models import Attempts, Configs, Memberships, Trials
from db.report.dashboard.live import Live
from db.report.page.details import duration
from db.rows import among
from harness.trial import TRIAL_STATES

LATEST = 12
MOST_WORKING = 60
SAMPLED = 200
"""Finished attempts of a suite by which it is reckoned how long the rest takes."""


@dataclass
class Progress:
    """How far a suite is: its trials by state, and a sentence on how long it may take."""

    name: str | None
    states: dict[str, int] = field(default_factory=dict)
    left: str = ""

    @property
    def total(self) -> int:
        return sum(self.states.values())

    @property
    def done(self) -> int:
        return sum(count for state, count in self.states.items() if state in ("succeeded", "skipped"))

    def told(self) -> str:
        """``3 succeeded, 1 failed``, in the order of the states."""
        return ", ".join(f"{self.states[state]:,} {state}" for state in TRIAL_STATES if self.states.get(state))


@dataclass(frozen=True)
class Line:
    """A trial that runs, or that changed lately, in a line."""

    id: str
    label: str
    state: str
    reason: str | None = None
    step: int | None = None
    steps: int | None = None
    rate: str = ""
    loss: str = ""
    left: str = ""
    at: str = ""


def suites(live: Live) -> list[Progress]:
    """Every suite with trials; those without one, if there are any, last."""
    activity = live.activity()
    found = {name: dict(states) for name, states in live.kept("suites", lambda: _counted(live)).items()}
    base = live.base.states([*activity.states])
    members = live.base.suites([*activity.states])
    for id, (state, _) in activity.states.items():
        if id in base and base[id].state != state:
            for name in members.get(id, [None]):
                states = found.setdefault(name, {})
                states[base[id].state] = states.get(base[id].state, 0) - 1
                states[state] = states.get(state, 0) + 1
    running: dict[str | None, list[float | None]] = {}
    for one in activity.working:
        for name in members.get(one.id, [None]):
            running.setdefault(name, []).append(one.seconds)
    return [
        Progress(name, states, _left(live, name, states, running.get(name, [])))
        for name, states in sorted(found.items(), key=lambda item: (item[0] is None, item[0] or ""))
    ]


def _counted(live: Live) -> dict[str | None, dict[str, int]]:
    found: dict[str | None, dict[str, int]] = {}
    count = func.count()
    with reading(live.base.engine) as connection:
        query = select(Memberships.c.suite, Trials.c.state, count).join(Trials, Trials.c.id == Memberships.c.trial_id)
        for name, state, number in connection.execute(query.group_by(Memberships.c.suite, Trials.c.state)):
            found.setdefault(name, {})[state] = number
        alone = select(Trials.c.state, count).where(Trials.c.id.not_in(select(Memberships.c.trial_id)))
        for state, number in connection.execute(alone.group_by(Trials.c.state)):
            found.setdefault(None, {})[state] = number
    return found


def _left(live: Live, name: str | None, states: dict[str, int], running: list[float | None]) -> str:
    """About how long: what runs at its rate, what waits as long as the finished ones took, as many at a time as now."""
    known = [seconds for seconds in running if seconds is not None]
    if not known or name is None:
        return ""
    waiting = states.get("queued", 0) + states.get("submitted", 0) + len(running) - len(known)
    took = live.kept(("took", name), lambda: _took(live, name)) if waiting else 0.0
    if took is None:
        return ""
    return f"about {duration(max(max(known), (sum(known) + waiting * took) / len(running)))} left"


def _took(live: Live, name: str) -> float | None:
    """Seconds that the finished attempts of a suite took on average."""
    query = (
        select(Attempts.c.started_at, Attempts.c.ended_at)
        .join(Memberships, Memberships.c.trial_id == Attempts.c.trial_id)
        .where(Memberships.c.suite == name, Attempts.c.state == "succeeded")
        .limit(SAMPLED)
    )
    with reading(live.base.engine) as connection:
        pairs = [(started, ended) for started, ended in connection.execute(query) if started and ended]
    took = [
        (datetime.fromisoformat(ended) - datetime.fromisoformat(started)).total_seconds() for started, ended in pairs
    ]
    return sum(took) / len(took) if took else None


def working(live: Live) -> list[Line]:
    """The trials that run, those that end first above."""
    found = sorted(live.activity().working, key=lambda one: (one.seconds is None, one.seconds or 0.0, one.id))
    found = found[:MOST_WORKING]
    labels = _labels(live, [one.id for one in found])
    return [line_of(one, labels.get(one.id, "")) for one in found]


def line_of(one: Any, label: str) -> Line:
    """A running trial (`jobs.activity.Working`) as text."""
    rate = ""
    if one.rate:
        rate = f"{one.rate:.3g} steps/s" if one.rate >= 1 else f"{1 / one.rate:.3g} s/step"
    return Line(
        one.id, label, "running", None, one.step, one.steps, rate,
        "" if one.loss is None else f"{one.loss:.4g}",
        "" if one.seconds is None else duration(one.seconds),
    )  # fmt: skip


def latest(live: Live) -> list[Line]:
    """The trials that changed last."""
    query = select(Trials.c.id, Trials.c.state, Trials.c.reason, Trials.c.updated_at).order_by(
        Trials.c.updated_at.desc()
    )
    with reading(live.base.engine) as connection:
        rows = connection.execute(query.where(Trials.c.state != "queued").limit(LATEST)).all()
    labels = _labels(live, [row.id for row in rows])
    seen = live.store.seen
    return [
        Line(row.id, labels.get(row.id, ""), state, reason, at=row.updated_at[:19].replace("T", " "))
        for row in rows
        for state, reason in [seen.get(row.id, (row.state, row.reason))]
    ]


def _labels(live: Live, ids: Iterable[str]) -> dict[str, str]:
    """What a trial is in a few words."""
    columns = (
        Configs.c.task,
        Configs.c.data,
        Configs.c.model,
        Configs.c.regularizer,
        Configs.c.params,
        Configs.c.schedule,
    )
    query = select(Trials.c.id, Trials.c.seed, *columns).join(Configs)
    found = {}
    with reading(live.base.engine) as connection:
        for row in connection.execute(query.where(among(connection, Trials.c.id, ids))):
            ratio = f" {row.params['ratio']:g}" if isinstance(row.params.get("ratio"), float) else ""
            found[row.id] = f"{row.regularizer}{ratio} · {row.model} · {row.data} · seed {row.seed}"
    return found
