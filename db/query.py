"""Results over configurations: means over seeds, as rows of plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

from sqlalchemy import select

from db import filters
from db.connection import reading
from db.groups import Group, grouped
from db.models import FINAL, Metrics, Trials
from db.published import Published
from db.rows import among
from db.store import Store
from harness.files import canonical_json

FIRST_TOLD = ("failed", "running", "submitted", "queued", "cancelled", "skipped", "succeeded")
"""Where seeds differ in their state, the first of these is the configuration's."""


@dataclass(frozen=True)
class Summary:
    """Values over seeds: mean, sample standard deviation (None for n < 2), and how many."""

    mean: float | None
    std: float | None
    n: int


def summarize(values: Iterable[float | None]) -> Summary:
    """Mean and sample standard deviation of those that are numbers."""
    numbers = [value for value in values if value is not None]
    n = len(numbers)
    if not n:
        return Summary(None, None, 0)
    mean = math.fsum(numbers) / n
    if n == 1:
        return Summary(mean, None, 1)
    # `statistics` reckons in fractions, which takes too long for millions. The rest takes out of the square what
    # rounding the mean put into it, so that equal values have no deviation at all.
    away = [value - mean for value in numbers]
    rest = math.fsum(away)
    square = math.fsum(map(mul, away, away)) - rest * rest / n
    return Summary(mean, math.sqrt(max(square, 0.0) / (n - 1)), n)


def stored_name(metric: str) -> str:
    """``accuracy`` → ``test/accuracy``: a metric without a split is the test set's."""
    return metric if "/" in metric else f"test/{metric}"


def final_values(store: Store, ids: Sequence[str], metric: str) -> dict[str, float | None]:
    """The final value of a metric by trial id, of the trials that have one; None where it is no finite number."""
    query = select(Metrics.trial_id, Metrics.value).where(Metrics.step == FINAL, Metrics.name == stored_name(metric))
    found: dict[str, float | None] = {}
    with reading(store.engine) as connection:
        for id, value in connection.execute(query.where(among(connection, Metrics.trial_id, ids))):
            found[id] = value
    return found


def results(
    store: Store,
    words: Sequence[str] = (),
    *,
    ids: Sequence[str] | None = None,
    metrics: Sequence[str] = (),
    group_by: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """One row a suite, configuration and metric; with `group_by`, one row for each of these keys' values and metric.

    Args:
        store: the database.
        words: a filter (`db.filters`).
        ids: of these trials alone.
        metrics: names, ``accuracy`` meaning the test set's, ``all`` every final value; default: the test set's.
        group_by: columns of a configuration, ``suite``, ``seed``, parameters of regularizers, or overrides.

    Returns:
        suite, task, data, model, regularizer, params, schedule, align, preset, overrides, metric, mean, std (sample
        standard deviation, None for n < 2), n, published, state; with `group_by`, its keys instead of the columns
        before `metric`, and no `published`. What has no result yet has a row with n = 0.

    Raises:
        InputError: a word, metric or key is unknown.
    """
    with reading(store.engine) as connection:
        found = filters.parse(connection, words)
        if ids is not None:
            found.clauses.append(among(connection, Trials.id, ids))
        asked = [name if name == "all" else stored_name(name) for name in metrics]
        groups = grouped(connection, found, group_by, asked)
    published = Published()
    named = [name for name in metrics if name != "all"]
    ordered = sorted(groups, key=lambda group: [_order(value) for value in group.label.values()])
    return [row for group in ordered for row in _rows(group, published, named, grouped=bool(group_by))]


def _rows(group: Group, published: Published, asked: Sequence[str], *, grouped: bool) -> Iterable[dict[str, Any]]:
    state = min(group.states, key=FIRST_TOLD.index)
    names = sorted(group.values, key=lambda name: (not name.startswith("test/"), name))
    named: list[str | None] = [*names] or [*asked]
    for name in named or [None]:
        summary = summarize(group.values.get(name, ()) if name else ())
        metric = name.removeprefix("test/") if name else None
        if not grouped:
            metric = metric or published.metric(group.label["suite"])
        row = {**group.label, "metric": metric, "mean": summary.mean, "std": summary.std, "n": summary.n}
        if not grouped:
            row["published"] = published.value(group.label, metric)
        yield {**row, "state": state}


def _order(value: Any) -> tuple[int, float, str]:
    """Nothing first, then numbers by size, then texts."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, value if isinstance(value, str) else canonical_json(value)
