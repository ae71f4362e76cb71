"""Writers of synthetic sentences with tags: spans in columns, and parts of speech as trees and as CoNLL-U.

Most words of a span indicate its type. The parts of speech come from templates, in which some words are nouns or
verbs, so that a word does not determine its tag.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dropbench.tasks.data.dataset import Dataset
from dropbench.tasks.data.synthetic.text import file_per_part, invented_words

SENTENCES = (240, 40, 40)
"""Number of sentences of train, dev and test."""
WORDS_PER_TYPE = 10
COMMON_WORDS = 40
DOCUMENT_SENTENCES = 20
ENTITIES = ("LOC", "MISC", "ORG", "PER")
NEW_ENTITIES = ("corporation", "creative-work", "group", "location", "person", "product")
CHUNKS = ("ADJP", "ADVP", "NP", "PP", "VP")

SECTION_SENTENCES = 12
SECTIONS = 25
WORDS_PER_TAG = 12
SHARED_WORDS = 4
OPEN = ("JJ", "NN", "VBD", "RB", "NNP")
CLOSED = {"DT": ("the", "a", "this"), "IN": ("of", "in", "with"), "PRP": ("she", "they", "it"), ".": (".", "?")}
UPOS = {
    "JJ": "ADJ", "NN": "NOUN", "VBD": "VERB", "RB": "ADV", "NNP": "PROPN",
    "DT": "DET", "IN": "ADP", "PRP": "PRON", ".": "PUNCT",
}  # fmt: skip
TEMPLATES = (
    "DT NN VBD DT NN .", "DT JJ NN VBD DT NN .", "PRP VBD DT JJ NN .", "DT NN IN DT NN RB VBD PRP .",
    "NNP NNP RB VBD IN DT NN .", "PRP RB VBD IN NNP NNP .", "NNP NNP VBD -NONE- .",
)  # fmt: skip
"""The tags of sentences; -NONE- is that of a trace, which is no word."""

Rows = list[tuple[str, str, str]]
"""Word, part of speech and tag (BIO) of each word of a sentence."""
Leaf = tuple[str, str]


@file_per_part(0, 1, 2)
def conll2003(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write four columns, with tags in IOB1 and a document line before each document."""
    for number, rows in enumerate(_sentences(ENTITIES, part, random)):
        yield "\n" if number else ""
        if number % DOCUMENT_SENTENCES == 0:
            yield "-DOCSTART- -X- -X- O\n\n"
        previous = "O"
        for word, pos, tag in rows:
            # IOB1: B- only directly after a span of the same type.
            iob1 = tag if tag == "O" or tag[2:] == previous[2:] else f"I-{tag[2:]}"
            yield f"{word} {pos} {'O' if pos == '.' else 'I-NP'} {iob1}\n"
            previous = tag


@file_per_part(0, 2)
def conll2000(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write a train and a test file of three columns."""
    for number, rows in enumerate(_sentences(CHUNKS, part, random)):
        yield "\n" if number else ""
        yield from (f"{' '.join(row)}\n" for row in rows)


@file_per_part(0, 1, 2)
def wnut(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write two columns separated by a tab."""
    for number, rows in enumerate(_sentences(NEW_ENTITIES, part, random)):
        yield "\n" if number else ""
        yield from (f"{word}\t{tag}\n" for word, _, tag in rows)


def _sentences(types: tuple[str, ...], part: int, random: np.random.RandomState) -> Iterator[Rows]:
    """Yield sentences of three to five spans, with up to three common words before each and after the last."""
    words = list(invented_words(WORDS_PER_TYPE * len(types) + COMMON_WORDS))
    common, span_words = words[:COMMON_WORDS], words[COMMON_WORDS:]

    def outside() -> Rows:
        return [(str(random.choice(common)), "DT", "O") for _ in range(random.randint(4))]

    for _ in range(SENTENCES[part]):
        rows = outside()
        for kind in random.randint(len(types), size=random.randint(3, 6)).tolist():
            of_type = span_words[kind * WORDS_PER_TYPE : (kind + 1) * WORDS_PER_TYPE]
            for position in range(random.randint(1, 4)):
                # One of ten words comes from any type.
                word = str(random.choice(span_words if random.random_sample() < 0.1 else of_type))
                rows.append((word, "NNP", f"{'I' if position else 'B'}-{types[kind]}"))
            rows += outside()
        yield [*rows, (".", ".", "O")]


def _leaves(random: np.random.RandomState) -> list[Leaf]:
    """Return the tag and the word of each leaf of a sentence; a quarter of the nouns and verbs can be either."""
    words = list(invented_words(SHARED_WORDS + WORDS_PER_TAG * len(OPEN)))
    shared, own = words[:SHARED_WORDS], words[SHARED_WORDS:]
    of_tag: dict[str, Sequence[str]] = {**CLOSED, "-NONE-": ("*T*-1",)}
    for index, tag in enumerate(OPEN):
        of_tag[tag] = own[index * WORDS_PER_TAG :][:WORDS_PER_TAG] + (shared if tag in ("NN", "VBD") else [])
    return [(tag, str(random.choice(of_tag[tag]))) for tag in TEMPLATES[random.randint(len(TEMPLATES))].split()]


def trees(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write one file of trees for each of the 25 sections."""
    for section in range(SECTIONS):
        section_folder = folder / dataset.layouts[0].files[0] / f"{section:02d}"
        section_folder.mkdir(parents=True)
        random = np.random.RandomState([seed, section])
        sentences = (_leaves(random) for _ in range(SECTION_SENTENCES))
        lines = [f"( (S {' '.join(f'({tag} {word})' for tag, word in leaves)}) )\n" for leaves in sentences]
        (section_folder / f"wsj_{section:02d}00.mrg").write_text("\n".join(lines), encoding="utf-8")


@file_per_part(0, 1, 2)
def conllu(dataset: Dataset, part: int, random: np.random.RandomState) -> Iterator[str]:
    """Write files of ten columns; the first two words of every fifth sentence are one multiword token."""
    for number in range(SENTENCES[part]):
        leaves = [leaf for leaf in _leaves(random) if leaf[0] in UPOS]
        yield f"# sent_id = {number + 1}\n# text = {' '.join(word for _, word in leaves)}\n"
        if number % 5 == 0:
            yield "\t".join(("1-2", leaves[0][1] + leaves[1][1], *"________")) + "\n"
        for index, (tag, word) in enumerate(leaves, 1):
            yield "\t".join((str(index), word, word, UPOS[tag], tag, "_", "0", "root", "_", "_")) + "\n"
        yield "\n"
