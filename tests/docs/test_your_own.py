"""The commands on data of one's own run as printed, with the files on the same page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from dropbench.harness.cli.main import run
from tests.docs.test_commands import commands, one_step, run_commands
from tests.paths import DOCS

__all__ = ["one_step"]
TEXT = (DOCS / "data.md").read_text(encoding="utf-8")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write the files of the page to the working folder; rows are repeated with other texts and authors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DROPBENCH_DATA", str(tmp_path / "data"))
    rows, card = (re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.M | re.S)[-1] for language in ("csv", "yaml"))
    header, *lines = rows.splitlines()
    lines = [f"Film {number}: {line}{number}" for number in range(20) for line in lines]
    (tmp_path / "reviews").mkdir()
    (tmp_path / "reviews/reviews.csv").write_text("\n".join([header, *lines]))
    (tmp_path / "reviews/card.yaml").write_text(card)


@pytest.mark.usefixtures("files")
def test_the_card_of_the_page_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    [check] = [words[1:] for words in commands(TEXT) if words[1:3] == ["data", "check"]]
    assert run(check) == 0
    output = capsys.readouterr().out
    assert "csv:reviews: text-classification" in output
    assert "2 classes: bad, good" in output
    assert "60 % train, 20 % dev, 20 % test of your files (whole groups, seed 2019)" in output


@pytest.mark.slow
@pytest.mark.usefixtures("files")
def test_commands_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert "succeeded" in run_commands(TEXT, capsys)


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
