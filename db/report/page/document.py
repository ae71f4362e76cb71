"""A suite as one self-contained HTML page: its table, charts, and the runs behind every number."""

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
from db.report.page.details import CellDetails, details_of
from db.report.page.metric import metric_charts
from db.report.page.table import Table, table_of
from db.report.page.templates import asset, digest, render, vega_bundle
from db.report.page.training import learning_curves, ratios_by_layer
from db.report.view.view import View
from db.store.store import Store

MAX_CELLS = 1500
"""Cells of the table that a page shows."""

NO_FORMS = "base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Content:
    """Content of a suite's page.

    Attributes:
        view: the table as numbers, cut to the rows that are shown.
        table: the table as text.
        cells: the details of each cell.
        omitted_rows: a sentence on the rows that are not shown, or "".
        lead: a sentence on the trials that are shown.
        counts: the trials by state.
    """

    view: View
    table: Table
    cells: Sequence[CellDetails]
    omitted_rows: str
    lead: str
    counts: str


def page(view: View, store: Store, runs: Path) -> str:
    """Return the page.

    Args:
        view: the table of the suite.
        store: the database.
        runs: the root of the run directories.
    """
    with ThreadPoolExecutor(1) as executor:
        # Bundling takes seconds and does not hold the GIL.
        bundle = executor.submit(vega_bundle) if any(result.n for result in view.cells.values()) else None
        content = page_content(view, store, runs)
        groups = chart_groups(content.view, store, runs)
        scripts = ""
        if any(group.charts for group in groups):
            scripts = bundle.result() if bundle else vega_bundle()
    css, js = asset("page.css"), asset("page.js")
    digests = " ".join(digest(script) for script in (scripts, js) if script)
    policy = f"default-src 'none'; script-src {digests}; style-src {digest(css)}; img-src data:; {NO_FORMS}"
    return render(
        "page.html.j2",
        title=f"{view.suite.name}: {view.suite.title}",
        suite=view.suite,
        preset=view.preset,
        content=content,
        groups=groups,
        written=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=version("dropbench"),
        policy=Markup(policy),
        css=Markup(css),
        js=Markup(js),
        vega=Markup(scripts),
    )


def page_content(view: View, store: Store, runs: Path, *, full: bool = True) -> Content:
    """Return the table and the details of its cells; `full`: with as many trials in full as a page may have."""
    view, omitted_rows = _first_rows(view)
    anchors = {position: f"c{number}" for number, position in enumerate(view.cells)}
    cells = details_of(view, anchors, store, runs, full=full)
    seeds = [seed for result in view.cells.values() for seed in result.seeds]
    listed = sum(len(cell.seeds) for cell in cells)
    lead = f"{len(seeds):,} trials, by row and column of the table."
    if full and (shown := sum(len(cell.runs) for cell in cells)) < listed:
        lead += f" {shown:,} of them are shown in full: failed ones, then the first seeds of each cell."
    if listed < len(seeds):
        lead += f" {listed:,} are listed."
    states = [seed.state for seed in seeds]
    counts = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    return Content(view, table_of(view, anchors), cells, omitted_rows, lead, counts or "no trials")


def chart_groups(view: View, store: Store, runs: Path) -> list[Group]:
    """Return all groups of charts of a suite that have data."""
    groups = [metric_charts(view), learning_curves(view, store, runs), ratios_by_layer(view, runs)]
    return [*(group for group in groups if group is not None), *analysis_groups(view, runs)]


def _first_rows(view: View) -> tuple[View, str]:
    """Return the rows of a table that fit on a page, and a sentence on the others."""
    max_rows = max(1, MAX_CELLS // max(1, len(view.columns)))
    if len(view.rows) <= max_rows:
        return view, ""
    rows = view.rows[:max_rows]
    kept = set(rows)
    cells = {position: result for position, result in view.cells.items() if position[0] in kept}
    sentence = (
        f"The first {max_rows:,} of {len(view.rows):,} rows; dropbench report {view.suite.name} --format csv has all."
    )
    return replace(view, rows=rows, cells=cells), sentence
