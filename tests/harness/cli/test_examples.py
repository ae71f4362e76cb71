"""Examples in the help of every command: they are there, and the real command line takes them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.cli.main import run
from tests.harness.cli.every_command import every_command

COMMANDS = every_command()
NAMES = {
    *("suite", "suites", "task", "model", "data", "folders", "regularizer", "schedule", "preset", "metric", "device"),
    *("executor", "sites"),
}
"""Parameters that hold names, which completion knows all of."""


@pytest.fixture(autouse=True)
def width(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


def examples(words: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Return the examples in a command's help as arguments."""
    assert run([*words.split(), "--help"]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80
    lines = shown.partition("\n  Examples:\n")[2].splitlines()
    assert all(re.fullmatch("    dropbench .*", line) for line in lines), lines
    return [shlex.split(line)[1:] for line in lines]


def test_the_help_itself_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    given = examples("", capsys)
    assert {words[0] for words in given} == {"run", "list", "report"}


@pytest.mark.parametrize("words", COMMANDS)
def test_every_example_is_a_command_line(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = examples(words, capsys)
    assert given
    for arguments in given:
        length = len(words.split())
        assert arguments[:length] == words.split()
        with COMMANDS[words].make_context(words, arguments[length:]) as context:
            assert not context.args
            for parameter in context.command.params:
                if parameter.name in NAMES and context.params[parameter.name]:
                    check_names(context, parameter)


def check_names(context: Any, parameter: Any) -> None:
    """Assert that completion knows the names that an example gives."""
    value = context.params[parameter.name]
    known = {item.value for item in parameter.shell_complete(context, "")}
    given = {re.split("[=:]", text)[0] for text in ([value] if isinstance(value, str) else value)}
    assert given <= known, parameter.name
