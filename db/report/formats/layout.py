"""Lay out a table as lines of plain text, which the formats only escape and typeset.

`long_grid` has one line per cell with its numbers as columns, and one section per column of the suite if there are
several. `wide_grid` has the rows and columns of the source, with the difference and the published value below each
number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from db.queries.statistics import EQUAL, MIN_PAIRS, TOO_FEW
from db.report.formats.noise import Noise, noise_lines, significant
from db.report.view.notes import lost_candidates, params_text, progress_text, recipe_lines, selection_lines
from db.report.view.view import CellResult, View, baselines
from harness.suites.search_space import RECIPE_PREFIX
from harness.suites.suite import SYNTHETIC
from harness.trials.metric import Metric
from harness.trials.trial import PARTIAL

MINUS = "−"
SIGNIFICANT = "†"
"""Mark of differences that are significant after Holm's correction."""


@dataclass(frozen=True)
class Entry:
    """A text of the table; the best ones are bold."""

    text: str = ""
    best: bool = False


@dataclass(frozen=True)
class Line:
    """A line: the heading of a section, a row of the table, or details below its numbers."""

    kind: Literal["section", "row", "below"]
    entries: tuple[Entry, ...]


@dataclass
class Grid:
    """A table of texts with its notes, which are numbered from 1 and cited as ``[1]`` in the entries."""

    title: str
    about: list[str]
    header: tuple[str, ...]
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def cite(self, note: str | None) -> str:
        """Return the mark of a note, adding the note if it is new; "" for None."""
        if not note:
            return ""
        if note not in self.notes:
            self.notes.append(note)
        return f" [{self.notes.index(note) + 1}]"


def format_metric(value: float | None, metric: Metric, *, signed: bool = False) -> str:
    """Return percentages with two decimals, counts with none, others with three; zero after rounding has no sign."""
    if value is None:
        return ""
    digits = {"%": ".2f", "mm": ".2f", "count": ",.0f"}.get(metric.unit, ".3f")
    text = f"{value:{'+' if signed else ''}{digits}}"
    if float(text.replace(",", "")) == 0.0:
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def mean_std(value: float | None, std: float | None, metric: Metric) -> str:
    """Return mean ± std; the mean alone without a std."""
    deviation = f" ± {format_metric(std, metric)}" if value is not None and std is not None else ""
    return format_metric(value, metric) + deviation


def delta_text(result: CellResult, interval: bool = True) -> str:
    """Return the difference from the baseline, with a mark if it is significant after Holm's correction.

    With its interval, or `EQUAL` instead of one, if `interval` is true.
    """
    text = format_metric(result.delta, result.metric, signed=True)
    if interval and result.interval is not None:
        low, high = (format_metric(bound, result.metric, signed=True) for bound in result.interval)
        text = f"{text} [{low}, {high}]"
    elif interval and result.no_interval == EQUAL:
        text = f"{text} [{EQUAL}]"
    return f"{text} {SIGNIFICANT}" if significant([result.p_holm]) else text


def source_grid(view: View) -> Grid:
    """Return the table in the layout of its source: `wide_grid`, or `long_grid` for a single column."""
    return wide_grid(view) if len(view.columns) > 1 else long_grid(view)


def long_grid(view: View, *, intervals: bool = True) -> Grid:
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
    grid = Grid(
        f"{view.suite.name}: {view.suite.title}", [*about(view, intervals=intervals), *view.suite.notes], header
    )
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
                "Δ": format_metric(result.delta_published, result.metric, signed=True),
            }
            entries += [Entry(text) for name, text in texts.items() if optional[name]]
            grid.lines.append(Line("row", tuple(entries)))
    return grid


def wide_grid(view: View) -> Grid:
    """Return the rows and columns of the source."""
    heads = [(label, view.column(label)) for label in view.columns]
    header = ("", *(f"{column_label(label, cells)} {cells[0].metric.arrow}".rstrip() for label, cells in heads))
    grid = Grid(f"{view.suite.name}: {view.suite.title}", [*about(view), *view.suite.notes], header)
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
    delta = format_metric(cell.delta_published, cell.metric, signed=True)
    return f"{text} ({delta})" if delta else text


def _chosen(result: CellResult, grid: Grid) -> str:
    """Return the selected candidate, citing a note on lost candidates."""
    if result.selection is None or not result.chosen:
        return ""
    return params_text(result.chosen) + grid.cite(lost_candidates(result.selection))


def _mean_entries(result: CellResult, grid: Grid) -> tuple[Entry, Entry]:
    """Return the mean and the number of seeds, or the reason why there is none and an empty entry."""
    if result.selection is not None and result.chosen is None:
        return Entry(progress_text(result.selection) + grid.cite(lost_candidates(result.selection))), Entry()
    states = {seed.state for seed in result.seeds}
    if result.n == 0 and result.metric.optional and states == {"succeeded"}:
        return Entry("–"), Entry()
    mark = grid.cite(incomplete(result))
    if result.n == 0:
        order = ("failed", "running", "submitted", "queued", "cancelled", "skipped", "not run", "not analyzed")
        state = next((state for state in order if state in states), "skipped" if result.reason else "no number")
        return Entry(state + mark), Entry()
    count = str(result.n) if result.n == len(result.seeds) else f"{result.n}/{len(result.seeds)}{mark}"
    return Entry(mean_std(result.mean, result.std, result.metric), result.best), Entry(count)


def incomplete(result: CellResult) -> str | None:
    """Return a note on the seeds without a number; None if there are none or their common state says enough."""
    if result.reason:
        return result.reason
    if result.selection is not None and result.chosen is None:
        return "; ".join(filter(None, [progress_text(result.selection), lost_candidates(result.selection)]))
    groups: dict[tuple[str, str | None], list[int]] = {}
    for seed in result.seeds:
        if seed.value is None:
            reason = seed.reason
            if seed.state == "succeeded":
                reason = f"the run reported no finite {result.metric.name}"
            groups.setdefault((seed.state, reason), []).append(seed.seed)
    (state, reason), *others = groups or [("", None)]
    if result.n == 0 and not others and (reason is None or state == "skipped"):
        return reason  # the state is in the table
    parts = []
    for (state, reason), seeds in groups.items():
        numbers = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        parts.append(f"{numbers}: {state}" + (f": {reason}" if reason else ""))
    return "; ".join(parts)


def about(view: View, *, intervals: bool = True) -> list[str]:
    """Return the legend: source and meaning of the numbers, and how their recipes and data differ from the source."""
    results = list(view.cells.values())
    metrics = dict.fromkeys(result.metric for result in results)
    names = (metric.name if metric.unit in ("", "count") else f"{metric.name} in {metric.unit}" for metric in metrics)
    seeds = sorted({seed.seed for result in results for seed in result.seeds})
    numbers = f" ({', '.join(map(str, seeds))})" if 0 < len(seeds) <= 10 else ""
    spread = f"mean ± sample standard deviation over n seeds{numbers}" if len(seeds) != 1 else f"seed {seeds[0]} alone"
    lines = [f"source: {view.suite.source}", f"test {', '.join(names)}: {spread}; bold: best in its column"]
    base = list(dict.fromkeys(result.row for result in results if result.cell.baseline))
    if base:
        baseline = f"'{base[0]}'" if len(base) == 1 else f"the nearest baseline above, such as '{base[0]}'"
        lines.append(f"Δ base: difference from {baseline}, paired by seed")
        reasons = {result.no_interval for result in results if result.delta is not None and intervals}
        if None in reasons:
            lines[-1] += "; [low, high]: 95 % confidence interval (paired t-test)"
        if TOO_FEW in reasons:
            lines.append(f"no confidence interval: row and baseline share fewer than {MIN_PAIRS} seeds")
        if EQUAL in reasons:
            lines.append(f"{EQUAL}: no confidence interval or p-value, as the difference is the same for all seeds")
        if tests := sum(result.p_value is not None for result in results):
            confirmed = significant([result.p_holm for result in results])
            lines.append(
                f"{SIGNIFICANT}: significant at 5 % after Holm's correction for the {tests} differences of the table:"
                f" {confirmed}; after Benjamini-Hochberg's: {significant([result.p_bh for result in results])}"
            )
        lines += noise_lines(_noises(view), "the baseline")
    if any(result.published is not None for result in results):
        lines.append("published: value in the source; Δ: ours − published")
    lines += floor_lines(view)
    lines += [*selection_lines(results), *recipe_lines(view)]
    if any(result.synthetic for result in results):
        lines.append("synthetic: generated data in the format of the real set; not comparable with published numbers")
    subsets = dict.fromkeys((result.cell.request.data, note) for result in results for note in result.subset)
    lines += [f"subset: {data}, {note}" for data, note in subsets]
    fingerprints = dict.fromkeys((result.cell.request.data, result.fingerprint or "") for result in results)
    lines += [f"{data}: fingerprint {label}" for data, label in fingerprints if label.endswith(PARTIAL)]
    if view.versions:
        lines.append(f"trained with different versions: {view.versions}")
    lines += view.outdated
    if overrides := _overrides(view):
        lines.append(f"recipe overridden: {', '.join(overrides)}")
    return lines


def _noises(view: View) -> list[Noise]:
    """Return the noise of the differences of a table."""
    noises = []
    for position, baseline in baselines(view).items():
        result = view.cells[position]
        if result.delta is not None:
            half_width = None if result.interval is None else (result.interval[1] - result.interval[0]) / 2
            text = partial(format_metric, metric=result.metric)
            noises.append(Noise(result.metric.name, baseline.std, half_width, result.paired, text))
    return noises


def floor_lines(view: View) -> list[str]:
    """Return one line on the floors of each data set, best predictor first."""
    metrics = {(result.cell.request.data, result.metric.name): result.metric for result in view.cells.values()}
    lines = []
    for key, values in view.floors.items():
        metric = metrics[key]
        order = sorted(values.items(), key=lambda item: item[1], reverse=metric.higher_is_better is not False)
        texts = (f"{format_metric(value, metric)} {name}" for name, value in order)
        lines.append(f"floor: {key[0]}, test {metric.name}: {', '.join(texts)}")
    return lines


def _overrides(view: View) -> list[str]:
    """Return the overrides that neither the preset nor the suite sets itself."""
    suite = view.suite
    axes = (*suite.rows, *suite.columns)
    declared = [suite.trial.get("overrides", {}), *(axis.trial.get("overrides", {}) for axis in axes)]
    declared += [axis.presets.get(view.preset, {}) for axis in axes]
    declared += [suite.presets[view.preset].overrides] if view.preset in suite.presets else []
    texts = [
        f"{key}={value}"
        for result in view.cells.values()
        for key, value in result.cell.request.overrides.items()
        if f"{RECIPE_PREFIX}{key}" not in (result.chosen or ())
        and not any(key in overrides and overrides[key] == value for overrides in declared)
    ]
    return list(dict.fromkeys(texts))
