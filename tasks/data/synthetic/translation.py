"""Writers of synthetic sentence pairs: each word has one translation, and the word order is reversed."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dropbench.tasks.data.dataset import Dataset

PAIRS = (400, 40, 40)
"""Number of pairs of train, dev and test."""
WORDS = 60
SOURCE = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru")
TARGET = ("schar", "bend", "ling", "pfor", "tum", "keit", "zwei", "grun", "stal", "wei")

Sentence = list[tuple[str, str]]
"""The two syllables of each word."""


def raw(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write gzipped lines with capitals and a full stop."""
    for name, sentences in _files(dataset, seed):
        lines = [f"{' '.join(first + second for first, second in words).capitalize()}.\n" for words in sentences]
        (folder / name).write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def bpe(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write lines of pieces: the two syllables of a word, "@@" after the first, and the full stop as a token."""
    for name, sentences in _files(dataset, seed):
        lines = [f"{' '.join(f'{first}@@ {second}' for first, second in words)} .\n" for words in sentences]
        (folder / name).write_text("".join(lines), encoding="utf-8")


def _files(dataset: Dataset, seed: int) -> Iterator[tuple[str, list[Sentence]]]:
    """Yield the name and the sentences of each file of the first layout: source and target of train, dev and test."""
    names = iter(dataset.layouts[0].files)
    base = len(SOURCE)
    for part, pairs in enumerate(PAIRS):
        random = np.random.RandomState([seed, part])
        rows = [random.randint(0, WORDS, size=random.randint(2, 8)).tolist() for _ in range(pairs)]
        for syllables, step in ((SOURCE, 1), (TARGET, -1)):
            words = [(syllables[number // base], syllables[number % base]) for number in range(WORDS)]
            yield next(names), [[words[number] for number in numbers[::step]] for numbers in rows]
