"""The metrics of tasks, which are declared in code, and the names of those that are stored."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from sqlalchemy import Connection

from dropbench.db.store.filters import final_names
from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.trials.metric import TEST, Metric, MetricName
from dropbench.harness.trials.task import TASKS, spec_of


def metrics_of(task: str) -> dict[str, Metric]:
    """Return a task's metrics by name, the one that selects the model first; {} for an unknown task."""
    with contextlib.suppress(InputError, ImportError):
        return {metric.name: metric for metric in spec_of(task).metrics} if task in TASKS else {}
    return {}


def directed_metric(task: str, name: str) -> Metric | None:
    """Return the metric that a value measures, on any split or under any condition; None if it has no direction.

    Args:
        task: the task's name.
        name: as results print it: ``accuracy``, ``dev/accuracy``, ``occlusion/accuracy@0.3``.
    """
    metric = metrics_of(task).get(MetricName.parse(name).metric)
    return metric if metric and metric.higher_is_better is not None else None


def resolve_names(connection: Connection, metrics: Sequence[str]) -> list[str]:
    """Return the stored names of final values for the user's `metrics`; ``all``: every one; none: the test set's.

    Raises:
        InputError: there is no such metric.
    """
    known = final_names(connection)
    if not metrics:
        return [name for name in known if MetricName.parse(name).split == TEST]
    if "all" in metrics:
        return known
    names = [MetricName.parse(metric) for metric in metrics]
    for name in names:
        if known and str(name) not in known:
            raise unknown_name("metric", name.label, {MetricName.parse(name).label for name in known} | {"all"})
    return list(dict.fromkeys(map(str, names)))
