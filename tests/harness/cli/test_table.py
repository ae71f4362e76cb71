"""Tables in a pipe, on a terminal and as JSON."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from dropbench.harness.cli.table import draw_table, print_items, print_table
from dropbench.harness.cli.text_table import TextTable, fit, to_text
from tests.harness.cli.every_command import every_command
from tests.paths import ROOT

COMMANDS = every_command()
HEADER = ["name", "n", "note"]
IMPORTS = "from dropbench.harness.cli.table import print_table; from dropbench.harness.cli.text_table import TextTable"
ROWS = [["dropkey", "12", "a"], ["模型", "3", ""]]


def shown_on_a_terminal(header: list[str], rows: list[list[str]], width: int = 80) -> str:
    """Return what a process prints on a terminal."""
    parent, child = pty.openpty()
    code = f"{IMPORTS}; print_table(TextTable.of_rows({header}, {rows}))"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": str(width)}
    subprocess.run([sys.executable, "-c", code], stdout=child, env=environment, check=True)
    os.close(child)
    shown = os.read(parent, 100_000).decode()
    os.close(parent)
    return shown


def test_a_pipe_gets_one_aligned_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    note = "a long note " * 20 + "."
    print_table(TextTable.of_rows(HEADER, [*ROWS, ["x", "1", note]], above=["above"], below=["below"]))
    above, header, rule, *rows, empty, below = capsys.readouterr().out.splitlines()
    assert [above, header, *rows, empty, below] == [
        *("above", "name      n  note", "dropkey  12  a", "模型      3", f"x         1  {note}", "", "below")
    ]
    assert set(rule) == {"─"}
    assert len(rule) == len(rows[-1])


def test_lines_around_a_table_wrap_in_a_pipe() -> None:
    lines = to_text(TextTable.of_rows(HEADER, ROWS, below=["word " * 30]), 40).splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[-1].split() == ["word"] * 6


def test_without_rows_the_header_remains() -> None:
    assert to_text(TextTable.of_rows(HEADER, [])).splitlines()[0] == "name  n  note"


def test_a_pipe_does_not_load_what_draws_tables() -> None:
    code = f"{IMPORTS}; print_table(TextTable.of_rows({HEADER}, {ROWS}))"
    code += "; import sys; print({'rich.table', 'rich.console'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_a_terminal_shows_the_same_words() -> None:
    shown = shown_on_a_terminal(HEADER, ROWS)
    assert "\x1b[1mname" in shown
    assert [word for row in ROWS for word in row if word not in shown] == []
    assert "─" * 17 in shown


def test_control_characters_and_markup_are_literal_text() -> None:
    shown = shown_on_a_terminal(["name"], [["\x1b[31mred\x1b[0m [bold]x[/bold]"]])
    assert "red [bold]x[/bold]" in shown
    assert "\x1b[31m" not in shown


@pytest.mark.parametrize("width", [200, 80, 60, 40, 20])
def test_a_table_fits_any_terminal_and_numbers_stay_whole(width: int) -> None:
    header = ["regularizer", "model", "n", "mean"]
    rows = [
        ["dropattention-e:ratio=0.3,window=2", "t2t-vit-digits", "12", "10.31 ± 0.39"],
        ["none", "learned-dropout-lm-baseline", "2", "1e-05"],
    ]
    file = io.StringIO()
    draw_table(TextTable.of_rows(header, rows), Console(file=file, width=width, highlight=False))
    text = file.getvalue()
    assert max(map(len, text.splitlines())) <= max(width, len("dropattention-e:ratio=0.3,window=2;") + 2)
    words = [word for row in [header, *rows] for cell in row for word in re.split("[-:,]", cell)]
    assert [word for word in words if word not in text and word not in ("1e", "05")] == []
    assert "10.31 ± 0.39" in text
    assert "1e-05" in text
    assert text.startswith("regularizer:") == (width <= 40)


def test_columns_of_texts_are_narrowed_first_and_keep_their_words() -> None:
    columns = [["name", "image-classification"], ["help", "several words " * 10], ["n", "123,456,789"]]
    gap, widths = fit(columns, [2], 60) or (0, [])
    assert (gap, widths) == (2, [20, 25, 11])
    assert fit(columns, [2], 41) == (1, [20, 8, 11])
    assert fit(columns, [2], 39) is None


def test_items_are_json_or_a_table_with_numbers_aligned_right(capsys: pytest.CaptureFixture[str]) -> None:
    items = [
        {"name": "a", "size": 1234567, "ratio": 0.5, "parts": ["x", "y"]},
        {"name": "b", "size": 8, "ratio": 0.25},
    ]
    print_items(items, as_json=True)
    assert json.loads(capsys.readouterr().out) == items
    print_items(items, as_json=False)
    assert capsys.readouterr().out.splitlines() == [
        "name       size  ratio  parts",
        "─────────────────────────────",
        "a     1,234,567  0.500  x, y",
        "b             8  0.250",
    ]


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_prints_json(words: str) -> None:
    """Every command prints something, if only what it did."""
    options = {name for parameter in COMMANDS[words].params for name in parameter.opts}
    assert "--json" in options


def test_json_is_utf_8_whatever_the_encoding_of_the_terminal(tmp_path: Path) -> None:
    for encoding in ("ascii", "latin-1"):
        program = [sys.executable, "-m", "dropbench.harness.cli.main", "list", "models", "--json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
        done = subprocess.run(program, capture_output=True, env=environment, cwd=tmp_path, check=True)
        helps = [item["help"] for item in json.loads(done.stdout.decode("utf-8"))]
        assert any("×" in text for text in helps)
