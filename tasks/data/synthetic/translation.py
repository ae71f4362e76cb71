"""Writers of synthetic sentence pairs: each word has one translation, and the word order is reversed."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np

from tasks.data.dataset import Dataset

PAIRS = {0: 400, 1: 40, 2: 40}
"""Number of pairs of train, dev and test."""
WORDS = 60
SOURCE = ("ba", "de", "fi", "go", "ku", "la", "me", "ni", "po", "ru")
TARGET = ("schar", "bend", "ling", "pfor", "tum", "keit", "zwei", "grun", "stal", "wei")


def raw(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write gzipped lines with capitals and a full stop."""
    for part, names in enumerate(_sides(dataset)):
        for name, sentences in zip(names, _sentences(seed, part), strict=True):
            lines = [f"{' '.join(words).capitalize()}.\n" for words in sentences]
            (folder / name).write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def bpe(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write lines of pieces: the two syllables of a word, "@@" after the first, and the full stop as a token."""
    for part, names in enumerate(_sides(dataset)):
        for name, sentences, syllables in zip(names, _sentences(seed, part), (SOURCE, TARGET), strict=True):
            lines = []
            for words in sentences:
                firsts = [next(syllable for syllable in syllables if word.startswith(syllable)) for word in words]
                pieces = [
                    f"{syllable}@@ {word.removeprefix(syllable)}" for syllable, word in zip(firsts, words, strict=True)
                ]
                lines.append(f"{' '.join(pieces)} .\n")
            (folder / name).write_text("".join(lines), encoding="utf-8")


def _sides(dataset: Dataset) -> list[tuple[str, str]]:
    files = dataset.layouts[0].files
    return list(zip(files[::2], files[1::2], strict=True))


def _sentences(seed: int, part: int) -> tuple[list[list[str]], list[list[str]]]:
    """Return source and target as lists of words; `part` distinguishes train, dev and test."""
    random = np.random.RandomState([seed, part])
    base = len(SOURCE)
    source, target = [], []
    for _ in range(PAIRS[part]):
        numbers = random.randint(0, WORDS, size=random.randint(2, 8)).tolist()
        source.append([SOURCE[number // base] + SOURCE[number % base] for number in numbers])
        target.append([TARGET[number // base] + TARGET[number % base] for number in reversed(numbers)])
    return source, target
