"""Filters of trials, as the command line takes them: words that must all hold.

- a state: ``failed``; a suite: ``dropattention/table3``; the first characters of a trial's id: ``3fa9``;
- ``KEY=VALUE`` with a key of state, suite, seed, task, data, model, regularizer, schedule, align, preset, a parameter
  of the regularizer (``ratio=0.3``), an override (``lr=0.001``), or a metric, of which the final value is meant
  (``accuracy=90``: the test set's; ``dev/accuracy``);
- ``=`` and ``!=`` take a choice: ``data=mr,trec``; ``<``, ``<=``, ``>``, ``>=`` compare numbers; ``model~t2t*`` is a
  shell pattern;
- ``not`` takes away what the next word leaves: ``not failed``.

A comparison of what a trial does not have does not hold, and its opposite by ``not`` or ``!=`` does.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, Text, cast, false, func, not_, select, type_coerce

from db.models import FINAL, Configs, Memberships, Metrics, Trials
from db.rows import among
from harness.errors import InputError, unknown_name
from harness.regularizers.spec import Scalar, parse_scalar
from harness.trial import TRIAL_STATES

COLUMNS: dict[str, Any] = {
    "task": Configs.c.task, "data": Configs.c.data, "model": Configs.c.model, "regularizer": Configs.c.regularizer,
    "schedule": Configs.c.schedule, "align": Configs.c.align, "preset": Configs.c.preset,
}  # fmt: skip

_WORD = re.compile(r"(.*?)(!=|<=|>=|=|<|>|~)(.*)", re.DOTALL)

_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip

Clause = ColumnElement[bool]


@dataclass
class Filter:
    """What must hold of `Trials`, and the suites that were named (none: any)."""

    clauses: list[Clause] = field(default_factory=list)
    suites: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Condition:
    """A word in its parts; `comparison` is what stands between key and value, without the ``!`` of ``!=``."""

    word: str
    key: str
    comparison: str
    value: str

    @cached_property
    def choice(self) -> list[str]:
        """The values, of which one must be the trial's."""
        values = [part for part in self.value.split(",") if part]
        if not values:
            raise self.error(f"expected a value after '{self.comparison}'")
        return values

    @property
    def number(self) -> float:
        """The value, where only a number makes sense."""
        return self._finite(self.value)

    @property
    def numbers(self) -> list[float]:
        """The choice likewise."""
        return [self._finite(part) for part in self.choice]

    def fits(self, text: str) -> bool:
        """Whether a text is of the shell pattern."""
        if not self.value:
            raise self.error("expected a pattern after '~', such as t2t*")
        return fnmatchcase(text, self.value)

    def error(self, said: str) -> InputError:
        """The error for this word."""
        return InputError(f"filter '{self.word}': {said}")

    def _finite(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise self.error(f"'{text}' is no number: expected one after '{self.comparison}'")
        return number


class Parsed(dict[str, Any]):
    """JSON by its text, each text read once: of many configurations, few differ in their parameters."""

    def __missing__(self, text: str) -> Any:
        self[text] = found = json.loads(text)
        return found


def parse(connection: Connection, words: Sequence[str]) -> Filter:
    """Read the words of a filter.

    Raises:
        InputError: a word is no state, suite, id or known key, or a value impossible.
    """
    return _Parser(connection).parse(words)


def stored_name(metric: str) -> str:
    """``accuracy`` → ``test/accuracy``: a metric without a split is the test set's."""
    return metric if "/" in metric else f"test/{metric}"


def final_names(connection: Connection) -> list[str]:
    """The names of all final values: a leap in the index for each, where DISTINCT would read the whole of it."""
    least = select(func.min(Metrics.c.name).label("name")).where(Metrics.c.step == FINAL)
    names = least.cte("names", recursive=True)
    above = least.where(Metrics.c.name > names.c.name).scalar_subquery()
    names = names.union_all(select(above).where(names.c.name.is_not(None)))
    return list(connection.scalars(select(names.c.name).where(names.c.name.is_not(None))))


class _Parser:
    """Reads words; what they need of the database is asked for once."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def parse(self, words: Sequence[str]) -> Filter:
        found = Filter()
        negated = False
        for word in words:
            if word == "not":
                negated = not negated
                continue
            if "\0" in word or any("\ud800" <= letter <= "\udfff" for letter in word):
                raise InputError(f"filter {word!a}: expected text")
            clause, suites = self._word(word)
            found.clauses.append(not_(clause) if negated else clause)
            if not negated:
                found.suites.update(suites)
            negated = False
        if negated:
            raise InputError("filter 'not': expected a word after it, such as: not failed")
        return found

    def _word(self, word: str) -> tuple[Clause, Iterable[str]]:
        """What a word demands, and the suites that it names."""
        if word in self.suites:
            return _in_suites([word]), [word]
        parts = _WORD.fullmatch(word)
        if parts is None:
            return self._bare(word), ()
        key, comparison, value = parts.groups()
        condition = Condition(word, key, comparison.removeprefix("!"), value)
        if key == "suite":
            names = self._suites(condition)
            clause = _in_suites(names)
        else:
            names, clause = [], self._keyed(condition)
        return (not_(clause), ()) if comparison == "!=" else (clause, names)

    def _bare(self, word: str) -> Clause:
        if word in TRIAL_STATES:
            return Trials.c.state == word
        if len(word) <= 12 and set(word) <= set("0123456789abcdef"):
            clause = Trials.c.id.startswith(word, autoescape=True)
            if self.connection.scalar(select(Trials.c.id).where(clause).limit(1)):
                return clause
        # A suite that has no trials yet leaves nothing; any other word is a mistake.
        from harness.suite import suite_names

        names = suite_names()
        if word in names:
            return false()
        raise unknown_name("state, suite or trial id", word, {*TRIAL_STATES, *names, *self.suites})

    def _suites(self, condition: Condition) -> list[str]:
        if condition.comparison == "~":
            return [name for name in self.suites if condition.fits(name)]
        _only_equal(condition)
        return condition.choice

    def _keyed(self, condition: Condition) -> Clause:
        key, comparison = condition.key, condition.comparison
        if key in COLUMNS:
            column = COLUMNS[key]
            if comparison == "~":
                texts = self.connection.scalars(select(column).distinct())
                fitting = among(self.connection, column, [text for text in texts if condition.fits(text)])
            else:
                _only_equal(condition)
                fitting = column.in_(condition.choice)
            return Trials.c.config_id.in_(select(Configs.c.id).where(fitting))
        if key == "state":
            if comparison == "~":
                return Trials.c.state.in_([state for state in TRIAL_STATES if condition.fits(state)])
            _only_equal(condition)
            for name in condition.choice:
                if name not in TRIAL_STATES:
                    raise unknown_name("state", name, TRIAL_STATES)
            return Trials.c.state.in_(condition.choice)
        if key == "seed":
            return _of_number(condition, Trials.c.seed)
        if any(key in holder for _, *holders in self.holders for holder in holders):
            return self._parameter(condition)
        return self._metric(condition)

    def _parameter(self, condition: Condition) -> Clause:
        """Configurations by a parameter or override.

        Compared here, because databases do not agree on what the types inside of JSON are worth.
        """
        holds = _test(condition)
        ids = [
            id
            for id, *holders in self.holders
            if any(condition.key in holder and holds(holder[condition.key]) for holder in holders)
        ]
        return among(self.connection, Trials.c.config_id, ids)

    def _metric(self, condition: Condition) -> Clause:
        names, key = final_names(self.connection), condition.key
        name = stored_name(key)
        if name not in names:
            inner = {name for _, *holders in self.holders for holder in holders for name in holder}
            metrics = {name.removeprefix("test/") for name in names}
            raise unknown_name("key of a filter", key, {*inner, *metrics, *COLUMNS, "state", "suite", "seed"})
        value = _of_number(condition, Metrics.c.value)
        return Trials.c.id.in_(select(Metrics.c.trial_id).where(Metrics.c.step == FINAL, Metrics.c.name == name, value))

    @cached_property
    def suites(self) -> list[str]:
        """The suites that have trials."""
        return list(self.connection.scalars(select(Memberships.c.suite).distinct().order_by(Memberships.c.suite)))

    @cached_property
    def holders(self) -> list[tuple[str, dict[str, Scalar], dict[str, Scalar]]]:
        """Every configuration's id, parameters and overrides."""
        parsed = Parsed()
        rows = self.connection.execute(
            select(Configs.c.id, cast(Configs.c.params, Text), cast(Configs.c.overrides, Text))
        )
        return [(id, parsed[params], parsed[overrides]) for id, params, overrides in rows]


def _in_suites(names: Sequence[str]) -> Clause:
    return Trials.c.id.in_(select(Memberships.c.trial_id).where(Memberships.c.suite.in_(names)))


def _only_equal(condition: Condition) -> None:
    if condition.comparison != "=":
        raise condition.error(f"'{condition.comparison}' compares numbers: expected =, != or ~ after {condition.key}")


def _of_number(condition: Condition, column: Any) -> Clause:
    """A condition on a column of numbers."""
    if condition.comparison == "~":
        raise condition.error(f"{condition.key} is a number: expected =, !=, <, <=, > or >=")
    if condition.comparison == "=":
        found: Clause = type_coerce(column, Float).in_(condition.numbers)  # or PostgreSQL would round them to seeds
        return found
    compared: Clause = _COMPARE[condition.comparison](column, condition.number)
    return compared


def _test(condition: Condition) -> Callable[[object], bool]:
    """A condition on a parameter's value, which may be of any type; only numbers are less or greater."""
    if condition.comparison == "~":
        return lambda held: condition.fits(held if isinstance(held, str) else str(held).lower())
    if condition.comparison == "=":
        values = [parse_scalar(part) for part in condition.choice]
        return lambda held: any(_same(held, value) for value in values)
    compare, number = _COMPARE[condition.comparison], condition.number
    return lambda held: isinstance(held, int | float) and not isinstance(held, bool) and compare(held, number)


def _same(held: object, given: Scalar) -> bool:
    """Equal, where 1 is 1.0, but no truth value is a number."""
    return held == given and isinstance(held, bool) == isinstance(given, bool)
