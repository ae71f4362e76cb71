"""Lay out the table of a suite as texts.

`long_grid` has one line per cell with its numbers as columns, and one section per column of the suite if there are
several. `wide_grid` has the rows and columns of the source, with the difference and the published value below each
number.
"""

from __future__ import annotations

from collections.abc import Sequence

from dropbench.db.queries.marks import OLDER_SIGN
from dropbench.db.report.formats.legend import about, incomplete
from dropbench.db.report.formats.numbers import delta_text, format_metric, mean_std
from dropbench.db.report.view.cells import CellResult
from dropbench.db.report.view.notes import lost_candidates, params_text, progress_text
from dropbench.db.report.view.view import View
from dropbench.harness.cli.text_table import Entry, Line, TextTable
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.trial import SYNTHETIC


def source_grid(view: View) -> TextTable:
    """Return the table in the layout of its source: `wide_grid`, or `long_grid` for a single column."""
    return wide_grid(view) if len(view.columns) > 1 else long_grid(view)


def fitting_grid(view: View, width: int) -> TextTable:
    """Return the layout of the source if it fits in `width`, or else one line per cell, with intervals if these fit."""
    if len(view.columns) > 1 and (grid := wide_grid(view)).fits(width, wrapped=False):
        return grid
    return grid if (grid := long_grid(view)).fits(width, wrapped=True) else long_grid(view, intervals=False)


def long_grid(view: View, *, intervals: bool = True) -> TextTable:
    """Return one line per cell, with or without confidence intervals."""
    results = list(view.cells.values())
    published = any(result.published is not None for result in results)
    optional = {
        "chosen": any(result.chosen is not None for result in results),
        "Δ base": any(result.cell.baseline for result in results),
        "published": published,
        "Δ": published,
    }
    labels = {metric_label(result.metric) for result in results}
    name = labels.pop() if len(labels) == 1 else "result"
    header = ("", name, "n", *(column for column, present in optional.items() if present))
    grid = _empty(view, header, about(view, intervals=intervals))
    for column in view.columns:
        cells = view.column(column)
        if len(view.columns) > 1:
            label = column_label(column, cells)
            if name == "result":
                label += f", {metric_label(cells[0].metric)}"
            grid.lines.append(Line("section", (Entry(label),)))
        for result in cells:
            entries = [Entry(result.row), *_mean_entries(result, grid)]
            texts = {
                "chosen": _chosen(result, grid),
                "Δ base": delta_text(result, intervals),
                "published": mean_std(result.published, result.published_std, result.metric),
                "Δ": format_metric(result.delta_published, result.metric, signed=True, like=result.mean),
            }
            entries += [Entry(text) for name, text in texts.items() if optional[name]]
            grid.lines.append(Line("row", tuple(entries)))
    return grid


def wide_grid(view: View) -> TextTable:
    """Return the rows and columns of the source."""
    heads = [(label, view.column(label)) for label in view.columns]
    header = ("", *(f"{column_label(label, cells)} {cells[0].metric.arrow}".rstrip() for label, cells in heads))
    grid = _empty(view, header, about(view))
    for row in view.rows:
        cells = [view.cells.get((row, column)) for column in view.columns]
        numbers = []
        for cell in cells:
            mean, count = _mean_entries(cell, grid) if cell else (Entry(), Entry())
            numbers.append(Entry(f"{mean.text} ({count.text})" if count.text else mean.text, mean.best))
        grid.lines.append(Line("row", (Entry(row), *numbers)))
        below = {
            "chosen": [_chosen(cell, grid) if cell else "" for cell in cells],
            "Δ base": [delta_text(cell) if cell else "" for cell in cells],
            "published (Δ)": [_published(cell) if cell else "" for cell in cells],
        }
        for name, texts in below.items():
            if any(texts):
                grid.lines.append(Line("below", (Entry(name), *map(Entry, texts))))
    return grid


def _empty(view: View, header: Sequence[str], legend: Sequence[str]) -> TextTable:
    """Return a table without lines, all but its first column aligned right."""
    title = ": ".join(filter(None, (view.suite.name, view.suite.title)))
    return TextTable(header, right=range(1, len(header)), title=title, below=[*legend, *view.suite.notes])


def column_label(label: str, cells: Sequence[CellResult]) -> str:
    """Return the label of cells, marked if their data are synthetic or a subset of the published ones."""
    if any(cell.synthetic for cell in cells):
        return label if label.endswith(SYNTHETIC) else f"{label} (synthetic)"
    return f"{label} (subset)" if any(cell.subset for cell in cells) else label


def metric_label(metric: Metric) -> str:
    """Return the name of a metric with its direction: ``accuracy ↑``."""
    return f"{metric.name} {metric.arrow}".rstrip()


def _published(cell: CellResult) -> str:
    text = mean_std(cell.published, cell.published_std, cell.metric)
    delta = format_metric(cell.delta_published, cell.metric, signed=True, like=cell.mean)
    return f"{text} ({delta})" if delta else text


def _chosen(result: CellResult, grid: TextTable) -> str:
    """Return the selected candidate, citing a note on lost candidates."""
    if result.selection is None or not result.chosen:
        return ""
    return params_text(result.chosen) + grid.cite(lost_candidates(result.selection))


def _mean_entries(result: CellResult, grid: TextTable) -> tuple[Entry, Entry]:
    """Return the mean and the number of seeds, or the reason why there is none and an empty entry."""
    if result.hidden and (result.selection is None or result.chosen is not None):
        return Entry("hidden"), Entry()
    if result.selection is not None and result.chosen is None:
        return Entry(progress_text(result.selection) + grid.cite(lost_candidates(result.selection))), Entry()
    states = {seed.state for seed in result.seeds}
    if result.n == 0 and result.metric.optional and states == {"succeeded"}:
        return Entry("–"), Entry()
    mark = grid.cite(incomplete(result))
    if result.n == 0:
        order = ("failed", "running", "submitted", "queued", "cancelled", "skipped", "not run", "not analyzed")
        state = next((state for state in order if state in states), "no number")
        return Entry(state + mark), Entry()
    count = str(result.n) if result.n == len(result.seeds) else f"{result.n}/{len(result.seeds)}{mark}"
    return Entry(mean_std(result.mean, result.std, result.metric), result.best), Entry(
        count + OLDER_SIGN * result.older_rule
    )
