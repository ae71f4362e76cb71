"""Metrics of tasks, and the names under which results are stored."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from dropbench.harness.errors import InputError

TEST = "test"
NAME = re.compile(r"\w[\w.+-]*")
RESERVED = {"task", "data", "fingerprint", "model", "regularizer", "schedule", "align", "preset", "plugin"}
RESERVED |= {"state", "suite", "seed", "libraries", "result_versions", "origin", "id", "n"}
"""Names that filters and groups read as fields of trials."""


@dataclass(frozen=True)
class Metric:
    """A number that a task reports.

    Attributes:
        name: without the split: ``accuracy``; results are stored as ``test/accuracy``.
        higher_is_better: the direction; None if neither is better.
        unit: "%" for percentages (values 0 to 100), "mm", "count" for whole numbers, "" for other plain ones.
        optional: whether runs may omit it, because some models or regularizers do not report it.
        decimals: those that tables show; None: as the unit has them.

    Raises:
        ValueError: the name is that of a field of trials, or has characters that filters and files cannot hold.
    """

    name: str
    higher_is_better: bool | None = True
    unit: str = "%"
    optional: bool = False
    decimals: int | None = None

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise ValueError(f"metric '{self.name}': it is a field of trials: choose another name")
        if not NAME.fullmatch(self.name):
            raise ValueError(f"metric '{self.name}': expected letters, digits, '-', '_' or '.', such as f1-macro")
        if self.decimals is not None and not 0 <= self.decimals <= 12:
            raise ValueError(f"metric '{self.name}': decimals={self.decimals}: expected 0 to 12")

    @property
    def arrow(self) -> str:
        """The direction, as tables show it."""
        return {True: "↑", False: "↓", None: ""}[self.higher_is_better]

    def score(self, value: float) -> float:
        """Return `value` with the sign that makes a higher score better, whatever the metric's direction."""
        return value if self.higher_is_better else -value


def require_numbers(metrics: Any, method: str) -> dict[str, float]:
    """Return what a task's method has returned; raise InputError if it is not a dict of numbers by name."""
    if not isinstance(metrics, dict):
        raise InputError(f"{method} returned {metrics!r:.60}: expected a dict of numbers by metric")
    for name, value in metrics.items():
        if not isinstance(value, int | float):
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            raise InputError(f"{method}: {name} is a {kind}: expected a number, such as {name}.item()")
    return metrics


class MetricName(NamedTuple):
    """The name of a stored value: ``test/accuracy``, ``occlusion/accuracy@0.3``.

    Attributes:
        split: the split of the data, or the analysis that measured the value.
        name: the metric, followed by ``@`` and the condition if it was measured under one.
    """

    split: str
    name: str

    @classmethod
    @lru_cache(maxsize=1024)
    def parse(cls, text: str, split: str = TEST) -> MetricName:
        """Read a name as users and databases write it; a name without a split gets `split`."""
        prefix, separator, name = text.partition("/")
        return cls(prefix, name) if separator else cls(split, text)

    def __str__(self) -> str:
        return f"{self.split}/{self.name}"

    @property
    def label(self) -> str:
        """The name as results print it: without the split if that is the test set."""
        return self.name if self.split == TEST else str(self)

    @property
    def metric(self) -> str:
        """The metric's name without the condition."""
        return self.name.partition("@")[0]
