"""Filters of trials, as the command line takes them: words that must all hold.

- a state: ``failed``; a suite: ``dropattention/table3``; the first characters of a trial's id: ``3fa9``;
- ``key=value`` with a key of state, suite, seed, task, data, model, regularizer, schedule, align, preset, a parameter
  of the regularizer (``ratio=0.3``) or an override (``lr=0.001``);
- a value may be a choice: ``data=mr,trec``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, false, select

from db.models import Configs, Memberships, Trials
from db.rows import among
from harness.errors import InputError, unknown_name
from harness.regularizers.spec import Scalar, parse_scalar
from harness.trial import TRIAL_STATES

COLUMNS: dict[str, Any] = {
    "task": Configs.task, "data": Configs.data, "model": Configs.model, "regularizer": Configs.regularizer,
    "schedule": Configs.schedule, "align": Configs.align, "preset": Configs.preset,
}  # fmt: skip


@dataclass
class Filter:
    """What must hold of `Trials`, and the suites that were named (none: any)."""

    clauses: list[ColumnElement[bool]] = field(default_factory=list)
    suites: set[str] = field(default_factory=set)


def parse(connection: Connection, words: Sequence[str]) -> Filter:
    """Read the words of a filter.

    Raises:
        InputError: a word is no state, suite, id or known key, or a value impossible.
    """
    found = Filter()
    for word in words:
        key, separator, value = word.partition("=")
        if not separator and _is_suite(connection, word):
            key, separator, value = "suite", "=", word
        if separator and key == "suite":
            found.suites.update(value.split(","))
        found.clauses.append(_keyed(connection, key, value) if separator else _bare(connection, word))
    return found


def _is_suite(connection: Connection, word: str) -> bool:
    return connection.scalar(select(Memberships.suite).where(Memberships.suite == word).limit(1)) is not None


def _bare(connection: Connection, word: str) -> ColumnElement[bool]:
    if word in TRIAL_STATES:
        return Trials.state == word
    if len(word) <= 12 and set(word) <= set("0123456789abcdef"):
        clause = Trials.id.startswith(word, autoescape=True)
        if connection.scalar(select(Trials.id).where(clause).limit(1)):
            return clause
    return _absent_suite(connection, word)


def _absent_suite(connection: Connection, word: str) -> ColumnElement[bool]:
    """A suite that has no trials yet leaves nothing; any other word is a mistake."""
    from harness.suite import suite_names

    names = suite_names()
    if word in names:
        return false()
    known = {*TRIAL_STATES, *names, *connection.scalars(select(Memberships.suite).distinct())}
    raise unknown_name("state, suite or trial id", word, known)


def _keyed(connection: Connection, key: str, value: str) -> ColumnElement[bool]:
    values = [part for part in value.split(",") if part]
    if not values:
        raise InputError(f"filter '{key}={value}': expected a value after '='")
    if key in COLUMNS:
        return Trials.config_id.in_(select(Configs.id).where(COLUMNS[key].in_(values)))
    if key == "state":
        for name in values:
            if name not in TRIAL_STATES:
                raise unknown_name("state", name, TRIAL_STATES)
        return Trials.state.in_(values)
    if key == "suite":
        return _in_suites(values)
    if key == "seed":
        if not all(part.isdigit() for part in values):
            raise InputError(f"filter '{key}={value}': expected whole numbers")
        return Trials.seed.in_([int(part) for part in values])
    return _parameter(connection, key, [parse_scalar(part) for part in values])


def _in_suites(names: Sequence[str]) -> ColumnElement[bool]:
    return Trials.id.in_(select(Memberships.trial_id).where(Memberships.suite.in_(names)))


def _parameter(connection: Connection, key: str, values: Sequence[Scalar]) -> ColumnElement[bool]:
    """Configurations by a parameter or override.

    Compared here, because databases do not agree on what the types inside of JSON are worth.
    """
    known: set[str] = set()
    ids = []
    for id, *holders in connection.execute(select(Configs.id, Configs.params, Configs.overrides)):
        known.update(*holders)
        if any(key in holder and _same(holder[key], value) for holder in holders for value in values):
            ids.append(id)
    if key not in known:
        raise unknown_name("key of a filter", key, {*known, *COLUMNS, "state", "suite", "seed"})
    return among(connection, Trials.config_id, ids)


def _same(held: object, given: Scalar) -> bool:
    """Equal, where 1 is 1.0, but no truth value is a number."""
    return held == given and isinstance(held, bool) == isinstance(given, bool)
