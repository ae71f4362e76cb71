"""The published number of a configuration: the cell of its suite that asks for it."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from harness.errors import InputError
from harness.suite import Cell, Suite, load_suite
from harness.trial import TrialRequest


class Published:
    """Published values by suite and configuration; suites are read once, when first asked for."""

    def __init__(self) -> None:
        self._suites: dict[str, Suite | None] = {}
        self._cells: dict[str, list[Cell]] = {}

    def metric(self, suite: str | None) -> str | None:
        """The metric of a suite's cells; None for a suite of the user's whose file is gone."""
        found = self._suite(suite)
        return found.metric if found else None

    def value(self, config: Mapping[str, Any], metric: str | None) -> float | None:
        """What the source prints for a configuration (a row of `db.query.results`) and metric.

        None for synthetic data: the source did not measure on them.
        """
        suite = self._suite(config.get("suite"))
        if suite is None:
            return None
        if suite.name not in self._cells:
            self._cells[suite.name] = suite.published()
        fitting = [
            cell for cell in self._cells[suite.name] if cell.metric == metric and _asks_for(cell.request, config)
        ]
        # A cell that names more is the closer one: the others leave it at its default.
        cell = max(fitting, key=lambda cell: len(cell.request.params) + len(cell.request.overrides), default=None)
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
    """A suite that comes with DropBench, or the user's file of that name, where it still is."""
    for known in (name, f"{name}.yaml"):
        with contextlib.suppress(InputError):
            return load_suite(known)
    return None


def _asks_for(request: TrialRequest, config: Mapping[str, Any]) -> bool:
    same = all(getattr(request, key) == config[key] for key in ("task", "data", "model", "regularizer", "align"))
    if not same or (request.regularizer != "none" and request.schedule != config["schedule"]):
        return False
    return all(
        key in config[holder] and config[holder][key] == value
        for holder in ("params", "overrides")
        for key, value in getattr(request, holder).items()
    )
