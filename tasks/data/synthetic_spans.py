"""Generated sentences with tagged spans, in columns: the words of a span say its type, most of the time."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks.data.dataset import Dataset
from tasks.data.synthetic_text import invented_words

SENTENCES = {0: 240, 1: 40, 2: 40}
"""Number of sentences of train, dev and test."""
WORDS_A_TYPE = 10
COMMON_WORDS = 40
DOCUMENT_SENTENCES = 20
ENTITIES = ("LOC", "MISC", "ORG", "PER")
NEW_ENTITIES = ("corporation", "creative-work", "group", "location", "person", "product")
CHUNKS = ("ADJP", "ADVP", "NP", "PP", "VP")

Rows = list[tuple[str, str, str]]
"""Word, part of speech and tag (BIO) of each word of a sentence."""


def conll2003(folder: Path, dataset: Dataset, seed: int) -> None:
    """Four columns, tags in IOB1, a line before each document."""
    for part, name in enumerate(dataset.layouts[0].files):
        blocks = []
        for number, rows in enumerate(_sentences(ENTITIES, seed, part)):
            if number % DOCUMENT_SENTENCES == 0:
                blocks.append("-DOCSTART- -X- -X- O\n")
            tags = _iob1([tag for _, _, tag in rows])
            lines = [
                f"{word} {pos} {'O' if pos == '.' else 'I-NP'} {tag}\n"
                for (word, pos, _), tag in zip(rows, tags, strict=True)
            ]
            blocks.append("".join(lines))
        (folder / name).write_text("\n".join(blocks), encoding="utf-8")


def conll2000(folder: Path, dataset: Dataset, seed: int) -> None:
    """Three columns: a train and a test file."""
    for part, name in zip((0, 2), dataset.layouts[0].files, strict=True):
        blocks = ["".join(f"{' '.join(row)}\n" for row in rows) for rows in _sentences(CHUNKS, seed, part)]
        (folder / name).write_text("\n".join(blocks), encoding="utf-8")


def wnut(folder: Path, dataset: Dataset, seed: int) -> None:
    """Two columns parted by a tab."""
    for part, name in enumerate(dataset.layouts[0].files):
        blocks = ["".join(f"{word}\t{tag}\n" for word, _, tag in rows) for rows in _sentences(NEW_ENTITIES, seed, part)]
        (folder / name).write_text("\n".join(blocks), encoding="utf-8")


def _sentences(types: tuple[str, ...], seed: int, part: int) -> list[Rows]:
    """Sentences of three to five spans, with up to three common words before each and behind the last."""
    words = list(invented_words(WORDS_A_TYPE * len(types) + COMMON_WORDS))
    common, own = words[:COMMON_WORDS], words[COMMON_WORDS:]
    random = np.random.RandomState([seed, part])

    def outside() -> Rows:
        return [(str(random.choice(common)), "DT", "O") for _ in range(random.randint(4))]

    sentences = []
    for _ in range(SENTENCES[part]):
        rows = outside()
        for kind in random.randint(len(types), size=random.randint(3, 6)).tolist():
            of_type = own[kind * WORDS_A_TYPE : (kind + 1) * WORDS_A_TYPE]
            for place in range(random.randint(1, 4)):
                # One word of ten comes from any type.
                word = str(random.choice(own if random.random_sample() < 0.1 else of_type))
                rows.append((word, "NNP", f"{'I' if place else 'B'}-{types[kind]}"))
            rows += outside()
        sentences.append([*rows, (".", ".", "O")])
    return sentences


def _iob1(tags: list[str]) -> list[str]:
    """BIO as IOB1: B- only right behind a span of the same type."""
    before = ["O", *tags]
    return [
        tag if tag == "O" or tag[2:] == last[2:] else f"I-{tag[2:]}" for last, tag in zip(before, tags, strict=False)
    ]
