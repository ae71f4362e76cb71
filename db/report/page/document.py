"""A suite as one self-contained HTML page: its table, charts, and the runs behind every number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from dropbench.db.report.formats.documents import as_csv, as_latex
from dropbench.db.report.formats.escaping import MAX_TEXT
from dropbench.db.report.page.analyses import analysis_groups
from dropbench.db.report.page.charts import Group
from dropbench.db.report.page.compare import comparison
from dropbench.db.report.page.details import CellDetails, details_of
from dropbench.db.report.page.limits import Limits
from dropbench.db.report.page.metric import budget_chart, differences_chart, metric_charts, ranks_chart
from dropbench.db.report.page.table import Table, table_of
from dropbench.db.report.page.templates import asset, digest, render, vega_bundle
from dropbench.db.report.page.training import learning_curves, load_training, ratios_by_layer
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store


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
        files: the table as files to download, by format.
    """

    view: View
    table: Table
    cells: Sequence[CellDetails]
    omitted_rows: str
    lead: str
    counts: str
    files: Mapping[str, str]


def page(view: View, store: Store, runs: Path) -> str:
    """Return the page of a suite's table; `runs` is the root of the run directories."""
    with ThreadPoolExecutor(1) as executor:
        # Bundling takes seconds and does not hold the GIL.
        bundle = executor.submit(vega_bundle) if any(result.n for result in view.cells.values()) else None
        content = page_content(view, store, runs)
        groups = chart_groups(content.view, store, runs)
        scripts = ""
        if any(group.charts for group in groups):
            scripts = bundle.result() if bundle else vega_bundle()
    css, js = asset("page.css"), asset("page.js")
    sources = f"script-src {' '.join(digest(script) for script in (scripts, js) if script)}; style-src {digest(css)}"
    written, program = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), version("dropbench")
    assets = {"sources": sources, "css": css, "js": js, "vega": scripts}
    return render("page.html.j2", content=content, groups=groups, written=written, version=program, **assets)


def page_content(view: View, store: Store, runs: Path, *, full: bool = True) -> Content:
    """Return the table and the details of its cells; `full`: with as many trials in full as a page may have."""
    max_rows, omitted_rows = max(1, Limits.table_cells // max(1, len(view.columns))), ""
    if len(view.rows) > max_rows:
        command = f"dropbench report {view.suite.name} --format csv"
        omitted_rows = f"The first {max_rows:,} of {len(view.rows):,} rows; {command} has all."
        omitted = set(view.rows[max_rows:])
        cells = {position: result for position, result in view.cells.items() if position[0] not in omitted}
        view = replace(view, rows=view.rows[:max_rows], cells=cells)
    anchors = {position: f"c{number}" for number, position in enumerate(view.cells)}
    details = details_of(view, anchors, store, runs, full=full)
    seeds = [seed for result in view.cells.values() for seed in result.seeds]
    listed = sum(len(cell.seeds) for cell in details)
    lead = f"{len(seeds):,} trial{'s' * (len(seeds) != 1)}, by row and column of the table."
    if full and (shown := sum(len(cell.runs) for cell in details)) < listed:
        lead += f" {shown:,} of them are shown in full: failed ones, then the first seeds of each cell."
    if listed < len(seeds):
        lead += f" {listed:,} are listed."
    states = [seed.state for seed in seeds]
    counts = ", ".join(f"{states.count(state):,} {state}" for state in dict.fromkeys(states))
    files = {"csv": as_csv(view, MAX_TEXT), "tex": as_latex(view)}
    files = {name: content for name, content in files.items() if len(content) <= Limits.file_length}
    table = table_of(view, anchors)
    return Content(view, table, details, omitted_rows, lead, counts or "no trials", files)


def chart_groups(view: View, store: Store, runs: Path) -> list[Group]:
    """Return all groups of charts of a suite that have data."""
    training = load_training(view, store, runs)
    groups = [metric_charts(view), differences_chart(view), ranks_chart(view), budget_chart(view)]
    groups.append(learning_curves(view, training))
    groups += [comparison(view, training, store), ratios_by_layer(view, runs)]
    return [*(group for group in groups if group is not None), *analysis_groups(view, runs)]
