"""Rows from cards, and the field suites, which have a row for every regularizer."""

from __future__ import annotations

from typing import Any

import pytest

from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.cards import find_card
from dropbench.harness.regularizers.spec import complete_spec, parse_spec
from dropbench.harness.suites.card_rows import with_card_rows
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.schema import Row
from dropbench.harness.suites.suite import load_suite, suite_names

NAMES = [name for name in REGULARIZERS if name != "no-attention-dropout"]  # in these models, it is `none`
FIELD = [name for name in suite_names() if name.startswith("field/")]


def cells(suite: str, preset: str = "mini") -> list[Cell]:
    return list(load_suite(suite).cells(SuiteOptions(preset=preset, seeds=(0,))))


def row(name: str, **trial: Any) -> Row:
    return Row(label="mine", trial={"regularizer": name, **trial})


def test_there_is_a_suite_for_each_domain() -> None:
    assert [f"field/{domain}" for domain in ("labelling", "language", "text", "translation", "vision")] == FIELD


@pytest.mark.parametrize("suite", FIELD)
def test_every_regularizer_is_in_every_field_suite(suite: str) -> None:
    names = [row.trial["regularizer"] for row in load_suite(suite).rows]
    assert [name for name in NAMES if names.count(name) != 1] == []
    assert "no-attention-dropout" not in names


def test_the_parameters_are_those_of_the_card() -> None:
    by_name = {cell.request.regularizer: cell.request for cell in cells("field/text")}
    for name in NAMES:
        card = find_card(name)
        assert card is not None
        spec = parse_spec(card.spec(name))
        assert complete_spec(name, by_name[name].params) == complete_spec(name, spec.params)
        assert by_name[name].schedule == (spec.schedule or "constant")


def test_a_row_keeps_what_it_sets_itself() -> None:
    first, second, *others = with_card_rows(
        [row("dropkey", params={"window": 2}), row("dropkey-block", schedule="increasing")]
    )
    assert first.trial == {"regularizer": "dropkey", "schedule": "decreasing", "params": {"ratio": 0.3, "window": 2}}
    assert second.trial["schedule"] == "increasing"
    assert {first.label, second.label} == {"mine"}
    assert {"dropkey", "dropkey-block"}.isdisjoint(row.trial["regularizer"] for row in others)
    assert "dropkey-cross" in {row.label for row in others}


def test_a_row_of_a_composition_is_left_alone() -> None:
    composed = row("dropkey+r-drop", params={"r-drop.alpha": 1.0})
    assert with_card_rows([composed])[0] == composed


def test_rows_of_language_modelling_have_dropout_and_their_own_alpha() -> None:
    by_name = {cell.request.regularizer: cell.request for cell in cells("field/language")}
    assert by_name["r-drop"].params == {"alpha": 1.0}
    assert {request.overrides["model.dropout"] for request in by_name.values()} == {0.1}
