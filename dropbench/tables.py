"""Tables of results, for the terminal, notebooks, pandas and matplotlib."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dropbench.db.queries.results import METRIC_COLUMNS
from dropbench.db.report.formats.documents import as_json
from dropbench.db.report.formats.layout import fitting_grid
from dropbench.db.report.formats.listing import NEVER_SHARED, results_table
from dropbench.db.report.page.table import table_of
from dropbench.db.report.page.templates import render
from dropbench.db.report.view.view import View
from dropbench.db.statistics.t_test import MIN_PAIRS, quantile
from dropbench.db.store.rows import Row
from dropbench.harness.cli.text_table import to_text
from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.settings import Settings
from dropbench.harness.suites.search_space import RECIPE_PREFIX
from dropbench.trial_run import TrialRun

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

EMPTY = "no results: run `dropbench run SUITE`"
NUMBERS = {
    *METRIC_COLUMNS, "low", "high", "delta", "delta_low", "delta_high", "p_value", "published_std", "delta_published"
} - {"n", "pooled"}  # fmt: skip
"""Columns of a frame that are numbers, even where none is known."""
NESTED = ("states", "chosen", "candidates", "unasked", "trials")
"""Values of a record that a frame leaves out: lists and dictionaries, and their counts."""
NO_LABELS = ("fingerprint", "pooled", "mark")
"""Columns of results that do not name a row, besides the numbers."""


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """Results, as `dropbench.run` and `dropbench.results` return them.

    `str` and `repr` are the text that the command line prints; a notebook shows the table of the HTML page.

    Attributes:
        records: one per cell of a suite, or per configuration and metric: plain values, as with ``--json``.
        ids: the ids of its trials.
    """

    records: Sequence[Row]
    ids: Sequence[str]
    _settings: Settings
    _text: Callable[[], str]
    _html: Callable[[], str]

    @classmethod
    def of_suite(cls, view: View, settings: Settings) -> Table:
        """Return the table of a suite."""

        def html() -> str:
            return render("notebook.html.j2", table=table_of(view, {}))

        def text() -> str:
            width = shutil.get_terminal_size().columns
            return to_text(fitting_grid(view, width), width)

        seeds = (seed for result in view.cells.values() for seed in result.seeds if seed.state != "not run")
        records = json.loads(as_json(view))["cells"]
        return cls(records, list(dict.fromkeys(seed.id for seed in seeds)), settings, text, html)

    @classmethod
    def of_rows(cls, rows: Sequence[Row], ids: Sequence[str], settings: Settings) -> Table:
        """Return the table of rows from `dropbench.db.queries.results`."""

        def html() -> str:
            table = results_table(rows)
            lines = {"above": table.above, "below": () if rows else (EMPTY,)}
            return render("notebook.html.j2", table=None, header=table.header, rows=table.texts, **lines)

        def text() -> str:
            return to_text(results_table(rows)) if rows else EMPTY

        return cls(rows, ids, settings, text, html)

    def __str__(self) -> str:
        return self._text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self._html()

    @property
    def trials(self) -> list[TrialRun]:
        """The trials behind the numbers, as `dropbench.trial` returns them; only those with a run directory here."""
        runs = Runs(self._settings.runs)
        return [TrialRun(runs[id], self._settings) for id in self.ids if id in runs]

    def to_frame(self) -> DataFrame:
        """Return one row per record, without the nested values.

        Columns besides those of ``--json``: the regularizers' parameters (`ratio`; `drop_unit` for ``unit``), each
        changed hyperparameter (`set.steps`), and `low` and `high`, the 95 % confidence interval of `mean` over seeds by
        Student's t. The interval is NaN for fewer than three seeds, equal seeds, and means over several configurations.
        `mean`, `std`, `low`, `high` and `published` have the unit of the metric, such as percent.
        """
        from pandas import DataFrame

        frame = DataFrame(self._flat())
        return frame.astype({name: float for name in frame.columns if name in NUMBERS})

    def plot(self, ax: Axes | None = None, **only: Any) -> Axes:
        """Draw each mean with its 95 % confidence interval, single seeds (of a suite) and the published value.

        Args:
            ax: the axes to draw on; None: new ones.
            only: draws only the rows of `to_frame` with these values, such as ``column="ViT"``.

        Raises:
            InputError: there is no such column or no result, or the rows are of several metrics.
        """
        from matplotlib import pyplot

        rows = [*zip(self.records, self._flat(), strict=True)]
        for name, value in only.items():
            columns = {column for _, flat in rows for column in flat}
            if name not in columns:
                raise unknown_name("column", name, columns)
            rows = [(record, flat) for record, flat in rows if flat.get(name) == value]
        rows = [(record, flat) for record, flat in rows if flat.get("mean") is not None]
        metrics = list(dict.fromkeys(flat["metric"] for _, flat in rows))
        if len(metrics) != 1:
            raise InputError(f"metrics {', '.join(metrics)}: pass one: plot(metric=…)" if rows else "nothing to plot")
        if ax is None:
            _, ax = pyplot.subplots(figsize=(7, 1.2 + 0.35 * len(rows)), layout="constrained")
        labels = _labels([record for record, _ in rows])
        lines = list(dict.fromkeys(labels))
        series = list(dict.fromkeys(flat.get("column") for _, flat in rows))
        for (record, flat), label in zip(rows, labels, strict=True):
            number = series.index(flat.get("column"))
            y, color = lines.index(label) + 0.6 * ((number + 0.5) / len(series) - 0.5), f"C{number}"
            seeds = [seed["value"] for seed in record.get("trials", ()) if seed["value"] is not None]
            ax.plot(seeds, [y] * len(seeds), "|", color=color, alpha=0.6)
            if flat.get("low") is not None:
                ax.plot([flat["low"], flat["high"]], [y, y], color=color)
            if flat.get("published") is not None:
                ax.plot(flat["published"], y, "D", color=color, fillstyle="none", label="published")
            ax.plot(flat["mean"], y, "o", color=color, label=flat["column"] if len(series) > 1 else None)
        ax.set_yticks(range(len(lines)), lines)
        ax.set_ylim(len(lines) - 0.5, -0.5)
        unit = rows[0][0].get("unit")
        ax.set_xlabel(f"{metrics[0]} ({unit})" if unit else metrics[0])
        handles, names = ax.get_legend_handles_labels()
        if named := {name: handle for handle, name in zip(handles, names, strict=True)}:
            ax.legend(named.values(), named.keys(), fontsize="small", frameon=False)
        return ax

    def _flat(self) -> list[dict[str, Any]]:
        """Return the plain values of the records, as the columns of `to_frame`."""
        params = dict.fromkeys(key for record in self.records for key in record.get("params", ()))
        overrides = dict.fromkeys(key for record in self.records for key in record.get("overrides", ()))
        rows = []
        for record in self.records:
            row: dict[str, Any] = {}
            for name, value in record.items():
                if name == "params":
                    row |= {"drop_unit" if key == "unit" else key: value.get(key) for key in params}
                elif name == "overrides":
                    row |= {f"{RECIPE_PREFIX}{key}": value.get(key) for key in overrides}
                elif name not in NESTED:
                    row[name] = value
                if name == "n":
                    row["low"], row["high"] = _interval(record)
            rows.append(row)
        return rows


def _interval(record: Row) -> tuple[float, float] | tuple[None, None]:
    """Return the 95 % confidence interval of the mean over the seeds of one configuration (Student 1908)."""
    mean, std, n = record.get("mean"), record.get("std"), record["n"]
    if mean is None or not std or n < MIN_PAIRS or record.get("pooled"):
        return None, None
    margin = quantile(0.05, n - 1) * std / math.sqrt(n)
    return mean - margin, mean + margin


def _labels(records: Sequence[Row]) -> list[str]:
    """Return the label of each record: the suite's row, or the regularizer and the other texts that vary."""
    if "row" in records[0]:
        return [record["row"] for record in records]
    table = results_table(records)
    header, texts = table.header, table.texts
    columns = dict(zip(header, zip(*texts, strict=True), strict=True))
    varying = [name for name, column in columns.items() if name == "regularizer" or len(set(column)) > 1]
    names = [name for name in varying if name not in NEVER_SHARED - {"regularizer"} and name not in NO_LABELS]
    parts = [[text for name, text in zip(header, row, strict=True) if name in names and text] for row in texts]
    return [", ".join(part) or str(records[0]["metric"]) for part in parts]
