"""The commands on data of one's own run as printed, with the files on the same page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from PIL import Image

from dropbench.harness.cli.main import run
from tests.docs.test_commands import commands, one_step
from tests.paths import DOCS

__all__ = ["one_step"]
PAGES = {"data.md": {"reviews/reviews.csv": "csv", "reviews/card.yaml": "yaml"}}
"""Page → file → language of the block with its content."""


@pytest.fixture
def page(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the files of a page to the working folder; rows of csv are repeated with other texts and authors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path / "data"))
    path: Path = DOCS / request.param
    for name, language in PAGES[request.param].items():
        [block] = re.findall(rf"^```{language}\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)[-1:]
        if language == "csv":
            header, *rows = block.splitlines()
            rows = [f"Film {number}: {row}{number}" for number in range(20) for row in rows]
            block = "\n".join([header, *rows])
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(block)
    return path


@pytest.mark.parametrize("page", ["data.md"], indirect=True)
def test_the_card_of_the_page_is_valid(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [check] = [words[1:] for words in commands(page.read_text()) if words[1:3] == ["data", "check"]]
    assert run(check) == 0
    output = capsys.readouterr().out
    assert "csv:reviews: text-classification" in output
    assert "2 classes: bad, good" in output
    assert "60 % train, 20 % dev, 20 % test of your files (whole groups, seed 2019)" in output


@pytest.mark.slow
@pytest.mark.parametrize("page", list(PAGES), indirect=True)
def test_commands_run(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = commands(page.read_text())
    assert len(lines) >= 3
    for words in lines:
        executor = ["--executor", "debug"] if words[1] == "run" else []
        assert run([*words[1:], *executor]) == 0, (shlex.join(words), capsys.readouterr().err)
    assert "succeeded" in capsys.readouterr().out


@pytest.mark.slow
def test_images_in_folders_train_and_evaluate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in range(40):
        folder = tmp_path / "data" / "shades" / ("dark", "light")[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("L", (12, 12), 3 * number + 100 * (number % 2)).save(folder / f"{number}.png")
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path / "data"))
    trial = ["--task", "image-classification", "--data", "image-folder:shades", "--model", "vit-digits"]
    assert run(["run", *trial, "--set", "image_size=8", "--executor", "debug"]) == 0
    assert "image-folder:shades" in capsys.readouterr().out
