"""Rows as texts: the label of a regularizer."""

from __future__ import annotations

from typing import Any

import pytest

from dropbench.db.report.formats.listing import format_value, results_table
from dropbench.harness.regularizers.spec import complete_spec


@pytest.mark.parametrize(
    ("name", "params", "label"),
    [
        ("dropkey", {"ratio": 0.1}, "dropkey:ratio=0.1"),
        ("drophead+layerdrop", {"drophead.ratio": 0.1}, "layerdrop:ratio=0.2 + drophead:ratio=0.1"),
        ("dropkey+r-drop", {"dropkey.window": 2}, "dropkey:ratio=0.1,window=2 + r-drop:alpha=5.0"),
    ],
)
def test_a_label_has_strengths_and_what_differs_from_the_defaults(name: str, params: Any, label: str) -> None:
    spec = complete_spec(name, params)
    row = {"regularizer": spec.name, "params": spec.params, "metric": "accuracy"}
    table = results_table([row])
    assert (table.header, table.texts) == (["regularizer", "metric"], [[label, "accuracy"]])


def test_a_composition_with_a_plug_in_that_is_not_loaded_is_labeled() -> None:
    row = {"regularizer": "gone+dropkey", "params": {"gone.size": 2, "dropkey.ratio": 0.1}, "metric": "accuracy"}
    assert results_table([row]).texts == [["gone:size=2 + dropkey:ratio=0.1", "accuracy"]]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5000"),
        (-12.345, "−12.35"),
        (999_999_999.0, "999999999.00"),
        (1.25e283, "1.25e+283"),
        (6e-5, "6.00e−05"),
        (0.0, "0.0000"),
    ],
)
def test_large_and_small_numbers_are_powers_of_ten(value: float, text: str) -> None:
    assert format_value(value) == text
