"""Trials and snapshots into rows: what is there is compared first, so that only differences are written."""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Table,
    and_,
    bindparam,
    cast,
    delete,
    func,
    insert,
    select,
    update,
)

from db.models import FINAL, Attempts, Configs, Memberships, Metrics, Trials
from db.snapshot import Snapshot
from harness.trial import Trial, TrialState

T = TypeVar("T")

CHUNK = 1000
"""Snapshots that are recorded at a time; each may have thousands of metrics."""


def now() -> str:
    """The time as it is kept: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def chunks(items: Iterable[T], size: int = CHUNK) -> Iterator[list[T]]:
    """Lists of at most `size` items."""
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def among(connection: Connection, column: Any, texts: Iterable[str]) -> ColumnElement[bool]:
    """`column` is one of `texts`, which are one parameter: a statement may not have any number of them.

    That is also much quicker than a parameter each, which SQLAlchemy would name one by one.
    """
    wanted = list(texts)
    if connection.dialect.name == "sqlite":
        rows = func.json_each(json.dumps(wanted)).table_valued("value")
    else:
        rows = func.json_array_elements_text(cast(wanted, JSON)).table_valued("value")
    found: ColumnElement[bool] = column.in_(select(rows.c.value))
    return found


def trial_of(config: dict[str, Any], seed: int, weights: str | None) -> Trial:
    """The trial back from its rows."""
    if config.get("weights"):
        config = {**config, "weights": {**config["weights"], "path": weights or ""}}
    return Trial.model_validate({**config, "seed": seed})


def add_configs(connection: Connection, trials: Iterable[Trial]) -> None:
    """Insert the configurations of `trials` that are not there."""
    wanted = {trial.config_id: trial for trial in trials}
    present = set(connection.scalars(select(Configs.c.id).where(among(connection, Configs.c.id, wanted))))
    _insert(connection, Configs, [_config_row(trial) for id, trial in wanted.items() if id not in present])


def add_trials(connection: Connection, trials: Iterable[Trial], state: TrialState, reason: str | None = None) -> None:
    """Insert trials that are known not to be there."""
    rest = {"state": state, "reason": reason, "submission_id": None, "created_at": now()}
    rest["updated_at"] = rest["created_at"]
    _insert(connection, Trials, [{**_identity(trial), **rest} for trial in trials])


def add_memberships(connection: Connection, pairs: Iterable[tuple[str, str]]) -> None:
    """Insert the (suite, trial id) pairs that are not there."""
    by_suite: dict[str, list[str]] = {}
    for suite, id in dict.fromkeys(pairs):
        by_suite.setdefault(suite, []).append(id)
    for suite, ids in by_suite.items():
        here = Memberships.c.suite == suite, among(connection, Memberships.c.trial_id, ids)
        present = set(connection.scalars(select(Memberships.c.trial_id).where(*here)))
        _insert(connection, Memberships, [{"suite": suite, "trial_id": id} for id in ids if id not in present])


def record(connection: Connection, snapshots: Sequence[Snapshot]) -> None:
    """Make the rows of these trials what the snapshots say; memberships are only ever added."""
    latest = {snapshot.trial.id: snapshot for snapshot in snapshots}
    add_configs(connection, [snapshot.trial for snapshot in latest.values()])
    _record_trials(connection, latest)
    add_memberships(connection, [(suite, id) for id, snapshot in latest.items() for suite in snapshot.suites])
    _replace(
        connection, Attempts, latest,
        lambda id, snapshot: [{"trial_id": id, **attempt} for attempt in snapshot.attempts],
    )  # fmt: skip
    _replace(
        connection, Metrics, latest,
        lambda id, snapshot: [metric_row(snapshot.trial, *metric) for metric in snapshot.metrics],
    )  # fmt: skip


def metric_row(trial: Trial, name: str, step: int, value: float | None) -> dict[str, Any]:
    """A row of `Metrics`."""
    config_id = trial.config_id if step == FINAL else None
    return {"trial_id": trial.id, "name": name, "step": step, "value": value, "config_id": config_id}


def _record_trials(connection: Connection, latest: dict[str, Snapshot]) -> None:
    query = select(Trials).where(among(connection, Trials.c.id, latest))
    present = {row["id"]: dict(row) for row in connection.execute(query).mappings()}
    fresh, changed = [], []
    for id, snapshot in latest.items():
        old = present.get(id)
        row = {
            **_identity(snapshot.trial),
            "state": snapshot.state,
            "reason": snapshot.reason,
            "submission_id": old["submission_id"] if old and snapshot.state in ("submitted", "running") else None,
            "created_at": snapshot.created_at or (old["created_at"] if old else now()),
            "updated_at": snapshot.updated_at or now(),
        }
        if old is None:
            fresh.append(row)
        elif old != row:
            changed.append({f"new_{key}": value for key, value in row.items()})
    _insert(connection, Trials, fresh)
    if changed:
        values: dict[str, Any] = {
            column.name: bindparam(f"new_{column.name}") for column in Trials.columns if column is not Trials.c.id
        }
        connection.execute(update(Trials).where(Trials.c.id == bindparam("new_id")).values(values), changed)


def _replace(
    connection: Connection,
    table: Table,
    latest: dict[str, Snapshot],
    rows_of: Callable[[str, Snapshot], list[dict[str, Any]]],
) -> None:
    """Make the rows of a table that belong to these trials the given ones, touching only those that differ."""
    key = [column.name for column in table.primary_key]
    wanted = {tuple(row[name] for name in key): row for id, one in latest.items() for row in rows_of(id, one)}
    query = select(table).where(among(connection, table.c.trial_id, latest))
    present = {tuple(row[name] for name in key): dict(row) for row in connection.execute(query).mappings()}
    stale = [
        {f"old_{name}": part for name, part in zip(key, place, strict=True)}
        for place, row in present.items()
        if wanted.get(place) != row
    ]
    fresh = [row for place, row in wanted.items() if present.get(place) != row]
    if stale:
        here = and_(*(table.c[name] == bindparam(f"old_{name}") for name in key))
        connection.execute(delete(table).where(here), stale)
    _insert(connection, table, fresh)


def _insert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows in the order of their key: an index takes neighbours at a fraction of what scattered ones cost."""
    if rows:
        rows.sort(key=operator.itemgetter(*table.primary_key.columns.keys()))
        connection.execute(insert(table), rows)


def _identity(trial: Trial) -> dict[str, Any]:
    return {
        "id": trial.id,
        "config_id": trial.config_id,
        "seed": trial.seed,
        "weights": trial.weights.path if trial.weights else None,
    }


def _config_row(trial: Trial) -> dict[str, Any]:
    config = trial.config()
    return {
        "id": trial.config_id,
        "task": trial.task,
        "data": trial.data.name,
        "fingerprint": trial.data.fingerprint,
        "model": trial.model,
        "regularizer": trial.regularizer.name,
        "params": config["regularizer"]["params"],
        "schedule": trial.schedule,
        "align": trial.align,
        "preset": trial.preset,
        "overrides": config["overrides"],
        "config": config,
    }
