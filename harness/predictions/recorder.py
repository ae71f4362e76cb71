"""Columns and rows of predictions, as a task records them while it evaluates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dropbench.harness.predictions.schema import Kind, Ratio, Row

PROBABILITY_DECIMALS = 4
LOSS_DECIMALS = 5


@dataclass
class Recorder:
    """Collect the predictions of a split in the final evaluation.

    A task calls `define` once and `add` for each batch. A task that calls neither has no predictions.

    Attributes:
        rows: rows so far. A row without ``index``, its sample in the split, belongs to the next sample of the
            evaluation.
        columns, classes, metrics, corpus: see `dropbench.harness.predictions.schema.Header`.
    """

    rows: list[Row] = field(default_factory=list)
    columns: Mapping[str, Kind] = field(default_factory=dict)
    classes: Sequence[str] = ()
    metrics: Mapping[str, Ratio] = field(default_factory=dict)
    corpus: Mapping[str, Mapping[str, str | bool]] = field(default_factory=dict)

    def define(
        self,
        columns: Mapping[str, Kind],
        metrics: Mapping[str, Ratio] = {},
        *,
        classes: Sequence[str] = (),
        corpus: Mapping[str, Mapping[str, str | bool]] = {},
    ) -> None:
        """Define the columns and the metrics that can be computed from them."""
        self.columns, self.metrics, self.classes, self.corpus = columns, metrics, classes, corpus

    def definition(self) -> dict[str, Any]:
        """Return what `define` was called with, as plain values for `define_by`."""
        metrics = {name: ratio.model_dump() for name, ratio in self.metrics.items()}
        corpus = {name: dict(options) for name, options in self.corpus.items()}
        return {"columns": dict(self.columns), "metrics": metrics, "classes": [*self.classes], "corpus": corpus}

    def define_by(self, definition: Mapping[str, Any]) -> None:
        """Define the columns and the metrics as another recorder did."""
        metrics = {name: Ratio(**fields) for name, fields in definition["metrics"].items()}
        self.define(**{**definition, "metrics": metrics})

    def add(self, rows: Iterable[Row]) -> None:
        """Add the rows of a batch."""
        self.rows.extend(rows)


def rounded(values: Any, decimals: int) -> list[Any]:
    """Return an array as a nested list of rounded numbers, None for those that are not finite."""
    import numpy as np

    array = np.round(np.asarray(values, np.float64), decimals)
    return np.where(np.isfinite(array), array.astype(object), np.array(None)).tolist()  # type: ignore[no-any-return]


def shortest(values: Any) -> list[Any]:
    """Return an array as a nested list of the shortest numbers that give the same float32."""
    import numpy as np

    array = np.asarray(values, np.float32)
    return array.astype(str).astype(np.float64).tolist()  # type: ignore[no-any-return]
