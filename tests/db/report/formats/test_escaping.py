"""Escaping of untrusted text for each format."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.db.report.formats.escaping import csv_text, cut, latex, markdown
from dropbench.harness.cli.plain_text import plain


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;http://evil\x07link\x1b]8;;\x07", "link"),
        ("\x1b]0;title\x1b\\rest", "rest"),
        ("\x1bPdevice\x1b\\x", "x"),
        ("\x9b31mC1", "31mC1"),
        ("a\r\nb\tc\x00d\x08e", "a b cde"),
        ("a\u202eb\u200bc\ufeffd", "abcd"),
        ("bell\x07 and escape\x1b", "bell and escape"),
        ("Größe ↑ 模型 ±", "Größe ↑ 模型 ±"),
        (12.5, "12.5"),
    ],
)
def test_plain(text: object, expected: str) -> None:
    assert plain(text) == expected


@given(st.text())
def test_plain_is_one_line_without_control_characters(text: str) -> None:
    line = plain(text)
    assert len(line.splitlines()) <= 1
    assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs") for character in line)
    assert plain(line) == line


@given(st.text(alphabet='\\{}$&#%_^~<>|[]*`"aÄ '))
def test_every_special_character_is_escaped(text: str) -> None:
    in_latex = latex(text)
    for word in ("textbackslash", "textasciicircum", "textasciitilde", "textless", "textgreater", "textbar"):
        in_latex = in_latex.replace(f"\\{word}{{}}", "")
    for sign in "{}$&#%_":
        in_latex = in_latex.replace(f"\\{sign}", "")
    in_latex = in_latex.replace("{[}", "").replace("{]}", "").replace("{''}", "")
    assert not set(in_latex) & set('\\{}$&#%_^~<>|[]"')
    in_markdown = markdown(text)
    for sign in "\\`*_[]<>|~&$":
        in_markdown = in_markdown.replace(f"\\{sign}", "")
    assert not set(in_markdown) & set("\\`*_[]<>|~&$")


@given(st.text(), st.integers(1, 40))
def test_cut_counts_the_characters_left_out(text: str, limit: int) -> None:
    short = cut(text, limit)
    assert short == plain(text) or short == f"{plain(text)[:limit]}… ({len(plain(text)) - limit:,} more characters)"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_spreadsheet_reads_no_formula(text: str) -> None:
    assert csv_text(text) == f"'{text}"
    assert csv_text("dropkey") == "dropkey"
