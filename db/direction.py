"""Whether more of a metric is better."""

from __future__ import annotations

import contextlib
from functools import cache

from harness.errors import InputError
from harness.task import Metric, outline_of


@cache
def metrics_of(task: str) -> dict[str, Metric]:
    """A task's metrics by name, that which selects the model first; {} where the task is not known here."""
    with contextlib.suppress(InputError, ImportError):
        return {metric.name: metric for metric in outline_of(task).metrics}
    return {}


def higher_is_better(task: str, metric: str) -> bool | None:
    """The direction of a metric of any split, or of one that was measured under a condition; None: it has none.

    Args:
        task: its task.
        metric: as results name it: ``accuracy``, ``dev/accuracy``, ``occlusion/accuracy@0.3``.
    """
    name = metric.rpartition("/")[2].partition("@")[0]
    known = metrics_of(task).get(name)
    return known.higher_is_better if known else None
