"""Validate rows of unknown origin before they are imported: types, ranges, and that ids match their content."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, get_args

from pydantic import ValidationError
from sqlalchemy import BigInteger, Column, Table

from dropbench.db.schema.tables import FINAL, Attempts, Metrics, Submissions, Trials
from dropbench.db.store.rows import Row, load_trial
from dropbench.db.store.run_record import RunRecord
from dropbench.db.transfer.source import SourceTrial
from dropbench.harness.errors import InputError
from dropbench.harness.runs.attempt_record import AttemptState
from dropbench.harness.suites.request import Request
from dropbench.harness.trials.trial import TRIAL_STATES, Trial

_CHOICES = {Trials.name: TRIAL_STATES, Attempts.name: get_args(AttemptState), Submissions.name: ("ended",)}
"""Valid values of the columns `state`, by table."""

_MINIMUM = {"number": 1, "step": FINAL, "seed": 0}
"""Of integer columns, if it differs from the type's."""


class WrongRowError(Exception):
    """A row is invalid; the message names the column and the reason in one line."""


def check_trial(source: SourceTrial) -> RunRecord:
    """Return the record to import; a submitted or running trial becomes queued, without its running attempt.

    Raises:
        WrongRowError: a row is damaged, the id does not match the trial, or its state contradicts its metrics.
    """
    row = check_row(Trials, source.row)
    trial = _trial(row, source.config)
    attempts = [check_row(Attempts, attempt) for attempt in source.attempts]
    for attempt in attempts:
        del attempt["trial_id"]
    metrics = [check_row(Metrics, metric) for metric in source.metrics]
    done = row["state"] == "succeeded"
    if done != any(metric["step"] == FINAL for metric in metrics):
        raise WrongRowError(f"{row['state']}, but with{'out' * done} final values")
    active = row["state"] in ("submitted", "running")
    return RunRecord(
        trial=trial,
        state="queued" if active else row["state"],
        reason=None if active else row["reason"],
        attempts=[attempt for attempt in attempts if attempt["state"] != "running"],
        metrics=[(metric["name"], metric["step"], metric["value"]) for metric in metrics],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        libraries=row["libraries"],
    )


def check_request(row: Row) -> Request:
    """Return the request of a row; raise WrongRowError if its content is none, or its id is another's."""
    content = row["content"]
    try:
        request = Request.from_json(content if isinstance(content, str | bytes) else json.dumps(content))
        _time(request.created_at)
    except (InputError, ValueError, TypeError, RecursionError) as error:
        raise WrongRowError(" ".join(str(error).split())[:200]) from None
    if request.id != row["id"]:
        raise WrongRowError(f"its content is that of request {request.id}")
    return request


def check_row(table: Any, row: Mapping[str, Any]) -> Row:
    """Return a row with values as stored; raise WrongRowError for a wrong type, length, range, state or time."""
    checked = {}
    for name, nullable, check in _checks(table):
        value = row[name]
        try:
            checked[name] = None if value is None and nullable else check(value)
        except ValueError as error:
            text = repr(value) if len(repr(value)) <= 60 else repr(value)[:60] + "…"
            raise WrongRowError(f"{table.name}: {name} = {text}: expected {error}") from None
    return checked


@cache
def _checks(table: Table) -> list[tuple[str, bool, Callable[[Any], Any]]]:
    """Return each column's name, whether it is nullable, and a check that returns a value or raises ValueError."""
    return [(column.name, bool(column.nullable), _check(table, column)) for column in table.columns]


def _check(table: Table, column: Column[Any]) -> Callable[[Any], Any]:
    type_ = column.type.python_type
    if type_ is int:
        limit = 2 ** (63 if isinstance(column.type, BigInteger) else 31)
        return partial(_whole, _MINIMUM.get(column.name, -limit), limit)
    if type_ is float:
        return _number
    if column.name == "state":
        return partial(_choice, _CHOICES[table.name])
    return _time if column.name.endswith("_at") else partial(_text, getattr(column.type, "length", None))


def _whole(minimum: int, limit: int, value: Any) -> int:
    if type(value) is not int or not minimum <= value < limit:
        raise ValueError(f"a whole number from {minimum} to {limit - 1}")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("a finite number")
    return float(value)


def _choice(choices: tuple[str, ...], value: Any) -> str:
    if value not in choices:
        raise ValueError(" or ".join(choices))
    return str(value)


def _text(max_length: int | None, value: Any) -> str:
    if not isinstance(value, str) or (max_length and len(value) > max_length):
        raise ValueError(f"text of at most {max_length} characters" if max_length else "text")
    return value.replace("\0", "\ufffd")  # PostgreSQL does not store NUL


def _time(value: Any) -> str:
    try:
        utc = isinstance(value, str) and datetime.fromisoformat(value).utcoffset() == timedelta(0)
    except ValueError:
        utc = False
    if not utc or len(value) > 32:
        raise ValueError("a time in UTC, such as 2026-01-02T03:04:05.000+00:00")
    return str(value)


def _trial(row: Row, config: Any) -> Trial:
    """Return the trial of a row, built from its configuration."""
    try:
        config = json.loads(config) if isinstance(config, str) else config
        trial = load_trial(config, row["seed"], row["weights"])
        ids = trial.id, trial.config_id
    except (ValidationError, ValueError, TypeError, AttributeError, RecursionError) as error:
        lines = str(error).splitlines()
        cause = " ".join(" ".join(lines[1:3] if isinstance(error, ValidationError) else lines).split())[:200]
        raise WrongRowError(f"invalid configuration ({cause})") from None
    if ids != (row["id"], row["config_id"]):
        raise WrongRowError(f"its configuration and seed are those of trial {trial.id} of {trial.config_id}")
    return trial
