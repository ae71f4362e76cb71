"""Cells of a suite for which a file of reference results has too few seeds, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from dropbench.db.report.view.build import build_view
from dropbench.db.report.view.cells import CellResult
from dropbench.db.report.view.notes import progress_text
from dropbench.db.report.view.requests import SuiteTable, resolve, tables_of
from dropbench.db.store.store import Store

SUITES = ("field/vision", "field/text", "field/labelling", "field/translation", "field/language", "quickstart")
"""The suites of the leaderboard; the last one is what a new user runs first."""
NO_RUNS = Path("/dev/null/no-runs")
"""A folder that cannot exist: reference trials have no run directories."""
MIN_SEEDS = 5
"""Seeds that a published cell has."""


def tables(suites: Iterable[str], reference: Store) -> list[SuiteTable]:
    """Return the tables of some suites in a file."""
    found = [table for suite in suites for table in tables_of(reference, suite)]
    return [SuiteTable(table.requests, resolve(table, reference)) for table in found]


def holes(table: SuiteTable, reference: Store, own: Store) -> Iterator[str]:
    """Yield a line on the cells of a table in a file, then one for each cell with fewer than `MIN_SEEDS`.

    Args:
        table: the table.
        reference: the content of the file.
        own: the database of the campaign, which knows why trials are missing.
    """
    results = list(build_view(table, reference, NO_RUNS, peek=True).cells.values())
    reasons = [_reason(result, own) for result in results]
    full = sum(result.n >= MIN_SEEDS for result in results)
    skipped = sum(reason is not None and reason.startswith("skipped") for reason in reasons)
    name = f"{table.request.suite.name}, preset {table.request.preset}"
    yield f"{name}: {full} of {len(results)} cells have n ≥ {MIN_SEEDS}, {skipped} are skipped"
    for result, reason in zip(results, reasons, strict=True):
        if reason is not None:
            yield f"  {result.column} / {result.row}: n = {result.n}: {reason}"


def _reason(result: CellResult, own: Store) -> str | None:
    """Return why a cell has too few seeds; None if it has enough."""
    if result.n >= MIN_SEEDS:
        return None
    if result.selection is not None and result.chosen is None:
        rows = own.states([id for candidate in result.selection.candidates for id in candidate.ids])
        skipped = {f"skipped: {row.reason}" for row in rows.values() if row.state == "skipped"}
        finished = any(row.state == "succeeded" for row in rows.values())
        return progress_text(result.selection) if finished or not skipped else "; ".join(sorted(skipped))
    missing = [seed.id for seed in result.seeds if seed.value is None]
    rows = own.states(missing)
    skipped = {f"skipped: {seed.reason}" for seed in result.seeds if seed.state == "skipped"}
    if skipped:
        return "; ".join(sorted(skipped))
    texts = {f"{row.state}: {row.reason}" if row.reason else f"{row.state}" for row in rows.values()} | (
        {"not run"} if len(rows) < len(missing) else set()
    )
    if not missing:
        return f"only {len(result.seeds)} seeds requested"
    return "; ".join(sorted(texts))
