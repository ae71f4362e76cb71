"""The suites of fine-tuning are queued with equal budgets, and run to their end on synthetic data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dropbench.db.report.view.build import build_view
from dropbench.db.report.view.requests import look_up
from dropbench.db.store.store import Store
from dropbench.harness.settings import Settings
from dropbench.harness.suites.budget import Budget, budget_of
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import Suite, load_suite, suite_names
from dropbench.jobs.queue.request import Requested, request_suite
from dropbench.jobs.queue.run_loop import run
from dropbench.jobs.queue.search import Searches
from dropbench.jobs.submission.dispatch import Plan
from tests.adapters.vision.test_image_encoder import transformers_folder
from tests.tasks.test_weights import folder  # noqa: F401 - used by pytest

pytestmark = pytest.mark.usefixtures("few")
STAGED = [name for name in suite_names() if "staged" in {each.tuned for each in load_suite(name).presets.values()}]
GENERATED = ("cola", "trec", "cifar100")
"""Data of these suites, each of which has one, that have a generated set."""
TEXT, IMAGE = {"max_length": 24}, {"image_size": 16}


def requested(suite: Suite, weights: Path, settings: Settings, **overrides: Any) -> Requested:
    """Return the request of a column of `small`, on synthetic data."""
    (data,) = {column.trial["data"] for column in suite.columns} & {*GENERATED}
    options = SuiteOptions(preset="small", data=(f"{data}-synthetic",), weights=str(weights), overrides=overrides)
    return request_suite(suite, options, settings)


@pytest.mark.parametrize("name", STAGED)
def test_the_first_stage_of_every_suite_is_queued(
    name: str,
    store: Store,
    folder: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    suite, settings, weights, overrides = load_suite(name), Settings(runs=tmp_path / "runs"), folder, TEXT
    if suite.trial["task"] == "image-classification":
        weights, overrides = tmp_path / "vit", IMAGE
        transformers_folder(weights, "ViT")
    request = requested(suite, weights, settings, **overrides)
    cells = request.request.cells
    assert {budget_of(cell) for cell in cells} == {Budget(5, 1, 3)}
    own = {cell.selected_by and cell.selected_by.name for cell in cells}
    assert own == {"matthews" if cells[0].request.data.startswith("cola") else None}
    searches = Searches(store, settings, request)
    searches.start()
    others = len(suite.rows) - 1
    assert (len(searches.enqueued.added), searches.enqueued.skipped) == (5 + 3 * others, [])
    assert searches.remaining == 1 + 3 * others


@pytest.mark.slow
def test_a_suite_runs_to_its_end(store: Store, folder: Path, tmp_path: Path) -> None:  # noqa: F811
    suite = load_suite("hiddenkey/glue")
    settings = Settings(runs=tmp_path / "runs", threads=1, keep_weights=True)
    summary = run(store, settings, requested(suite, folder, settings, steps=2, **TEXT), Plan("debug"))
    assert {row.state for row in summary.rows.values()} == {"succeeded"}
    assert len(summary.rows) == len(suite.rows) * (5 + 3)
    table = look_up(store, request=summary.request.id)
    assert table is not None
    view = build_view(table, store, settings.runs)
    assert {(cell.n, len(cell.candidates), cell.chosen is None) for cell in view.cells.values()} == {(3, 5, False)}
    kept = {file.parents[1].name for file in settings.runs.glob("*/checkpoint/weights-*.pt")}
    shown = [{run.id for run in cell.seeds} for cell in view.cells.values()]
    assert [len(kept & trials) for trials in shown] == [1] * len(suite.rows), "the best of each cell"
    assert kept <= set().union(*shown), "and no candidate that is not shown"
