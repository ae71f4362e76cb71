"""A suite as one page of HTML that needs no network: its table, plots of it, and all that lies behind the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from markupsafe import Markup

from db.report.page.analyses import analysis_groups
from db.report.page.charts import Group
from db.report.page.details import Behind, cells_of
from db.report.page.metric import metric_plots
from db.report.page.table import Table, table_of
from db.report.page.templates import asset, digest, plotting, render
from db.report.page.training import learning_curves, ratios_by_layer
from db.report.view import View
from db.store import Store

MOST_CELLS = 1500
"""Cells of the table that a page shows."""

NO_FORMS = "base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Content:
    """What a page shows of a suite.

    Attributes:
        view: its table as numbers, without the rows that are too many.
        table: the same as text.
        cells: what lies behind each.
        rows_left_out: a sentence where there are more rows, else "".
        lead: a sentence on what of the trials is shown.
    """

    view: View
    table: Table
    cells: Sequence[Behind]
    rows_left_out: str
    lead: str
    progress: str


def page(view: View, store: Store, runs: Path) -> str:
    """The page.

    Args:
        view: the suite's table.
        store: the database.
        runs: the root of the run directories.
    """
    with ThreadPoolExecutor(1) as beside:
        # It takes seconds, and nothing of Python meanwhile.
        drawing = beside.submit(plotting) if any(one.n for one in view.cells.values()) else None
        content = contents(view, store, runs)
        groups = plot_groups(content.view, store, runs)
        drawn = any(group.charts for group in groups)
        plots = (drawing.result() if drawing else plotting()) if drawn else ""
    css, js = asset("page.css"), asset("page.js")
    scripts = " ".join(digest(script) for script in (plots, js) if script)
    policy = f"default-src 'none'; script-src {scripts}; style-src {digest(css)}; img-src data:; {NO_FORMS}"
    return render(
        "page.html.j2",
        title=f"{view.suite.name}: {view.suite.title}",
        suite=view.suite,
        preset=view.preset,
        table=content.table,
        rows_left_out=content.rows_left_out,
        cells=content.cells,
        lead=content.lead,
        progress=content.progress,
        groups=groups,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("dropbench"),
        policy=Markup(policy),
        css=Markup(css),
        js=Markup(js),
        plotting=Markup(plots),
    )


def contents(view: View, store: Store, runs: Path, *, full: bool = True) -> Content:
    """The table and what lies behind it; `full`: trials are told in full, as far as they are not too many."""
    view, left_out = _shortened(view)
    names = {place: f"c{number}" for number, place in enumerate(view.cells)}
    cells = cells_of(view, names, store, runs, full=full)
    seeds = [seed for one in view.cells.values() for seed in one.seeds]
    shown = sum(len(one.seeds) for one in cells)
    lead = f"{len(seeds):,} trials, by row and column of the table."
    if full and (told := sum(len(one.runs) for one in cells)) < shown:
        lead += f" {told:,} of them are told in full: failed ones, then the first seeds of each cell."
    if shown < len(seeds):
        lead += f" {shown:,} have a line of their own."
    states = [seed.state for seed in seeds]
    counts = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    return Content(view, table_of(view, names), cells, left_out, lead, counts or "no trials")


def plot_groups(view: View, store: Store, runs: Path) -> list[Group]:
    """All plots of a suite, those that have something to show."""
    found = [metric_plots(view), learning_curves(view, store, runs), ratios_by_layer(view, runs)]
    return [*(group for group in found if group is not None), *analysis_groups(view, runs)]


def _shortened(view: View) -> tuple[View, str]:
    """The first rows of a table that is too large for a page, and a sentence that says so."""
    most = max(1, MOST_CELLS // max(1, len(view.columns)))
    if len(view.rows) <= most:
        return view, ""
    rows = view.rows[:most]
    kept = set(rows)
    cells = {place: one for place, one in view.cells.items() if place[0] in kept}
    told = f"The first {most:,} of {len(view.rows):,} rows: dropbench report {view.suite.name} --format csv has all."
    return replace(view, rows=rows, cells=cells), told
