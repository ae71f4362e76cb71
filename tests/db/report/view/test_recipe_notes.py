"""Notes on how recipes differ from the published ones."""

from __future__ import annotations

from typing import Any

import pytest

from dropbench.db.report.formats.legend import about
from dropbench.db.report.view.cells import CellTrials
from dropbench.db.report.view.notes import recipe_lines
from dropbench.db.report.view.view import View, build
from dropbench.db.store.store import Store
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import Suite, load_suite, parse_suite
from dropbench.jobs.queue.request import make_request

BASE = {"task": "image-classification", "data": "cifar100", "schedule": "decreasing"}


def view(store: Store, suite: Suite, choice: SuiteOptions) -> View:
    request = make_request(suite, choice, [(cell, []) for cell in suite.cells(choice)]).request
    return build(request, [CellTrials(cell, ()) for cell in request.cells], store)


def small(published: bool = True, **presets: object) -> Suite:
    rows: list[dict[str, Any]] = [
        {"label": model, "trial": {"model": model, "regularizer": "none"}} for model in ("t2t-vit-14", "volo-d1")
    ]
    if published:
        rows = [{**row, "published": [80.0]} for row in rows]
    content = {"title": "t", "source": "s", "metric": "accuracy", "trial": BASE, "columns": [{"label": "c"}]}
    return parse_suite({**content, "rows": rows, "presets": {"mini": {"seeds": 1}, **presets}}, "mine", "mine.yaml")


PAPER = {"seeds": 1, "overrides": {"weight_decay": 0.3}}


def test_mini_is_summarized_in_one_line_over_all_cells(store: Store) -> None:
    head, *notes = recipe_lines(view(store, small(paper={"seeds": 1}), SuiteOptions()))
    assert head.startswith("preset mini: a smaller recipe than the published one: epochs 15 (310), ")
    assert ", lr 0.001 (0.0005/0.0016)," in head
    assert ", mixup 0 (0.8)," in head  # VOLO's is 0 in either
    assert "weight_decay" not in head
    assert all(line.startswith("unlike the source: ") for line in notes)
    assert len(notes) == len(set(notes)) >= 3


def test_the_paper_preset_of_a_suite_is_the_published_recipe(store: Store) -> None:
    suite = small(paper=PAPER)
    assert ", weight_decay 0.05 (0.3)" in recipe_lines(view(store, suite, SuiteOptions()))[0]
    lines = recipe_lines(view(store, suite, SuiteOptions(preset="paper")))
    assert all(line.startswith("unlike the source: ") for line in lines)
    changed = view(store, suite, SuiteOptions(preset="paper", overrides={"epochs": 2}))
    assert recipe_lines(changed) == ["unlike the published recipe: epochs 2 (310)", *lines]
    legend = about(changed)
    assert "unlike the published recipe: epochs 2 (310)" in legend
    assert "recipe overridden: epochs=2" in legend


def test_only_shown_cells_count(store: Store) -> None:
    head, *notes = recipe_lines(view(store, small(paper={"seeds": 1}), SuiteOptions(models=("t2t-vit-14",))))
    assert ", lr 0.001 (0.0005)," in head
    assert not any("VOLO" in line for line in notes)


def test_without_published_values_the_paper_preset_alone_differs_from_its_source(store: Store) -> None:
    suite = small(published=False, paper={"seeds": 1})
    assert recipe_lines(view(store, suite, SuiteOptions())) == ["preset mini: a smaller recipe"]
    paper = SuiteOptions(preset="paper", overrides={"epochs": 2})
    lines = recipe_lines(view(store, suite, paper))
    assert len(lines) >= 3
    assert all(line.startswith("unlike the source: ") for line in lines)
    ours = suite.model_copy(update={"source": "DropBench, no published counterpart"})
    assert recipe_lines(view(store, ours, paper)) == []
    assert recipe_lines(view(store, small(published=False), SuiteOptions())) == []  # `mini` is its only recipe


def test_a_suite_without_a_paper_preset_is_not_called_smaller(store: Store) -> None:
    assert recipe_lines(view(store, small(), SuiteOptions())) == []


def test_a_row_added_by_the_user_is_not_compared(store: Store) -> None:
    table = load_suite("dropkey/table5")
    extended = view(store, table, SuiteOptions(preset="paper", regularizers=("dropkey:ratio=0.9",)))
    assert "dropkey:ratio=0.9" in extended.rows
    assert recipe_lines(extended) == recipe_lines(view(store, table, SuiteOptions(preset="paper")))


@pytest.mark.parametrize("name", ["dropkey/table1", "dropkey/table2", "dropkey/table4", "dropkey/table5"])
def test_the_published_tables_change_no_key_of_their_recipe(store: Store, name: str) -> None:
    lines = recipe_lines(view(store, load_suite(name), SuiteOptions(preset="paper")))
    assert lines
    assert all(line.startswith("unlike the source: ") for line in lines)
