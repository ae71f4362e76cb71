"""Filters of trials, as the command line takes them: words that must all hold.

- a state: ``failed``; a suite: ``dropattention/table3``; the first characters of a trial's id: ``3fa9``;
- ``KEY=VALUE`` with a key of state, suite, seed, task, data, fingerprint (or its beginning), model, regularizer,
  schedule, align, preset, libraries (``libraries=torch 2.13``), result_versions (those that are not 1, and those of
  plug-ins: ``engine 2``, ``regularizer mine 3fa9c01b``, or the version alone), origin (``own`` or ``reference``, with
  `--with`), a parameter of the regularizer (``ratio=0.3``; with the regularizer's name also in compositions:
  ``dropkey.ratio=0.3``), an override (``lr=0.001``), or a metric, which compares its final value (``accuracy=90``: on
  the test set; ``dev/accuracy``);
- ``=`` and ``!=`` take a list of values: ``data=mr,trec``; ``<``, ``<=``, ``>``, ``>=`` compare numbers; ``model~t2t*``
  is a shell pattern; ``regularizer~drophead`` also matches compositions with such a part;
- ``not`` negates the next word: ``not failed``.

A comparison is false if the trial has no such value; its negation by ``not`` or ``!=`` is then true.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache, cached_property
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, Text, cast, false, func, not_, or_, select, type_coerce

from dropbench.db.schema.reference import ORIGIN, ORIGINS
from dropbench.db.schema.tables import FINAL, Configs, Metrics, Trials
from dropbench.db.store.requests import in_suites, suites_of
from dropbench.db.store.rows import in_list
from dropbench.harness.errors import InputError, check_text, unknown_name
from dropbench.harness.regularizers.composition import SEPARATOR
from dropbench.harness.regularizers.spec import Scalar, parse_scalar, part_names, same_regularizer
from dropbench.harness.trials.metric import MetricName
from dropbench.harness.trials.trial import TRIAL_STATES

COLUMNS = ("task", "data", "fingerprint", "model", "regularizer", "schedule", "align", "preset")

TRIAL_KEYS = ("state", "suite", "seed", "libraries", "result_versions", "origin")

_WORD = re.compile(r"(.*?)(!=|<=|>=|=|<|>|~)(.*)", re.DOTALL)

_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}

Clause = ColumnElement[bool]


@dataclass
class Filter:
    """Conditions on `Trials`, the suites that the filter names (none: any), and whether it names seeds or trials."""

    clauses: list[Clause] = field(default_factory=list)
    suites: set[str] = field(default_factory=set)
    single: bool = False

    def on_configs(self, column: ColumnElement[Any]) -> list[Clause]:
        """Return the condition that `column` is the configuration of a matching trial, if the filter has any clause."""
        return [column.in_(select(Trials.c.config_id).where(*self.clauses))] if self.clauses else []


@dataclass(frozen=True)
class Condition:
    """A parsed word; `comparison` is the operator without the ``!`` of ``!=``."""

    word: str
    key: str
    comparison: str
    value: str

    @property
    def values(self) -> list[str]:
        """The listed values, one of which must be the trial's."""
        values = [part for part in self.value.split(",") if part]
        if not values:
            raise self.error(f"expected a value after '{self.comparison}'")
        return values

    def number(self, text: str) -> float:
        """Return a part of the value as a number."""
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.error(f"'{text}' is not a number: expected one after '{self.comparison}'")
        return number

    def names(self, known: Callable[[], Iterable[str]]) -> list[str]:
        """Return the listed names, or those of `known` that match the shell pattern."""
        if self.comparison == "~":
            return [name for name in known() if self.matches(name)]
        if self.comparison != "=":
            raise self.error(f"'{self.comparison}' compares numbers: expected =, != or ~ after {self.key}")
        return self.values

    def matches(self, text: str) -> bool:
        """Return whether a text matches the shell pattern."""
        if not self.value:
            raise self.error("expected a pattern after '~', such as t2t*")
        return fnmatchcase(text, self.value)

    def error(self, message: str) -> InputError:
        """Return the error for this word."""
        return InputError(f"filter '{self.word}': {message}")


def parse(connection: Connection, words: Sequence[str]) -> Filter:
    """Parse the words of a filter. Raise InputError for an unknown word or key, or an impossible value."""
    parser = _Parser(connection)
    result = Filter()
    negated = False
    for word in words:
        if word == "not":
            negated = not negated
            continue
        check_text(word, "filter")
        clause, suites = parser.parse(word)
        result.clauses.append(not_(clause) if negated else clause)
        if not negated:
            result.suites.update(suites)
        negated = False
    if negated:
        raise InputError("filter 'not': expected a word after it, such as: not failed")
    result.single = parser.single
    return result


def final_names(connection: Connection) -> list[str]:
    """Return the names of all final values."""
    return distinct_values(connection, Metrics.c.name, Metrics.c.step == FINAL)


def distinct_values(connection: Connection, column: ColumnElement[str], *clauses: Clause) -> list[str]:
    """Return the values of an indexed column by an index seek for each; DISTINCT would scan the whole index."""
    first = select(func.min(column).label("value")).where(*clauses)
    values = first.cte("values_", recursive=True)
    following = first.where(column > values.c.value).scalar_subquery()
    values = values.union_all(select(following).where(values.c.value.is_not(None)))
    return list(connection.scalars(select(values.c.value).where(values.c.value.is_not(None))))


class _Parser:
    """Parses single words, and queries the database at most once for each kind of name they may be."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.single = connection, False

    def parse(self, word: str) -> tuple[Clause, Iterable[str]]:
        """Return the condition of a word, and the suites that it names."""
        if word in self.suites:
            return _in_suites([word]), [word]
        parts = _WORD.fullmatch(word)
        if parts is None:
            return self._bare(word), ()
        key, comparison, value = parts.groups()
        condition = Condition(word, key, comparison.removeprefix("!"), value)
        suites = condition.names(lambda: self.suites) if key == "suite" else []
        clause = _in_suites(suites) if key == "suite" else self._keyed(condition)
        return (not_(clause), ()) if comparison == "!=" else (clause, suites)

    def _bare(self, word: str) -> Clause:
        if word in TRIAL_STATES:
            return Trials.c.state == word
        if len(word) <= 12 and set(word) <= set("0123456789abcdef"):
            clause = Trials.c.id.startswith(word, autoescape=True)
            if self.connection.scalar(select(Trials.c.id).where(clause).limit(1)):
                self.single = True
                return clause
        # A suite without trials in the database matches nothing; any other word is an error.
        from dropbench.harness.suites.suite import suite_names

        names = suite_names()
        if word in names:
            return false()
        raise unknown_name("state, suite or trial id", word, {*TRIAL_STATES, *names, *self.suites})

    def _keyed(self, condition: Condition) -> Clause:
        key = condition.key
        if key in COLUMNS:
            column = Configs.c[key]
            names = condition.names(lambda: self.connection.scalars(select(column).distinct()))
            if key == "regularizer":
                names = self._with_compositions(condition, names)
            matching = in_list(self.connection, column, names) if condition.comparison == "~" else column.in_(names)
            if key == "fingerprint" and condition.comparison == "=":
                matching = or_(*(column.startswith(name, autoescape=True) for name in names))
            return Trials.c.config_id.in_(select(Configs.c.id).where(matching))
        if key == "state":
            states = condition.names(lambda: TRIAL_STATES)
            for state in states:
                if state not in TRIAL_STATES:
                    raise unknown_name("state", state, TRIAL_STATES)
            return Trials.c.state.in_(states)
        if key == "libraries":
            return self._listed(condition, Trials.c.libraries)
        if key == "origin":
            return ORIGIN.in_(condition.names(lambda: ORIGINS))
        if key == "result_versions":
            matching = self._listed(condition, Configs.c.result_versions)
            return Trials.c.config_id.in_(select(Configs.c.id).where(matching))
        if key == "seed":
            self.single = True
            return _numeric_clause(condition, Trials.c.seed)
        if any(key in holder for _, *holders in self.holders for holder in holders):
            return self._parameter(condition)
        return self._metric(condition)

    def _listed(self, condition: Condition, column: ColumnElement[str]) -> Clause:
        """Select by a version, with its name or not, that a text such as ``torch 2.12, transformers 5.1`` lists."""
        texts = distinct_values(self.connection, column)
        known = {text: [*(parts := text.split(", ")), *(part.rpartition(" ")[2] for part in parts)] for text in texts}
        versions = condition.names(lambda: chain.from_iterable(known.values()))
        matching = [text for text, own in known.items() if not set(versions).isdisjoint(own)]
        return func.coalesce(column, "").in_(matching)

    def _with_compositions(self, condition: Condition, names: list[str]) -> list[str]:
        """Return regularizers, with the compositions that a pattern selects by a part, or whose parts are reordered."""
        if condition.comparison != "~" and not any(SEPARATOR in name for name in names):
            return names
        known = self.connection.scalars(
            select(Configs.c.regularizer).distinct().where(Configs.c.regularizer.contains(SEPARATOR))
        )
        if condition.comparison == "~":
            return [*names, *(name for name in known if any(map(condition.matches, part_names(name))))]
        return [*names, *(name for name in known if any(same_regularizer(name, value) for value in names))]

    def _parameter(self, condition: Condition) -> Clause:
        """Select by a parameter or override; in Python, as databases disagree on types of values inside JSON."""
        key, holds = condition.key, _predicate(condition)
        ids = [id for id, *holders in self.holders if any(key in values and holds(values[key]) for values in holders)]
        return in_list(self.connection, Trials.c.config_id, ids)

    def _metric(self, condition: Condition) -> Clause:
        names, key = final_names(self.connection), condition.key
        name = str(MetricName.parse(key))
        if name not in names:
            parameters = {name for _, *holders in self.holders for holder in holders for name in holder}
            metrics = {MetricName.parse(name).label for name in names}
            raise unknown_name("key of a filter", key, {*parameters, *metrics, *COLUMNS, *TRIAL_KEYS})
        value = _numeric_clause(condition, Metrics.c.value)
        return Trials.c.id.in_(select(Metrics.c.trial_id).where(Metrics.c.step == FINAL, Metrics.c.name == name, value))

    @cached_property
    def suites(self) -> list[str]:
        """The suites that have a request."""
        return suites_of(self.connection)

    @cached_property
    def holders(self) -> list[tuple[str, dict[str, Scalar], dict[str, Scalar]]]:
        """The id, the parameters and the overrides of every configuration."""
        parsed = cache(json.loads)  # many configurations share the same parameters

        @cache
        def with_name(name: str, text: str) -> dict[str, Scalar]:
            """Return parameters, those of a single regularizer by the names that they have in compositions, too."""
            params: dict[str, Scalar] = parsed(text)
            return params if SEPARATOR in name else params | {f"{name}.{key}": value for key, value in params.items()}

        columns = (Configs.c.id, Configs.c.regularizer, cast(Configs.c.params, Text), cast(Configs.c.overrides, Text))
        rows = self.connection.execute(select(*columns))
        return [(id, with_name(name, params), parsed(overrides)) for id, name, params, overrides in rows]


def _in_suites(names: Sequence[str]) -> Clause:
    return Trials.c.id.in_(in_suites(names))


def _numeric_clause(condition: Condition, column: Any) -> Clause:
    if condition.comparison == "~":
        raise condition.error(f"{condition.key} is a number: expected =, !=, <, <=, > or >=")
    if condition.comparison == "=":
        numbers = [condition.number(part) for part in condition.values]
        return type_coerce(column, Float).in_(numbers)  # without it PostgreSQL rounds them to integers
    clause: Clause = _COMPARE[condition.comparison](column, condition.number(condition.value))
    return clause


def _predicate(condition: Condition) -> Callable[[object], bool]:
    """Return the test of a parameter's value, which may have any type; only numbers can be less or greater."""
    if condition.comparison == "~":
        return lambda held: condition.matches(held if isinstance(held, str) else str(held).lower())
    if condition.comparison == "=":
        values = [parse_scalar(part) for part in condition.values]
        # 1 equals 1.0, but no boolean equals a number.
        return lambda held: any(held == value and isinstance(held, bool) == isinstance(value, bool) for value in values)
    compare, number = _COMPARE[condition.comparison], condition.number(condition.value)
    return lambda held: isinstance(held, int | float) and not isinstance(held, bool) and compare(held, number)
