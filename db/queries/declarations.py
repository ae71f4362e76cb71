"""Declared in code and suites rather than stored: the metrics of a task, and the published value of a configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.spec import same_regularizer
from dropbench.harness.suites.cell import Cell
from dropbench.harness.trials.metric import Metric, MetricName
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import TrialRequest

if TYPE_CHECKING:
    from dropbench.harness.suites.suite import Suite


@cache
def metrics_of(task: str) -> dict[str, Metric]:
    """Return a task's metrics by name, the one that selects the model first; {} for an unknown task."""
    with contextlib.suppress(InputError, ImportError):
        return {metric.name: metric for metric in spec_of(task).metrics}
    return {}


def directed_metric(task: str, name: str) -> Metric | None:
    """Return the metric that a value measures, on any split or under any condition; None if it has no direction.

    Args:
        task: the task's name.
        name: as results print it: ``accuracy``, ``dev/accuracy``, ``occlusion/accuracy@0.3``.
    """
    metric = metrics_of(task).get(MetricName.parse(name).metric)
    return metric if metric and metric.higher_is_better is not None else None


class Published:
    """Published values by suite and configuration; each suite is read once, when it is first needed."""

    def __init__(self) -> None:
        self._suite = cache(_metric_and_published_cells)

    def metric(self, name: str | None) -> str | None:
        """Return the metric of a suite's cells; None for a user's suite whose file no longer exists."""
        return self._suite(name)[0]

    def value(self, config: Mapping[str, Any], metric: str | None) -> float | None:
        """Return the published value of a configuration (a row of `dropbench.db.queries.results.results`) and metric.

        None for synthetic data, on which the source did not measure.
        """
        _, cells = self._suite(config.get("suite"))
        matching = [cell for cell in cells if cell.metric == metric and _requests(cell.request, config)]
        # The cell that fixes the most keys is the closest one; the others leave those keys at their defaults.
        cell = max(matching, key=lambda cell: len(cell.request.params) + len(cell.request.overrides), default=None)
        if cell is None or cell.published is None:
            return None
        return cell.published[0] if isinstance(cell.published, tuple) else cell.published


def _metric_and_published_cells(name: str | None) -> tuple[str | None, list[Cell]]:
    suite = load_known(name) if name is not None else None
    return (suite.metric, suite.published()) if suite else (None, [])


def load_known(name: str) -> Suite | None:
    """Return a suite of DropBench, or of the user's file with that name; None if neither exists."""
    from dropbench.harness.suites.suite import load_suite

    for path in (name, f"{name}.yaml"):
        with contextlib.suppress(InputError):
            return load_suite(path)
    return None


def _requests(request: TrialRequest, config: Mapping[str, Any]) -> bool:
    same = all(getattr(request, key) == config[key] for key in ("task", "data", "model", "align"))
    same = same and same_regularizer(request.regularizer, config["regularizer"])
    if not same or (request.regularizer != "none" and request.schedule != config["schedule"]):
        return False
    return all(
        key in config[holder] and config[holder][key] == value
        for holder in ("params", "overrides")
        for key, value in getattr(request, holder).items()
    )
