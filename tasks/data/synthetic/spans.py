"""Writers of synthetic sentences with tagged spans, in columns: most words of a span indicate its type."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks.data.dataset import Dataset
from tasks.data.synthetic.text import invented_words

SENTENCES = {0: 240, 1: 40, 2: 40}
"""Number of sentences of train, dev and test."""
WORDS_PER_TYPE = 10
COMMON_WORDS = 40
DOCUMENT_SENTENCES = 20
ENTITIES = ("LOC", "MISC", "ORG", "PER")
NEW_ENTITIES = ("corporation", "creative-work", "group", "location", "person", "product")
CHUNKS = ("ADJP", "ADVP", "NP", "PP", "VP")

Rows = list[tuple[str, str, str]]
"""Word, part of speech and tag (BIO) of each word of a sentence."""


def conll2003(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write four columns, with tags in IOB1 and a document line before each document."""
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
    """Write a train and a test file of three columns."""
    for part, name in zip((0, 2), dataset.layouts[0].files, strict=True):
        blocks = ["".join(f"{' '.join(row)}\n" for row in rows) for rows in _sentences(CHUNKS, seed, part)]
        (folder / name).write_text("\n".join(blocks), encoding="utf-8")


def wnut(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write two columns separated by a tab."""
    for part, name in enumerate(dataset.layouts[0].files):
        blocks = ["".join(f"{word}\t{tag}\n" for word, _, tag in rows) for rows in _sentences(NEW_ENTITIES, seed, part)]
        (folder / name).write_text("\n".join(blocks), encoding="utf-8")


def _sentences(types: tuple[str, ...], seed: int, part: int) -> list[Rows]:
    """Return sentences of three to five spans, with up to three common words before each and after the last."""
    words = list(invented_words(WORDS_PER_TYPE * len(types) + COMMON_WORDS))
    common, span_words = words[:COMMON_WORDS], words[COMMON_WORDS:]
    random = np.random.RandomState([seed, part])

    def outside() -> Rows:
        return [(str(random.choice(common)), "DT", "O") for _ in range(random.randint(4))]

    sentences = []
    for _ in range(SENTENCES[part]):
        rows = outside()
        for kind in random.randint(len(types), size=random.randint(3, 6)).tolist():
            of_type = span_words[kind * WORDS_PER_TYPE : (kind + 1) * WORDS_PER_TYPE]
            for position in range(random.randint(1, 4)):
                # One of ten words comes from any type.
                word = str(random.choice(span_words if random.random_sample() < 0.1 else of_type))
                rows.append((word, "NNP", f"{'I' if position else 'B'}-{types[kind]}"))
            rows += outside()
        sentences.append([*rows, (".", ".", "O")])
    return sentences


def _iob1(tags: list[str]) -> list[str]:
    """Convert BIO to IOB1: B- only directly after a span of the same type."""
    return [
        tag if tag == "O" or tag[2:] == previous[2:] else f"I-{tag[2:]}"
        for previous, tag in zip(["O", *tags], tags, strict=False)
    ]
