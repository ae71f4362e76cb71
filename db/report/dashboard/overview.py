"""Content of the start page: running trials, progress of the suites, and latest changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from dropbench.db.report.dashboard.live import Live
from dropbench.db.report.page.details import duration, time_text
from dropbench.db.report.page.limits import Limits
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Attempts, Trials
from dropbench.db.store.requests import MEMBERS, in_suites
from dropbench.harness.regularizers.spec import spec_label
from dropbench.harness.trials.trial import TRIAL_STATES

SAMPLE_SIZE = 200
"""Finished attempts of a suite from which the remaining time is estimated."""


@dataclass
class SuiteProgress:
    """Trials of a suite by state, and the estimated remaining time."""

    name: str | None
    states: dict[str, int] = field(default_factory=dict)
    remaining: str = ""

    @property
    def total(self) -> int:
        return sum(self.states.values())

    @property
    def done(self) -> int:
        return sum(count for state, count in self.states.items() if state in ("succeeded", "skipped"))

    def summary(self) -> str:
        """Return ``3 succeeded, 1 failed``, in the order of the states."""
        return ", ".join(f"{self.states[state]:,} {state}" for state in TRIAL_STATES if self.states.get(state))


@dataclass(frozen=True)
class TrialLine:
    """A recently changed trial in one line."""

    id: str
    label: str
    state: str
    reason: str | None
    updated: str


def suites(live: Live) -> list[SuiteProgress]:
    """Return every suite with trials; trials without a suite come last."""
    activity = live.activity()
    progress = {name: dict(states) for name, states in live.cached("suites", lambda: _count_trials(live)).items()}
    rows = live.base.states([*activity.states])
    members = live.base.suites([*activity.states])
    for id, (state, _) in activity.states.items():
        if id in rows and rows[id].state != state:
            for name in members.get(id, [None]):
                states = progress.setdefault(name, {})
                states[rows[id].state] = states.get(rows[id].state, 0) - 1
                states[state] = states.get(state, 0) + 1
    running: dict[str | None, list[float | None]] = {}
    for trial in activity.running:
        for name in members.get(trial.id, [None]):
            running.setdefault(name, []).append(trial.seconds)
    return [
        SuiteProgress(name, states, _remaining(live, name, states, running.get(name, [])))
        for name, states in sorted(progress.items(), key=lambda item: (item[0] is None, item[0] or ""))
    ]


def _count_trials(live: Live) -> dict[str | None, dict[str, int]]:
    """Return the number of trials by suite and state; those of no suite by None."""
    members = MEMBERS.c.trial == Trials.c.id
    query = select(MEMBERS.c.suite, Trials.c.state, func.count()).join_from(Trials, MEMBERS, members, isouter=True)
    counts: dict[str | None, dict[str, int]] = {}
    with reading(live.base.engine) as connection:
        for name, state, number in connection.execute(query.group_by(MEMBERS.c.suite, Trials.c.state)):
            counts.setdefault(name, {})[state] = number
    return counts


def _remaining(live: Live, name: str | None, states: dict[str, int], running: list[float | None]) -> str:
    """Return the estimated remaining time.

    Running trials continue at their rate, waiting ones take as long as the finished ones did on average, and as many
    run at a time as now.
    """
    estimated = [seconds for seconds in running if seconds is not None]
    if not estimated or name is None:
        return ""
    waiting = states.get("queued", 0) + states.get("submitted", 0) + len(running) - len(estimated)
    average = live.cached(("mean duration", name), lambda: _mean_duration(live, name)) if waiting else 0.0
    if average is None:
        return ""
    return f"about {duration(max(max(estimated), (sum(estimated) + waiting * average) / len(running)))} left"


def _mean_duration(live: Live, name: str) -> float | None:
    """Return the mean duration of a suite's finished attempts in seconds; None if there are none."""
    query = (
        select(Attempts.c.started_at, Attempts.c.ended_at)
        .where(Attempts.c.trial_id.in_(in_suites([name])), Attempts.c.state == "succeeded")
        .limit(SAMPLE_SIZE)
    )
    with reading(live.base.engine) as connection:
        times = [(start, end) for start, end in connection.execute(query) if start and end]
    seconds = [(datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds() for start, end in times]
    return sum(seconds) / len(seconds) if seconds else None


def running_trials(live: Live) -> list[tuple[Any, str]]:
    """Return the `jobs.queue.train_progress.TrainProgress` of running trials, with labels; the first to end first."""
    trials = sorted(live.activity().running, key=lambda trial: (trial.seconds is None, trial.seconds or 0.0, trial.id))
    trials = trials[: Limits.running]
    labels = _labels(live, [trial.id for trial in trials])
    return [(trial, labels.get(trial.id, "")) for trial in trials]


def latest(live: Live) -> list[TrialLine]:
    """Return the trials that changed last."""
    query = select(Trials.c.id, Trials.c.state, Trials.c.reason, Trials.c.updated_at).where(Trials.c.state != "queued")
    with reading(live.base.engine) as connection:
        rows = connection.execute(query.order_by(Trials.c.updated_at.desc()).limit(Limits.latest)).all()
    labels = _labels(live, [row.id for row in rows])
    lines = []
    for row in rows:
        state, reason = live.store.observed.get(row.id, (row.state, row.reason))
        lines.append(TrialLine(row.id, labels.get(row.id, ""), state, reason, time_text(row.updated_at)))
    return lines


def _labels(live: Live, ids: Sequence[str]) -> dict[str, str]:
    """Return a short description of each trial."""
    labels = {}
    for id, trial in live.base.trials(ids).items():
        ratio = trial.regularizer.params.get("ratio")
        name = spec_label(trial.regularizer.name, {}) + (f" {ratio:g}" if isinstance(ratio, float) else "")
        labels[id] = f"{name} · {trial.model} · {trial.data.name} · seed {trial.seed}"
    return labels
