"""A table as lines of plain text; the formats only have to escape and set it.

Two layouts. `long_grid`: a line a cell, the numbers as columns; with several columns of the suite, a section for each.
`wide_grid`: rows and columns as in the source, with the delta and the published value below each number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from db.report.choices import choice_lines, chosen_text, losses, standing
from db.report.deviations import recipe_lines
from db.report.view import Outcome, View
from db.statistics import ENOUGH
from harness.sweep import RECIPE
from harness.task import Metric

MINUS = "−"


@dataclass(frozen=True)
class Entry:
    """A text in its place; `best` ones are bold."""

    text: str = ""
    best: bool = False


@dataclass(frozen=True)
class Line:
    """A line: the head of a section, a row of the table, or what stands below its numbers."""

    kind: Literal["section", "row", "below"]
    entries: tuple[Entry, ...]


@dataclass
class Grid:
    """A table of text with its notes; `notes` are numbered from 1, as the marks ``[1]`` in the entries say."""

    title: str
    about: list[str]
    header: tuple[str, ...]
    lines: list[Line] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def mark(self, note: str) -> str:
        """The mark of a note, which is told once however often it is needed."""
        if note not in self.notes:
            self.notes.append(note)
        return f" [{self.notes.index(note) + 1}]"


def number(value: float | None, metric: Metric, *, signed: bool = False) -> str:
    """Percentages with two decimals, counts with none, other numbers with three; no sign for what rounds to zero."""
    if value is None:
        return ""
    digits = {"%": ".2f", "mm": ".2f", "count": ",.0f"}.get(metric.unit, ".3f")
    text = f"{value:{'+' if signed else ''}{digits}}"
    if float(text.replace(",", "")) == 0.0:
        text = text.lstrip("+-")
    return text.replace("-", MINUS)


def spread(value: float | None, std: float | None, metric: Metric) -> str:
    """Mean ± std."""
    return number(value, metric) + (f" ± {number(std, metric)}" if value is not None and std is not None else "")


def difference(outcome: Outcome, interval: bool = True) -> str:
    """Δ to the baseline, with its confidence interval where that is asked for and there are seeds enough."""
    text = number(outcome.delta, outcome.metric, signed=True)
    if outcome.interval is None or not interval:
        return text
    low, high = (number(bound, outcome.metric, signed=True) for bound in outcome.interval)
    return f"{text} [{low}, {high}]"


def long_grid(view: View, *, intervals: bool = True) -> Grid:
    """A line a cell; confidence intervals may be left out where there is no room for them."""
    grid = Grid(_title(view), about(view, intervals=intervals), ())
    sections = len(view.columns) > 1
    outcomes = list(view.cells.values())
    published = any(outcome.published is not None for outcome in outcomes)
    baseline = any(outcome.cell.baseline for outcome in outcomes)
    chosen = any(outcome.chosen is not None for outcome in outcomes)
    name = _metric_name(outcomes)
    grid.header = (
        "",
        name,
        "n",
        *(["chosen"] if chosen else []),
        *(["Δ base"] if baseline else []),
        *(["published", "Δ"] if published else []),
    )
    for column in view.columns:
        cells = view.column(column)
        if sections:
            label = column_label(column, cells)
            if name == "result":
                label += f", {metric_label(cells[0].metric)}"
            grid.lines.append(Line("section", (Entry(label),)))
        for outcome in cells:
            told, count = _mean(outcome, grid)
            entries = [Entry(outcome.row), told, count]
            if chosen:
                entries.append(Entry(_chosen(outcome, grid)))
            if baseline:
                entries.append(Entry(difference(outcome, intervals)))
            if published:
                entries.append(Entry(spread(outcome.published, outcome.published_std, outcome.metric)))
                entries.append(Entry(number(outcome.delta_published, outcome.metric, signed=True)))
            grid.lines.append(Line("row", tuple(entries)))
    return grid


def wide_grid(view: View) -> Grid:
    """Rows and columns as in the source."""
    grid = Grid(_title(view), about(view), ())
    heads = [(label, view.column(label)) for label in view.columns]
    grid.header = ("", *(f"{column_label(label, cells)} {cells[0].metric.arrow}".rstrip() for label, cells in heads))
    for row in view.rows:
        cells = [view.cells.get((row, column)) for column in view.columns]
        numbers = []
        for cell in cells:
            if cell is None:
                numbers.append(Entry())
                continue
            told, count = _mean(cell, grid)
            numbers.append(Entry(f"{told.text} ({count.text})" if cell.n else told.text, told.best))
        grid.lines.append(Line("row", (Entry(row), *numbers)))
        below = {
            "chosen": [_chosen(cell, grid) if cell else "" for cell in cells],
            "Δ base": [difference(cell) if cell else "" for cell in cells],
            "published (Δ)": [_published(cell) if cell else "" for cell in cells],
        }
        for name, texts in below.items():
            if any(texts):
                grid.lines.append(Line("below", (Entry(name), *map(Entry, texts))))
    return grid


def column_label(label: str, cells: Sequence[Outcome]) -> str:
    """The label, saying so where its data are synthetic, or a part of those that were published."""
    if any(cell.synthetic for cell in cells):
        return f"{label} (synthetic)"
    return f"{label} (subset)" if any(cell.subset for cell in cells) else label


def metric_label(metric: Metric) -> str:
    """``accuracy ↑``."""
    return f"{metric.name} {metric.arrow}".rstrip()


def _metric_name(outcomes: Sequence[Outcome]) -> str:
    names = {metric_label(outcome.metric) for outcome in outcomes}
    return names.pop() if len(names) == 1 else "result"


def _published(cell: Outcome) -> str:
    text = spread(cell.published, cell.published_std, cell.metric)
    delta = number(cell.delta_published, cell.metric, signed=True)
    return f"{text} ({delta})" if delta else text


def _chosen(outcome: Outcome, grid: Grid) -> str:
    """What was chosen, marked where candidates were lost on the way."""
    text = chosen_text(outcome)
    note = losses(outcome.selection) if text and outcome.selection is not None else None
    return text + (grid.mark(note) if note else "")


def _mean(outcome: Outcome, grid: Grid) -> tuple[Entry, Entry]:
    """The mean and the number of seeds, or why there is none."""
    if outcome.selection is not None and outcome.chosen is None:
        note = losses(outcome.selection)
        return Entry(standing(outcome.selection) + (grid.mark(note) if note else "")), Entry()
    states = {seed.state for seed in outcome.seeds}
    if outcome.n == 0 and outcome.metric.optional and states == {"succeeded"}:
        return Entry("–"), Entry()
    note = incomplete(outcome)
    mark = grid.mark(note) if note else ""
    if outcome.n == 0:
        order = ("failed", "running", "submitted", "queued", "cancelled", "skipped", "not run", "not analyzed")
        state = next((state for state in order if state in states), "skipped" if outcome.reason else "no number")
        return Entry(state + mark), Entry()
    whole = outcome.n == len(outcome.seeds)
    count = str(outcome.n) if whole else f"{outcome.n}/{len(outcome.seeds)}{mark}"
    return Entry(spread(outcome.mean, outcome.std, outcome.metric), outcome.best), Entry(count)


def incomplete(outcome: Outcome) -> str | None:
    """What happened to the seeds without a number; None where that is told by the state alone, or there are none."""
    if outcome.reason:
        return outcome.reason
    if outcome.selection is not None and outcome.chosen is None:
        return "; ".join(filter(None, [standing(outcome.selection), losses(outcome.selection)]))
    groups: dict[tuple[str, str | None], list[int]] = {}
    for seed in outcome.seeds:
        if seed.value is None:
            reason = seed.reason
            if seed.state == "succeeded":
                reason = f"the run gave no finite {outcome.metric.name}"
            groups.setdefault((seed.state, reason), []).append(seed.seed)
    if not groups or (outcome.n == 0 and len(groups) == 1 and next(iter(groups))[1] is None):
        return None
    told = []
    for (state, reason), seeds in groups.items():
        which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        told.append(f"{which}: {state}" + (f": {reason}" if reason else ""))
    return "; ".join(told)


def _title(view: View) -> str:
    return f"{view.suite.name}: {view.suite.title}"


def about(view: View, *, intervals: bool = True) -> list[str]:
    """What has to be known to read the numbers: where they come from, and how they differ from the published ones."""
    outcomes = list(view.cells.values())
    published = any(outcome.published is not None for outcome in outcomes)
    lines = [f"source: {view.suite.source}"]
    seeds = sorted({seed.seed for outcome in outcomes for seed in outcome.seeds})
    metrics = dict.fromkeys(outcome.metric for outcome in outcomes)
    names = ", ".join(
        metric.name if metric.unit in ("", "count") else f"{metric.name} in {metric.unit}" for metric in metrics
    )
    which = f" ({', '.join(map(str, seeds))})" if 0 < len(seeds) <= 10 else ""
    lines.append(f"test {names}: mean ± sample standard deviation over n seeds{which}; bold: best of its column")
    base = list(dict.fromkeys(outcome.row for outcome in outcomes if outcome.cell.baseline))
    if base:
        lines.append(f"Δ base: difference to '{base[0]}'" + (" and so on" if len(base) > 1 else "") + ", seed by seed")
        compared = [outcome for outcome in outcomes if outcome.delta is not None]
        if intervals and any(outcome.interval is not None for outcome in compared):
            lines[-1] += "; [low, high]: its 95 % confidence interval (paired t)"
        if intervals and any(outcome.interval is None for outcome in compared):
            lines.append(f"too few seeds for a confidence interval: it takes {ENOUGH} that row and baseline both have")
    if published:
        lines.append("published: as the source prints it, Δ: ours − published")
    lines += choice_lines(outcomes)
    lines += recipe_lines(view)
    if any(outcome.synthetic for outcome in outcomes):
        lines.append("synthetic: generated data in the format of the real set; not comparable with published numbers")
    parts = {(outcome.cell.request.data, told): None for outcome in outcomes for told in outcome.subset}
    lines += [f"subset: {data}, {told}" for data, told in parts]
    changed = _overrides(view)
    if changed:
        lines.append(f"recipe overridden: {', '.join(changed)}")
    return lines


def _overrides(view: View) -> list[str]:
    """What was overridden beyond what preset and suite say themselves."""
    suite = view.suite
    axes = (*suite.rows, *suite.columns)
    said = [suite.trial.get("overrides", {}), *(axis.trial.get("overrides", {}) for axis in axes)]
    said += [axis.presets.get(view.preset, {}) for axis in axes]
    said += [suite.presets[view.preset].overrides] if view.preset in suite.presets else []
    found: dict[str, None] = {}
    for outcome in view.cells.values():
        for key, value in outcome.cell.request.overrides.items():
            if f"{RECIPE}{key}" in (outcome.chosen or ()):
                continue
            if not any(key in one and one[key] == value for one in said):
                found[f"{key}={value}"] = None
    return list(found)
