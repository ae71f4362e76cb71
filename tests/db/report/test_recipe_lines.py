"""What a table tells of its recipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from db.report.deviations import recipe_lines
from db.report.layout import about
from db.report.view import Asked, View, build
from db.store import Store
from harness.suite import Choice, Suite, load_suite, parse_suite
from harness.task import Metric

BASE = {"task": "image-classification", "data": "cifar100", "schedule": "decreasing"}


def view(store: Store, suite: Suite, choice: Choice) -> View:
    asked: Sequence[Asked] = [Asked(cell, (), "not asked for") for cell in suite.cells(choice)]
    return build(suite, asked, store, lambda cell: Metric("accuracy"))


def small(published: bool = True, **presets: object) -> Suite:
    rows: list[dict[str, Any]] = [
        {"label": model, "trial": {"model": model, "regularizer": "none"}} for model in ("t2t-vit-14", "volo-d1")
    ]
    if published:
        rows = [{**row, "published": [80.0]} for row in rows]
    content = {"title": "t", "source": "s", "metric": "accuracy", "trial": BASE, "columns": [{"label": "c"}]}
    return parse_suite({**content, "rows": rows, "presets": {"mini": {"seeds": 1}, **presets}}, "mine", "mine.yaml")


PAPER = {"seeds": 1, "overrides": {"weight_decay": 0.3}}


def test_mini_is_summed_up_in_one_line_over_all_cells(store: Store) -> None:
    head, *words = recipe_lines(view(store, small(paper={"seeds": 1}), Choice()))
    assert head.startswith("preset mini: a smaller recipe than the published one: epochs 15 (310), ")
    assert ", lr 0.001 (0.0005/0.0016)," in head
    assert ", mixup 0 (0.8)," in head  # VOLO's is 0 in either
    assert "weight_decay" not in head
    assert all(line.startswith("unlike the source: ") for line in words)
    assert len(words) == len(set(words)) >= 3


def test_what_a_suite_says_of_its_paper_preset_is_published(store: Store) -> None:
    suite = small(paper=PAPER)
    assert ", weight_decay 0.05 (0.3)" in recipe_lines(view(store, suite, Choice()))[0]
    lines = recipe_lines(view(store, suite, Choice(preset="paper")))
    assert all(line.startswith("unlike the source: ") for line in lines)
    changed = view(store, suite, Choice(preset="paper", overrides={"epochs": 2}))
    assert recipe_lines(changed) == ["unlike the published recipe: epochs 2 (310)", *lines]
    told = about(changed)
    assert "unlike the published recipe: epochs 2 (310)" in told
    assert "recipe overridden: epochs=2" in told


def test_the_cells_that_are_shown_count(store: Store) -> None:
    head, *words = recipe_lines(view(store, small(paper={"seeds": 1}), Choice(models=("t2t-vit-14",))))
    assert ", lr 0.001 (0.0005)," in head
    assert not any("VOLO" in line for line in words)


@pytest.mark.parametrize("suite", [small(published=False, paper={"seeds": 1}), small(published=False)])
def test_without_a_source_there_is_nothing_to_differ_from(store: Store, suite: Suite) -> None:
    assert recipe_lines(view(store, suite, Choice())) == ["preset mini: a smaller recipe"]


def test_a_suite_without_a_paper_preset_says_no_keys(store: Store) -> None:
    assert recipe_lines(view(store, small(), Choice())) == ["preset mini: a smaller recipe than the published one"]


def test_a_row_of_the_users_is_not_the_sources(store: Store) -> None:
    table = load_suite("dropkey/table5")
    seen = view(store, table, Choice(preset="paper", regularizers=("dropkey:ratio=0.9",)))
    assert "dropkey:ratio=0.9" in seen.rows
    assert recipe_lines(seen) == recipe_lines(view(store, table, Choice(preset="paper")))


@pytest.mark.parametrize("name", ["dropkey/table1", "dropkey/table2", "dropkey/table4", "dropkey/table5"])
def test_the_published_tables_change_no_key_of_their_recipe(store: Store, name: str) -> None:
    lines = recipe_lines(view(store, load_suite(name), Choice(preset="paper")))
    assert lines
    assert all(line.startswith("unlike the source: ") for line in lines)
