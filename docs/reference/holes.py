"""Cells of a suite for which a file of reference results has too few seeds, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from db.report.view.beside import NO_DATA
from db.report.view.build import build_view, resolve_cells
from db.report.view.cells import CellResult
from db.report.view.notes import progress_text
from db.report.view.run_options import options_of
from db.report.view.variants import variants_of
from db.store.store import Store
from harness.settings import Settings
from harness.suites.cell import SuiteOptions
from harness.suites.suite import Suite

SUITES = ("field/vision", "field/text", "field/labelling", "field/translation", "field/language", "quickstart")
"""The suites of the leaderboard; the last one is what a new user runs first."""
MIN_SEEDS = 5
"""Seeds that a published cell has."""


def tables(suites: Iterable[Suite], reference: Store) -> list[tuple[Suite, SuiteOptions]]:
    """Return the tables of a file: a suite and options for each."""
    return [(suite, options_of(suite, variant)) for suite in suites for variant in variants_of(suite, reference)]


def holes(suite: Suite, options: SuiteOptions, reference: Store, own: Store, settings: Settings) -> Iterator[str]:
    """Yield a line on the cells of a table in a file, then one for each cell with fewer than `MIN_SEEDS`.

    Args:
        suite: the suite.
        options: the options of the table.
        reference: the content of the file.
        own: the database of the campaign, which knows why trials are missing.
        settings: paths.
    """
    apart = replace(settings, data=NO_DATA, folders={})
    cells = resolve_cells(suite, options, apart, reference)
    results = list(build_view(suite, cells, reference, apart, peek=True).cells.values())
    reasons = [_reason(result, own) for result in results]
    full = sum(result.n >= MIN_SEEDS for result in results)
    skipped = sum(reason is not None and reason.startswith("skipped") for reason in reasons)
    name = ", ".join([suite.name, f"preset {options.preset}", *options.data])
    yield f"{name}: {full} of {len(results)} cells have n ≥ {MIN_SEEDS}, {skipped} are skipped"
    for result, reason in zip(results, reasons, strict=True):
        if reason is not None:
            yield f"  {result.column} / {result.row}: n = {result.n}: {reason}"


def _reason(result: CellResult, own: Store) -> str | None:
    """Return why a cell has too few seeds; None if it has enough."""
    if result.n >= MIN_SEEDS:
        return None
    if result.selection is not None and result.chosen is None:
        rows = own.states([trial.id for candidate in result.selection.candidates for trial in candidate.trials])
        skipped = {f"skipped: {row.reason}" for row in rows.values() if row.state == "skipped"}
        finished = any(row.state == "succeeded" for row in rows.values())
        return progress_text(result.selection) if finished or not skipped else "; ".join(sorted(skipped))
    missing = [seed.id for seed in result.seeds if seed.value is None]
    rows = own.states(missing)
    texts = {f"{row.state}: {row.reason}" if row.reason else f"{row.state}" for row in rows.values()} | (
        {"not run"} if len(rows) < len(missing) else set()
    )
    if not missing:
        return result.reason or f"only {len(result.seeds)} seeds requested"
    return "; ".join(sorted(texts))
