"""Rows that come from elsewhere, made sure of before they are taken over: types, ranges, and that ids are their own."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from functools import cache, partial
from typing import Any, get_args

from pydantic import ValidationError
from sqlalchemy import BigInteger, Column, Table

from db.models import FINAL, Attempts, Memberships, Metrics, Submissions, Trials
from db.rows import trial_of
from db.snapshot import AttemptState, Snapshot
from db.source import Found, Row
from harness.trial import TRIAL_STATES, Trial

_CHOICES = {
    Trials.name: TRIAL_STATES,
    Attempts.name: get_args(AttemptState),
    Submissions.name: ("ended",),
}
"""What a column `state` may hold, by table."""

_LEAST = {"number": 1, "step": FINAL, "seed": 0}
"""Of whole numbers, where it is another than the type's."""


class WrongRowError(Exception):
    """A row is not what it should be; the message says where and why, in one line."""


def check_trial(found: Found) -> Snapshot:
    """A trial as it may be recorded here: what was submitted or running there waits, and its open attempt is left out.

    Raises:
        WrongRowError: a row is damaged, the trial is another than its id says, or its state contradicts its metrics.
    """
    row = check_row(Trials, found.trial)
    trial = _trial(row, found.config)
    attempts = [check_row(Attempts, one) for one in found.attempts]
    metrics = [check_row(Metrics, one) for one in found.metrics]
    suites = [check_row(Memberships, one)["suite"] for one in found.suites]
    done = row["state"] == "succeeded"
    if done != any(one["step"] == FINAL for one in metrics):
        raise WrongRowError(f"{row['state']}, but with{'out' * done} final values")
    waits = row["state"] in ("submitted", "running")
    return Snapshot(
        trial=trial,
        state="queued" if waits else row["state"],
        reason=None if waits else row["reason"],
        suites=suites,
        attempts=[
            {key: value for key, value in one.items() if key != "trial_id"}
            for one in attempts
            if one["state"] != "running"
        ],
        metrics=[(one["name"], one["step"], one["value"]) for one in metrics],
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def check_row(table: Any, row: Mapping[str, Any]) -> Row:
    """A row, value by value as the table has it.

    Raises:
        WrongRowError: a value is of another type, too long, out of range, or no state or time.
    """
    checked = {}
    for name, nullable, check in _checks(table):
        value = row[name]
        try:
            checked[name] = None if value is None and nullable else check(value)
        except ValueError as error:
            shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:60] + "…"
            raise WrongRowError(f"{table.name}: {name} = {shown}: expected {error}") from None
    return checked


@cache
def _checks(table: Table) -> list[tuple[str, bool, Callable[[Any], Any]]]:
    """Of each column: its name, whether it may be NULL, and what gives a value back or says what is expected."""
    return [(column.name, bool(column.nullable), _check(table, column)) for column in table.columns]


def _check(table: Table, column: Column[Any]) -> Callable[[Any], Any]:
    kind = column.type.python_type
    if kind is int:
        limit = 2 ** (63 if isinstance(column.type, BigInteger) else 31)
        return partial(_whole, _LEAST.get(column.name, -limit), limit)
    if kind is float:
        return _number
    if column.name == "state":
        return partial(_choice, _CHOICES[table.name])
    return _time if column.name.endswith("_at") else partial(_text, getattr(column.type, "length", None))


def _whole(least: int, limit: int, value: Any) -> int:
    if type(value) is not int or not least <= value < limit:
        raise ValueError(f"a whole number from {least} to {limit - 1}")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise ValueError("a finite number")
    return float(value)


def _choice(known: tuple[str, ...], value: Any) -> str:
    if value not in known:
        raise ValueError(" or ".join(known))
    return str(value)


def _text(longest: int | None, value: Any) -> str:
    if not isinstance(value, str) or (longest and len(value) > longest):
        raise ValueError(f"text of {longest} characters at most" if longest else "text")
    return value.replace("\0", "\ufffd")  # which PostgreSQL does not take


def _time(value: Any) -> str:
    try:
        utc = isinstance(value, str) and datetime.fromisoformat(value).utcoffset() == timedelta(0)
    except ValueError:
        utc = False
    if not utc or len(value) > 32:
        raise ValueError("a time in UTC, such as 2026-01-02T03:04:05.000+00:00")
    return str(value)


def _trial(row: Row, config: Any) -> Trial:
    """The trial of a row, by its configuration."""
    try:
        config = json.loads(config) if isinstance(config, str) else config
        trial = trial_of(config, row["seed"], row["weights"])
        ids = trial.id, trial.config_id
    except (ValidationError, ValueError, TypeError, AttributeError, RecursionError) as error:
        lines = str(error).splitlines()
        said = " ".join(" ".join(lines[1:3] if isinstance(error, ValidationError) else lines).split())[:200]
        raise WrongRowError(f"its configuration is none ({said})") from None
    if ids != (row["id"], row["config_id"]):
        raise WrongRowError(f"is {trial.id} of {trial.config_id} by its configuration and seed: expected these ids")
    return trial
