"""The metrics of tasks, which are declared in code rather than stored."""

from __future__ import annotations

import contextlib
from functools import cache

from dropbench.harness.errors import InputError
from dropbench.harness.trials.metric import Metric, MetricName
from dropbench.harness.trials.task import spec_of


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
