"""The printed table at several widths, with and without a terminal."""

from __future__ import annotations

import re

import pytest

from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from tests.db.report import tables
from tests.db.report.tables import Values


def test_long_layout(filled: View) -> None:
    text = tables.printed(filled, 50)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == "mine: A table"
    assert lines[1] == "accuracy ↑ n Δ base published Δ"
    assert lines[3:7] == [
        "TREC",
        "none 83.00 ± 3.61 3 88.40 −5.40",
        "dropkey 0.3 85.00 ± 4.36 * 3 +2.00 90.00 ± 0.50 −5.00",
        "dropkey 0.5 81.50 ± 3.54 2/3 [1] −2.00",
    ]
    assert lines[8:12] == [
        "MR",
        "none 70.00 1/3 [2] 76.00 −6.00",
        "dropkey 0.3 75.00 * 1/3 [3] +5.00",
        "dropkey 0.5 queued 77.00",
    ]
    assert "[1] seed 1: failed: OutOfMemoryError: no memory" in lines
    assert "[2] seeds 1, 2: queued" in lines
    assert "[3] seed 0: running; seed 2: submitted" in lines
    assert "source: these tests" in lines
    assert "Δ base: difference from 'none', paired by seed" in lines
    assert any(line.startswith("preset mini: a smaller recipe than the published") for line in lines)
    assert "*: best in its column" in " ".join(lines)


def test_wide_layout_where_it_fits(filled: View) -> None:
    text = tables.printed(filled, 120)
    assert max(map(len, text.splitlines())) <= 120
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[1] == "TREC ↑ MR ↑"
    assert lines[3:11] == [
        "none 83.00 ± 3.61 (3) 70.00 (1/3 [1])",
        "published (Δ) 88.40 (−5.40) 76.00 (−6.00)",
        "dropkey 0.3 85.00 ± 4.36 (3) * 75.00 (1/3 [2]) *",
        "Δ base +2.00 [−0.48, +4.48] +5.00",
        "published (Δ) 90.00 ± 0.50 (−5.00)",
        "dropkey 0.5 81.50 ± 3.54 (2/3 [3]) queued",
        "Δ base −2.00",
        "published (Δ) 77.00",
    ]


def test_numbers_are_aligned(store: Store) -> None:
    values: Values = {
        ("none", "TREC"): (80.0, 82.0, 87.0),
        ("dropkey 0.3", "TREC"): (81.0,),
        ("dropkey 0.5", "TREC"): (9.5,),
    }
    lines = tables.printed(tables.filled(store, values, tables.suite(["TREC"]))).splitlines()
    numbers = [re.search(r"\d\.\d\d", line) for line in lines[3:6]]
    assert len({match.start() for match in numbers if match}) == 1
    assert all(numbers)


def test_one_column_has_no_sections(store: Store) -> None:
    view = tables.filled(store, of=tables.suite(["TREC"]))
    for width in (80, 120):
        lines = tables.printed(view, width).splitlines()
        assert lines[3].split() == ["none", "83.00", "±", "3.61", "3", "88.40", "−5.40"]


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
def test_numbers_never_break(filled: View, width: int) -> None:
    text = tables.drawn(filled, width)
    texts = ["83.00 ± 3.61", "85.00 ± 4.36", "81.50 ± 3.54", "88.40", "−5.40", "+5.00", "90.00 ± 0.50", "[3]"]
    assert [number for number in texts if number not in text] == []
    assert "…" not in text


def test_bold_on_a_terminal_star_elsewhere(filled: View) -> None:
    text = tables.drawn(filled)
    assert re.search(r"\x1b\[1m *85\.00 ± 4\.36", text)
    assert not re.search(r"\x1b\[1m *83\.00", text)
    assert "*" not in text
    assert "bold: best in its column" in text
    assert "*: best in its column" in tables.printed(filled, 120)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_words_of_labels_never_break(store: Store, width: int) -> None:
    label = "dropkey-of-ours-v2 0.3, as written in a long label"
    values: Values = {(label, "TREC"): (80.0, 82.0, 87.0), ("none", "TREC"): (79.0, 80.0, 81.0)}
    text = tables.drawn(tables.filled(store, values, tables.suite(label=label)), width)
    assert [word for word in label.split() if word not in text] == []
