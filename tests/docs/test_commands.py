"""The commands of the tutorial and of the tasks' pages run as they stand there, with recipes of one step."""

from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.cli.main import run
from dropbench.harness.trials.task import TASKS
from dropbench.tasks import preset_task
from tests.paths import DOCS, ROOT

PAGES = [ROOT / "docs/tutorial.md", ROOT / "docs/reading-tables.md", *sorted((ROOT / "docs/tasks").glob("*.md"))]
ELSEWHERE = ("git", "make", "cd", "export", "pip")
"""Programs that need a network, or that continuous integration runs as a whole."""


@pytest.fixture(autouse=True)
def one_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train one step; `mini` would take minutes."""

    def shortened(task: str) -> dict[str, Any]:
        recipes: dict[str, Any] = _without_epochs(copy.deepcopy(read_recipes(task)))
        for preset in recipes["presets"].values():
            preset["steps"] = 1
        return recipes

    read_recipes = preset_task.read_recipes
    monkeypatch.setattr(preset_task, "read_recipes", shortened)


def _without_epochs(content: Any) -> Any:
    if not isinstance(content, dict):
        return content
    return {key: _without_epochs(value) for key, value in content.items() if key not in ("epochs", "steps")}


def commands(text: str) -> list[list[str]]:
    """The command lines of a page's ``bash`` blocks, as words."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def run_commands(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Run the commands of a page in this process, and return what they print."""
    printed, found = "", commands(text)
    assert found
    for words in found:
        if words[0] in ELSEWHERE:
            continue
        assert words[0] == "dropbench", words
        status = run([*words[1:], *(["--executor", "debug"] if words[1] == "run" else [])])
        out, err = capsys.readouterr()
        assert (status, "Traceback" in err) == (0, False), (shlex.join(words), err)
        printed += out
    return printed


def test_each_task_has_a_page() -> None:
    assert {page.stem for page in PAGES[2:]} == {*TASKS}
    index = (ROOT / "docs/tasks.md").read_text(encoding="utf-8")
    assert all(f"(tasks/{name}.md)" in index for name in TASKS)


@pytest.mark.slow
@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path / "data"))
    run_commands(re.sub(r"\b(steps|evaluate_every)=\d+", r"\1=1", page.read_text(encoding="utf-8")), capsys)


def test_every_command_anywhere_is_one_that_there_is() -> None:
    """In other documents, too: names of commands and their options are those of the command line."""
    from typer.main import get_command

    from dropbench.harness.cli.main import app

    top: Any = get_command(app)
    context = top.context_class(top, resilient_parsing=True)
    wrong = []
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for line in re.findall(r"^\s*dropbench +(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE):
            words = re.split(r"\s{2,}|\s+#", line)[0].split()
            command = top
            while words and hasattr(command, "get_command"):
                command = command.get_command(context, words.pop(0))
            known = {name for one in (command.params if command else []) for name in one.opts}
            if command is None or any(
                word.startswith("--") and word.partition("=")[0] not in {*known, "--plugin", "--help"} for word in words
            ):
                wrong.append((page.name, line))
    assert not wrong
