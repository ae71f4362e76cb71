"""Writers of synthetic sentences with parts of speech from a small grammar: trees, and CoNLL-U.

Some words are nouns or verbs, so that a word does not determine its tag.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks.data.dataset import Dataset
from tasks.data.synthetic.text import invented_words

SENTENCES = {0: 240, 1: 40, 2: 40}
"""Number of sentences of train, dev and test of CoNLL-U."""
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
RULES: dict[str, tuple[tuple[str, ...], ...]] = {
    "S": (("NP", "VP", "."),),
    "NP": (("DT", "NN"), ("DT", "JJ", "NN"), ("PRP",), ("NNP", "NNP"), ("DT", "NN", "PP")),
    "VP": (("VBD", "NP"), ("RB", "VBD", "PP"), ("VBD", "NP", "PP"), ("VBD", "TRACE")),
    "PP": (("IN", "NP"),),
    "TRACE": (("-NONE-",),),
}
"""Rules from S to tags, which have no rule. The phrase of a trace is a noun phrase in the file."""

Leaf = tuple[str, str]


class Grammar:
    """Generator of sentences; equal seeds and parts generate equal ones."""

    def __init__(self, seed: int, part: int):
        self.random = np.random.RandomState([seed, part])
        words = list(invented_words(WORDS_PER_TAG * len(OPEN) + SHARED_WORDS))
        shared = words[:SHARED_WORDS]
        words_of_tag = {
            tag: words[SHARED_WORDS + WORDS_PER_TAG * index : SHARED_WORDS + WORDS_PER_TAG * (index + 1)]
            for index, tag in enumerate(OPEN)
        }
        self.words = {**words_of_tag, **{tag: list(words) for tag, words in CLOSED.items()}, "-NONE-": ["*T*-1"]}
        # A quarter of the nouns and verbs are words that can be either.
        for tag in ("NN", "VBD"):
            self.words[tag] = words_of_tag[tag] + shared

    def sentence(self) -> tuple[str, list[Leaf]]:
        """Return a tree as text, and its leaves (tag, word) without traces."""
        leaves: list[Leaf] = []
        tree = self._draw("S", leaves)
        return f"( {tree} )", leaves

    def _draw(self, symbol: str, leaves: list[Leaf]) -> str:
        if symbol not in RULES:
            word = str(self.random.choice(self.words[symbol]))
            if symbol != "-NONE-":
                leaves.append((symbol, word))
            return f"({symbol} {word})"
        rule = RULES[symbol][self.random.randint(len(RULES[symbol]))]
        label = "NP" if symbol == "TRACE" else symbol
        return f"({label} {' '.join(self._draw(part, leaves) for part in rule)})"


def trees(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write one file of trees for each of the 25 sections."""
    for section in range(SECTIONS):
        section_folder = folder / dataset.layouts[0].files[0] / f"{section:02d}"
        section_folder.mkdir(parents=True)
        grammar = Grammar(seed, section)
        lines = [f"{grammar.sentence()[0]}\n" for _ in range(SECTION_SENTENCES)]
        (section_folder / f"wsj_{section:02d}00.mrg").write_text("\n".join(lines), encoding="utf-8")


def conllu(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write files of ten columns; the first two words of every fifth sentence are one multiword token."""
    for part, name in enumerate(dataset.layouts[0].files):
        grammar = Grammar(seed, part)
        lines = []
        for number in range(SENTENCES[part]):
            _, leaves = grammar.sentence()
            lines.append(f"# sent_id = {number + 1}\n# text = {' '.join(word for _, word in leaves)}\n")
            if number % 5 == 0:
                lines.append("\t".join(("1-2", leaves[0][1] + leaves[1][1], *"________")) + "\n")
            for index, (tag, word) in enumerate(leaves, 1):
                lines.append("\t".join((str(index), word, word, UPOS[tag], tag, "_", "0", "root", "_", "_")) + "\n")
            lines.append("\n")
        (folder / name).write_text("".join(lines), encoding="utf-8")
