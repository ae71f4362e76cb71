"""The published value of a configuration, from the cell of its suite that requests it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from harness.errors import InputError
from harness.suites.cell import Cell
from harness.suites.suite import Suite, load_suite
from harness.trials.trial import TrialRequest


class Published:
    """Published values by suite and configuration; each suite is read once, when it is first needed."""

    def __init__(self) -> None:
        self._suites: dict[str, Suite | None] = {}
        self._cells: dict[str, list[Cell]] = {}

    def metric(self, name: str | None) -> str | None:
        """Return the metric of a suite's cells; None for a user's suite whose file no longer exists."""
        suite = self._suite(name)
        return suite.metric if suite else None

    def value(self, config: Mapping[str, Any], metric: str | None) -> float | None:
        """Return the published value of a configuration (a row of `db.queries.results.results`) and metric.

        None for synthetic data, on which the source did not measure.
        """
        suite = self._suite(config.get("suite"))
        if suite is None:
            return None
        if suite.name not in self._cells:
            self._cells[suite.name] = suite.published()
        matching = [
            cell for cell in self._cells[suite.name] if cell.metric == metric and _requests(cell.request, config)
        ]
        # The cell that fixes the most keys is the closest one; the others leave those keys at their defaults.
        cell = max(matching, key=lambda cell: len(cell.request.params) + len(cell.request.overrides), default=None)
        if cell is None or cell.published is None:
            return None
        return cell.published[0] if isinstance(cell.published, tuple) else cell.published

    def _suite(self, name: str | None) -> Suite | None:
        if name is None:
            return None
        if name not in self._suites:
            self._suites[name] = load_known(name)
        return self._suites[name]


def load_known(name: str) -> Suite | None:
    """Return a suite of DropBench, or of the user's file with that name; None if neither exists."""
    for path in (name, f"{name}.yaml"):
        with contextlib.suppress(InputError):
            return load_suite(path)
    return None


def _requests(request: TrialRequest, config: Mapping[str, Any]) -> bool:
    same = all(getattr(request, key) == config[key] for key in ("task", "data", "model", "regularizer", "align"))
    if not same or (request.regularizer != "none" and request.schedule != config["schedule"]):
        return False
    return all(
        key in config[holder] and config[holder][key] == value
        for holder in ("params", "overrides")
        for key, value in getattr(request, holder).items()
    )
