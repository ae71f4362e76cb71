"""Mistakes in a user's task, model or data set end in one line, which names the method or field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dropbench.harness.cli.main import run
from tests.docs.test_plug_ins import TEXT, write_data
from tests.harness.trials.test_plugins import restored  # noqa: F401 - used by pytest

[SUMS] = re.findall(r"^```python\n# sums.py\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
[FLOWERS] = re.findall(r"^```python\n# flowers.py\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
RUN = ["run", "--task", "digit-sum", "--data", "sums", "--model", "columns", "--set", "epochs=1"]
RUN += ["--plugin", "sums.py", "--plugin", "flowers.py", "--executor", "debug"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restored: None) -> Path:  # noqa: F811
    write_data(tmp_path / "data")
    (tmp_path / "flowers.py").write_text(FLOWERS)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(folder: Path, replaced: str, by: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run the task of the page with one change; return the exit code and what was printed on standard error."""
    assert SUMS.count(replaced) == 1
    (folder / "sums.py").write_text(SUMS.replace(replaced, by))
    code = run(RUN)
    return code, capsys.readouterr().err


METRICS = '(Metric("mae", higher_is_better=False, unit=""),)'


@pytest.mark.parametrize(
    ("replaced", "by", "message"),
    [
        (METRICS, '("mae",)', "task 'digit-sum': expected a Task with `metrics = (Metric(…), …)`, got "),
        (METRICS, 'Metric("mae")', "task 'digit-sum': expected a Task with `metrics = (Metric(…), …)`, got "),
        ('kind="digit-sum", ', "", "sums.py:7: data 'sums': kind: field required\n"),
        ('kind="digit-sum"', 'sort="digit-sum"', "unknown key in data 'sums' 'sort'"),
        ('files=("rows.txt",)', "", "sums.py:7: Layout: files: Tuple should have"),
    ],
)
def test_nothing_is_queued(
    replaced: str, by: str, message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, error = printed(folder, replaced, by, capsys)
    assert code == 2
    assert message in error
    assert error.count("\n") == 1
    assert not (folder / "runs").exists()


@pytest.mark.parametrize("command", [["data", "check", "sums", "--plugin", "sums.py"], RUN])
def test_an_empty_set_is_refused(command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sums.py").write_text(SUMS)
    (folder / "data/sums/rows.txt").write_text("")
    assert run(command) == 2
    file = "" if command[0] == "data" else f" ({folder / 'sums.py'})"
    expected = f"dropbench: data 'sums'{file}: no rows for train: too few for train, dev and test\n"
    assert capsys.readouterr().err == expected
    assert not (folder / "runs").exists()


def test_a_single_class_does_not_pass_the_check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [reviews] = re.findall(r"^```python\n# reviews.py\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)
    (folder / "reviews.py").write_text(reviews)
    file = folder / "data/reviews/train.tsv"
    file.write_text(file.read_text().replace("bad\t", "good\t"))
    assert run(["data", "check", "reviews", "--plugin", "reviews.py"]) == 2
    assert "data 'reviews': all rows of train are 'good': expected two classes or more" in capsys.readouterr().err


def test_own_data_are_read_before_a_trial_is_queued(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "data/csv").mkdir()
    (folder / "data/csv/all.csv").write_text("text,label\na b,x\nc d,x\n")
    assert run(["run", "--task", "text-classification", "--data", "csv", "--model", "text-transformer"]) == 2
    assert "all.csv: 1 class: expected two or more\n" in capsys.readouterr().err
    assert not (folder / "runs").exists()
