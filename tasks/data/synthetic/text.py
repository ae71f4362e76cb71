"""Writers of synthetic texts in the published formats: some words of a text indicate its class."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tasks.data.dataset import Dataset

ROWS_PER_CLASS = 60
TEST_ROWS_PER_CLASS = 15
WORDS_PER_CLASS = 12
COMMON_WORDS = 40
SYLLABLES = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru", "sa", "te", "vi", "wo", "zu")

Row = tuple[int, str]


def label_text_one_file(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write one file of `label text` lines, sorted by class as the published files are."""
    rows = sorted(_rows(dataset.classes, ROWS_PER_CLASS, seed, 0), key=lambda row: row[0])
    _label_text(folder / dataset.layouts[0].files[0], rows)


def label_text_train_test(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write a train and a test file of `label text` lines."""
    train, test = dataset.layouts[0].files
    _label_text(folder / train, _rows(dataset.classes, ROWS_PER_CLASS, seed, 0))
    _label_text(folder / test, _rows(dataset.classes, TEST_ROWS_PER_CLASS, seed, 1))


def news_csv(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write train.csv and test.csv of three quoted columns, and the class names."""
    train, test, classes = dataset.layouts[0].files
    for part, (name, rows_per_class) in enumerate(((train, ROWS_PER_CLASS), (test, TEST_ROWS_PER_CLASS))):
        with (folder / name).open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
            for label, text in _rows(dataset.classes, rows_per_class, seed, part):
                title, _, description = text.partition(" ")
                writer.writerow([label + 1, title, description])
    (folder / classes).write_text("".join(f"topic {number}\n" for number in range(1, dataset.classes + 1)))


def rated_reviews(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write train, dev and test files in Tang's format."""
    for part, name in enumerate(dataset.layouts[0].files):
        rows_per_class = ROWS_PER_CLASS if part == 0 else TEST_ROWS_PER_CLASS
        lines = []
        for number, (label, text) in enumerate(_rows(dataset.classes, rows_per_class, seed, part)):
            first, _, rest = text.partition(" ")
            lines.append(f"user{number % 7}\t\tproduct{number % 5}\t\t{label + 1}\t\t{first} . <sssss> {rest} .\n")
        (folder / name).write_text("".join(lines), encoding="utf-8")


def _label_text(path: Path, rows: list[Row]) -> None:
    path.write_text("".join(f"{label} {text}\n" for label, text in rows), encoding="latin-1")


def _rows(classes: int, rows_per_class: int, seed: int, part: int) -> list[Row]:
    """Return shuffled rows; `part` distinguishes train, dev and test."""
    words = list(invented_words(WORDS_PER_CLASS * classes + COMMON_WORDS))
    common, class_words = words[:COMMON_WORDS], words[COMMON_WORDS:]
    random = np.random.RandomState([seed, part])
    rows = []
    for label in random.permutation(np.repeat(np.arange(classes), rows_per_class)).tolist():
        of_class = class_words[label * WORDS_PER_CLASS : (label + 1) * WORDS_PER_CLASS]
        length = random.randint(5, 16)
        # Three of ten words indicate the class, one of ten comes from any class.
        draws = random.random_sample(length)
        text = [
            str(random.choice(of_class if draw < 0.3 else class_words if draw < 0.4 else common))
            for draw in draws.tolist()
        ]
        rows.append((label, " ".join(text)))
    return rows


def invented_words(count: int) -> Iterator[str]:
    """Yield distinct words of three syllables, the same for every seed."""
    base = len(SYLLABLES)
    for number in range(count):
        scattered = number * 1009 % base**3
        yield SYLLABLES[scattered // base**2] + SYLLABLES[scattered // base % base] + SYLLABLES[scattered % base]
