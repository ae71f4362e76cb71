"""Tables in a pipe, on a terminal and as JSON."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.cli.table import fitted_lines, print_items, print_table, table_lines
from tests.harness.cli.every_command import every_command
from tests.paths import ROOT

COMMANDS = every_command()
HEADER = ["name", "n", "note"]
ROWS = [["dropkey", "12", "a"], ["模型", "3", ""]]
PRINT = f"from harness.cli.table import print_table; print_table({HEADER}, {ROWS}, [1], rule=True)"


def test_a_pipe_gets_one_aligned_line_per_row(capsys: pytest.CaptureFixture[str]) -> None:
    note = "a long note " * 20 + "."
    print_table(HEADER, [*ROWS, ["x", "1", note]], [1], above=["above"], below=["below"])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["above", "name      n  note", "dropkey  12  a", "模型      3", f"x         1  {note}", "below"]


def test_a_rule_spans_the_table() -> None:
    lines = table_lines(HEADER, ROWS, [1], rule=True)
    assert lines == ["name       n   note", "─" * 19, "dropkey   12   a", "模型       3"]


def test_without_rows_the_header_remains() -> None:
    assert table_lines(HEADER, []) == ["name  n  note"]


def test_a_pipe_does_not_load_rich() -> None:
    code = f"{PRINT}; import sys; print([name for name in sys.modules if name.startswith('rich')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_terminal_shows_the_same_words() -> None:
    parent, child = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    subprocess.run([sys.executable, "-c", PRINT], stdout=child, env=environment, check=True)
    os.close(child)
    shown = os.read(parent, 10_000).decode()
    os.close(parent)
    assert "\x1b[1mname" in shown
    assert [word for row in ROWS for word in row if word not in shown] == []
    assert "─" * 19 in shown


def test_a_terminal_does_not_break_names() -> None:
    """At 80 columns, only texts of several words wrap."""
    names = ["image-classification", "learned-dropout-lm-baseline", "dropattention/table3"]
    rows = [[name, name, "a text of several words " * 4] for name in names]
    parent, child = pty.openpty()
    code = f"from harness.cli.table import print_table; print_table({HEADER}, {rows})"
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    subprocess.run([sys.executable, "-c", code], stdout=child, env=environment, check=True)
    os.close(child)
    shown = os.read(parent, 10_000).decode()
    os.close(parent)
    assert [shown.count(name) for name in names] == [2, 2, 2]


@pytest.mark.parametrize("rule", [True, False])
@pytest.mark.parametrize("width", [200, 80, 60, 40, 20])
def test_a_table_fits_any_terminal_that_holds_its_words(width: int, rule: bool) -> None:
    header = ["regularizer", "model", "n", "mean"]
    rows = [
        ["dropattention-e:ratio=0.3,window=2", "t2t-vit-digits", "12", "10.31 ± 0.39"],
        ["none", "learned-dropout-lm-baseline", "2", "1e-05"],
    ]
    lines = fitted_lines(header, rows, width, [2, 3], rule=rule)
    assert max(map(len, lines)) <= width
    words = [word for row in [header, *rows] for text in row for word in re.split("[-:, ]", text)]
    assert [word for word in words if word not in "\n".join(lines) and word != "1e"] == []
    assert "1e-05" in "\n".join(lines)
    if width == 200:
        assert lines == table_lines(header, rows, [2, 3], rule=rule)
    if width == 20:
        assert lines[0] == "regularizer:"


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
        program = [sys.executable, "-m", "harness.cli.main", "list", "models", "--json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
        done = subprocess.run(program, capture_output=True, env=environment, cwd=tmp_path, check=True)
        helps = [item["help"] for item in json.loads(done.stdout.decode("utf-8"))]
        assert any("×" in text for text in helps)
