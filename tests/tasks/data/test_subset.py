"""Notes on a subset of a published set."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import SUBSET, Task
from dropbench.tasks.data import locate, read_any
from dropbench.tasks.data.check import subset_notes
from tests.tasks.making import task_of, trial_of


def trec(folder: Path, train: int, test: int) -> Path:
    """Write a set in TREC's format with these numbers of questions."""
    (folder / "trec").mkdir(parents=True)
    for name, count in (("train", train), ("test", test)):
        lines = "".join(f"{number % 6} what is number {number} ?\n" for number in range(count))
        (folder / "trec" / f"TREC.{name}.all").write_text(lines, encoding="latin-1")
    return folder


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        (5452, 500, []),
        (5451, 500, ["possibly cut short: train: 5,451 rows"]),
        (5300, 490, ["possibly cut short: train: 5,300 rows", "possibly cut short: test: 490 rows"]),
        (5100, 500, [f"{SUBSET}train: 5,100 rows"]),
        (60, 12, [f"{SUBSET}train: 60 rows", f"{SUBSET}test: 12 rows", f"{SUBSET}all: 72 rows"]),
    ],
)
def test_fewer_rows_than_published_are_noted(tmp_path: Path, train: int, test: int, expected: list[str]) -> None:
    source = locate("trec", trec(tmp_path, train, test))
    notes = subset_notes(source, read_any(source))
    assert len(notes) == len(expected)
    assert all(note.startswith(f"{text}, ") for note, text in zip(notes, expected, strict=True))


def test_synthetic_sets_are_no_subset(tmp_path: Path) -> None:
    source = locate("trec-synthetic", tmp_path)
    assert subset_notes(source, read_any(source)) == []


def test_a_task_notes_it(tmp_path: Path) -> None:
    settings = Settings(data=trec(tmp_path, 60, 12))
    task = task_of(Task, trial_of("text-classification", "trec", "text-transformer", settings=settings), settings)
    notes = [note.partition(",")[0] for note in task.notes if note.startswith(SUBSET)]
    assert notes == ["subset: train: 60 rows", "subset: test: 12 rows", "subset: all: 72 rows"]
