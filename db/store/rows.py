"""Read and write trials and run records as rows. Existing rows are compared first: only differences are written."""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from sqlalchemy import JSON, ColumnElement, Connection, Table, bindparam, cast, delete, func, insert, select, update

from dropbench.db.schema.tables import FINAL, Attempts, Configs, Metrics, Trials
from dropbench.db.store.run_record import RunRecord
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.trials.trial import Trial

T = TypeVar("T")
Row = dict[str, Any]
"""Values by the name of their column."""

CHUNK_SIZE = 1000
"""Run records that are written at a time; each may have thousands of metrics."""


def chunks(items: Iterable[T], size: int = CHUNK_SIZE) -> Iterator[list[T]]:
    """Yield lists of at most `size` items."""
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, size)):
        yield chunk


def in_list(connection: Connection, column: Any, texts: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition that `column` is one of `texts`, passed as a single parameter.

    The number of parameters of a statement is limited, and SQLAlchemy is slow to name many of them.
    """
    values = list(texts)
    if connection.dialect.name == "sqlite":
        rows = func.json_each(json.dumps(values)).table_valued("value")
    else:
        rows = func.json_array_elements_text(cast(values, JSON)).table_valued("value")
    condition: ColumnElement[bool] = column.in_(select(rows.c.value))
    return condition


def load_trial(config: dict[str, Any], seed: int, weights: str | None) -> Trial:
    """Return the trial that a configuration's JSON, a seed and the path of initial weights describe."""
    if config.get("weights"):
        config = {**config, "weights": {**config["weights"], "path": weights or ""}}
    return Trial.model_validate({**config, "seed": seed})


def add_configs(connection: Connection, trials: Iterable[Trial], *, move_data: bool = False) -> None:
    """Insert the configurations of `trials` that do not exist yet; with `move_data`, let others have their folders."""
    by_id = {trial.config_id: trial for trial in trials}
    folder = Configs.c.config[("data", "path")].as_string()
    folders = select(Configs.c.id, folder).where(in_list(connection, Configs.c.id, by_id))
    existing: dict[str, str | None] = dict(connection.execute(folders).all())
    insert_rows(connection, Configs, [config_row(trial) for id, trial in by_id.items() if id not in existing])
    for id in (id for id in existing if move_data and existing[id] != by_id[id].data.path):
        config = config_row(by_id[id])["config"]
        connection.execute(update(Configs).where(Configs.c.id == id).values(config=config))


def add_trials(connection: Connection, trials: Iterable[Trial]) -> None:
    """Insert queued trials, none of which may exist yet."""
    now = utc_now_iso()
    common = {"state": "queued", "reason": None, "submission_id": None, "created_at": now, "updated_at": now}
    insert_rows(connection, Trials, [{**_identity(trial), **common} for trial in trials])


def attempts_of(connection: Connection, ids: Iterable[str]) -> dict[str, list[Row]]:
    """Return the attempts of trials by trial id, in order, without the column `trial_id`."""
    attempts: dict[str, list[Row]] = {}
    query = select(Attempts).where(in_list(connection, Attempts.c.trial_id, ids))
    for row in connection.execute(query.order_by(Attempts.c.trial_id, Attempts.c.number)).mappings():
        attempt = dict(row)
        attempts.setdefault(attempt.pop("trial_id"), []).append(attempt)
    return attempts


def finals_of(connection: Connection, ids: Iterable[str]) -> dict[str, dict[str, float | None]]:
    """Return the final values of trials by trial id and name."""
    finals: dict[str, dict[str, float | None]] = {id: {} for id in ids}
    query = select(*Metrics.c["trial_id", "name", "value"]).where(Metrics.c.step == FINAL)
    for id, name, value in connection.execute(query.where(in_list(connection, Metrics.c.trial_id, finals))):
        finals[id][name] = value
    return finals


def record(connection: Connection, records: Sequence[RunRecord]) -> None:
    """Make the rows of these trials equal to the records."""
    by_id = {record.trial.id: record for record in records}
    add_configs(connection, [record.trial for record in by_id.values()])
    _record_trials(connection, by_id)
    attempts = ({"trial_id": id, **attempt} for id, record in by_id.items() for attempt in record.attempts)
    _sync_rows(connection, Attempts, by_id, attempts)
    metrics = (metric_row(record.trial, *metric) for record in by_id.values() for metric in record.metrics)
    _sync_rows(connection, Metrics, by_id, metrics)


def metric_row(trial: Trial, name: str, step: int, value: float | None) -> dict[str, Any]:
    """Return a row of `Metrics`."""
    config_id = trial.config_id if step == FINAL else None
    return {"trial_id": trial.id, "name": name, "step": step, "value": value, "config_id": config_id}


def _record_trials(connection: Connection, by_id: dict[str, RunRecord]) -> None:
    query = select(Trials).where(in_list(connection, Trials.c.id, by_id))
    existing = {row["id"]: dict(row) for row in connection.execute(query).mappings()}
    added, changed = [], []
    for id, record in by_id.items():
        old = existing.get(id)
        row = {
            **_identity(record.trial),
            "state": record.state,
            "reason": record.reason,
            "submission_id": old["submission_id"] if old and record.state in ("submitted", "running") else None,
            "created_at": record.created_at or (old["created_at"] if old else utc_now_iso()),
            "updated_at": record.updated_at or utc_now_iso(),
            "libraries": record.libraries,
        }
        if old is None:
            added.append(row)
        elif old != row:
            changed.append({f"new_{key}": value for key, value in row.items()})
    insert_rows(connection, Trials, added)
    if changed:
        values: dict[str, Any] = {
            column.name: bindparam(f"new_{column.name}") for column in Trials.columns if column is not Trials.c.id
        }
        connection.execute(update(Trials).where(Trials.c.id == bindparam("new_id")).values(values), changed)


def _sync_rows(connection: Connection, table: Table, ids: Iterable[str], rows: Iterable[dict[str, Any]]) -> None:
    """Make the rows of a table that belong to these trials equal to `rows`; write only the differences."""
    names = [column.name for column in table.primary_key]
    target = {tuple(row[name] for name in names): row for row in rows}
    query = select(table).where(in_list(connection, table.c.trial_id, ids))
    existing = {tuple(row[name] for name in names): dict(row) for row in connection.execute(query).mappings()}
    stale = [
        {f"old_{name}": part for name, part in zip(names, key, strict=True)}
        for key, row in existing.items()
        if target.get(key) != row
    ]
    new_rows = [row for key, row in target.items() if existing.get(key) != row]
    if stale:
        conditions = (table.c[name] == bindparam(f"old_{name}") for name in names)
        connection.execute(delete(table).where(*conditions), stale)
    insert_rows(connection, table, new_rows)


def insert_rows(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows in the order of their keys, which costs an index a fraction of scattered inserts."""
    if rows:
        rows.sort(key=operator.itemgetter(*table.primary_key.columns.keys()))
        connection.execute(insert(table), rows)


def _identity(trial: Trial) -> dict[str, Any]:
    path = trial.weights.path if trial.weights else None
    return {"id": trial.id, "config_id": trial.config_id, "seed": trial.seed, "weights": path}


def config_row(trial: Trial) -> dict[str, Any]:
    """Return a row of `Configs`."""
    config = trial.config()
    return {
        **{key: config[key] for key in ("task", "model", "schedule", "align", "preset", "overrides")},
        "id": trial.config_id,
        "data": trial.data.name,
        "fingerprint": trial.data.fingerprint,
        "regularizer": trial.regularizer.name,
        "params": config["regularizer"]["params"],
        "config": {**config, "data": trial.data.model_dump()},
        "result_versions": trial.result_versions_text,
    }
