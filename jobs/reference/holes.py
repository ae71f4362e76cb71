"""Cells of a suite for which a file of reference results has too few seeds, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlalchemy import select

from db.report.view.beside import NO_DATA
from db.report.view.build import build_view, resolve_cells
from db.report.view.cells import CellResult
from db.report.view.notes import progress_text
from db.schema.connection import reading
from db.schema.tables import Configs, Memberships, Trials
from db.store.store import Store
from harness.errors import InputError
from harness.settings import Settings
from harness.suites.cell import SuiteOptions
from harness.suites.suite import Suite

MIN_SEEDS = 5
"""Seeds that a published cell has."""


def tables(reference: Store) -> list[tuple[str, str]]:
    """Return the suites and presets of a file."""
    query = select(Memberships.c.suite, Configs.c.preset).select_from(Memberships)
    query = query.join(Trials, Trials.c.id == Memberships.c.trial_id).join(Configs, Configs.c.id == Trials.c.config_id)
    with reading(reference.engine) as connection:
        return sorted({(suite, preset) for suite, preset in connection.execute(query.distinct())})


def holes(suite: Suite, preset: str, reference: Store, own: Store, settings: Settings) -> Iterator[str]:
    """Yield a line on the cells of a suite and preset in a file, then one for each cell with fewer than `MIN_SEEDS`.

    Args:
        suite: the suite.
        preset: the preset.
        reference: the content of the file.
        own: the database of the campaign, which knows why trials are missing.
        settings: paths.
    """
    apart = replace(settings, data=NO_DATA, folders={})
    try:
        cells = resolve_cells(suite, SuiteOptions(preset=preset), apart, reference)
    except InputError:
        yield f"{suite.name}, preset {preset}: no trial"
        return
    results = list(build_view(suite, cells, reference, apart, peek=True).cells.values())
    reasons = [_reason(result, own) for result in results]
    full = sum(result.n >= MIN_SEEDS for result in results)
    skipped = sum(reason is not None and reason.startswith("skipped") for reason in reasons)
    yield f"{suite.name}, preset {preset}: {full} of {len(results)} cells have n ≥ {MIN_SEEDS}, {skipped} are skipped"
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
