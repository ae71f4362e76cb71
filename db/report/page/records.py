"""What is known of single trials: from the database, and of those that have not ended from their run directories."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from db.connection import reading
from db.models import FINAL, Attempts, Configs, Memberships, Metrics, Trials
from db.rows import among
from db.snapshot import snapshot
from db.store import Store
from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.trial import FINAL_STATES

Points = dict[str, list[tuple[int, float | None]]]
"""Curves of a trial: (step, value) in order, by name."""


@dataclass(frozen=True)
class Record:
    """A trial as a page tells of it.

    Attributes:
        config: all that identifies it but its seed (`harness.trial.Trial.config`).
        suites: those that asked for it.
        attempts: columns of the table of that name, in order.
        metrics: its final values.
    """

    id: str
    seed: int
    state: str
    reason: str | None
    config: dict[str, Any]
    suites: list[str] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, float | None] = field(default_factory=dict)


def records(store: Store, runs: Path, ids: Sequence[str]) -> dict[str, Record]:
    """The trials of these ids, those of them that the database knows, in the order given.

    Args:
        store: the database.
        runs: the root of the run directories.
        ids: whole ids.
    """
    found: dict[str, Record] = {}
    with reading(store.engine) as connection:
        trials = select(Trials.c.id, Trials.c.seed, Trials.c.state, Trials.c.reason, Configs.c.config).join(Configs)
        for row in connection.execute(trials.where(among(connection, Trials.c.id, ids))):
            found[row.id] = Record(row.id, row.seed, row.state, row.reason, row.config)
        members = select(Memberships.c.trial_id, Memberships.c.suite).order_by(Memberships.c.suite)
        for id, suite in connection.execute(members.where(among(connection, Memberships.c.trial_id, ids))):
            found[id].suites.append(suite)
        attempts = select(Attempts).order_by(Attempts.c.number)
        for attempt in connection.execute(attempts.where(among(connection, Attempts.c.trial_id, ids))).mappings():
            found[attempt["trial_id"]].attempts.append(dict(attempt))
        final = select(Metrics.c.trial_id, Metrics.c.name, Metrics.c.value).where(Metrics.c.step == FINAL)
        for id, name, value in connection.execute(final.where(among(connection, Metrics.c.trial_id, ids))):
            found[id].metrics[name] = value
    for record in found.values():
        if record.state not in FINAL_STATES:
            _look(record, RunDirectory(runs / record.id))
    return {id: found[id] for id in ids if id in found}


def configs(store: Store, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The configurations of these trials, by id."""
    query = select(Trials.c.id, Configs.c.config).join(Configs)
    with reading(store.engine) as connection:
        rows = connection.execute(query.where(among(connection, Trials.c.id, ids))).all()
    return {row.id: row.config for row in rows}


def _look(record: Record, directory: RunDirectory) -> None:
    """Attempts and final values of a trial that may have gone on since the database was brought up to date."""
    try:
        here = snapshot(directory)
    except InputError:
        return
    record.attempts[:] = here.attempts
    record.metrics.update({name: value for name, step, value in here.metrics if step == FINAL})


def curves(store: Store, runs: Path, ids: Iterable[str], names: Iterable[str] | None) -> dict[str, Points]:
    """The curves of these names, by trial; trials without any are left out.

    Args:
        store: the database.
        runs: the root of the run directories.
        ids: of trials.
        names: ``train/loss``, ``dev/accuracy``; None: all.
    """
    ids, wanted = list(ids), None if names is None else set(names)
    found: dict[str, Points] = {}
    order = Metrics.c.trial_id, Metrics.c.name, Metrics.c.step
    query = select(*order, Metrics.c.value).where(Metrics.c.step != FINAL).order_by(*order)
    if wanted is not None:
        query = query.where(Metrics.c.name.in_(wanted))
    with reading(store.engine) as connection:
        for id, name, step, value in connection.execute(query.where(among(connection, Metrics.c.trial_id, ids))):
            found.setdefault(id, {}).setdefault(name, []).append((step, value))
    for id, row in store.states(ids).items():
        if row.state not in FINAL_STATES and (runs / id / "events.jsonl").exists():
            found.update(_running(RunDirectory(runs / id), wanted))
    return found


def _running(directory: RunDirectory, wanted: set[str] | None) -> dict[str, Points]:
    try:
        metrics = snapshot(directory).metrics
    except InputError:
        return {}
    points: Points = {}
    for name, step, value in metrics:
        if step != FINAL and (wanted is None or name in wanted):
            points.setdefault(name, []).append((step, value))
    return {directory.id: {name: sorted(values, key=lambda one: one[0]) for name, values in points.items()}}
