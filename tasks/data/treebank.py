r"""The Penn Treebank for tagging of parts of speech: trees (`.mrg`), or `word_TAG` text.

A tree's leaves are `(TAG word)`. Traces (-NONE-) are no words and are left out; words stay as published (-LRB- for an
opening bracket, `1\/2`). The Wall Street Journal part has 25 sections, which stand in the names of its files:
wsj_0123.mrg is of section 01. Train, dev and test are sections 0 to 18, 19 to 21 and 22 to 24 (Collins, 2002). The free
sample has no file of sections 19 to 24; its files are parted here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.errors import InputError
from tasks.data.lines import read_lines
from tasks.data.splits import stratified
from tasks.data.tagged import TaggedData, TaggedSplit, noted_sentences, tags_of

if TYPE_CHECKING:
    from tasks.data.locate import Source

TRACE = "-NONE-"
SECTIONS = (range(19), range(19, 22), range(22, 25))
FILE = re.compile(r"wsj_(\d\d)\d\d\.mrg", re.ASCII)
TOKEN = re.compile(r"[()]|[^\s()]+")
LEAF = "expected trees of (TAG word), such as ( (S (NP (DT The) (NN cat)) (VP (VBD sat))) )"


@dataclass
class Sentences:
    """Words and tags in the order of the files; what was left out."""

    words: list[tuple[str, ...]] = field(default_factory=list)
    tags: list[tuple[str, ...]] = field(default_factory=list)
    traces: int = 0
    empty: int = 0

    def add(self, leaves: Sequence[tuple[str, str]]) -> None:
        """Add a sentence of (tag, word), without its traces; none is added where nothing else is there."""
        kept = [leaf for leaf in leaves if leaf[0] != TRACE]
        self.traces += len(leaves) - len(kept)
        if kept:
            self.words.append(tuple(word for _, word in kept))
            self.tags.append(tuple(tag for tag, _ in kept))
        else:
            self.empty += 1

    def split(self) -> TaggedSplit:
        """As a split."""
        return TaggedSplit(tuple(self.words), tuple(self.tags))


def read_trees(source: Source) -> TaggedData:
    """A folder of .mrg files, at any depth.

    Raises:
        InputError: a file is named otherwise or does not parse, or sections are missing; says which.
    """
    [folder] = source.files
    paths = sorted(path for path in folder.rglob("*.mrg") if not path.name.startswith("."))
    sections = [_section(path) for path in paths]
    if not paths:
        raise InputError(f"{folder}: no .mrg files")
    if set(sections) & {*SECTIONS[1], *SECTIONS[2]}:
        missing = sorted(set(range(25)) - set(sections))
        if missing:
            told = ", ".join(f"{section:02d}" for section in missing)
            raise InputError(f"{folder}: no files of sections {told}: expected all of 00 to 24, or the free sample")
        parts = [[path for path, at in zip(paths, sections, strict=True) if at in part] for part in SECTIONS]
        note = "train, dev and test are sections 0 to 18, 19 to 21 and 22 to 24"
    else:
        rows = stratified(np.zeros(len(paths), np.int64), (80, 10, 10))
        parts = [[paths[row] for row in part] for part in rows]
        note = noted_sentences(f"80 % train, 10 % dev, 10 % test of {len(paths)} files of the sample")
    found = [Sentences() for _ in parts]
    for sentences, part in zip(found, parts, strict=True):
        for path in part:
            for leaves in _trees(path):
                sentences.add(leaves)
    return _data(source, found, note)


def read_text(source: Source) -> TaggedData:
    """Three files with a sentence on each line, of `word_TAG` parted by spaces; a word may contain underscores.

    Raises:
        InputError: a word has no tag; the message has file and line.
    """
    found = [Sentences() for _ in source.files]
    for sentences, path in zip(found, source.files, strict=True):
        for number, line in enumerate(read_lines(path), 1):
            leaves = []
            for item in filter(None, re.split("[ \t\r]+", line)):
                word, _, tag = item.rpartition("_")
                if not word or not tag:
                    raise InputError(f"{path}:{number}: '{item[:40]}' has no tag: expected word_TAG")
                leaves.append((tag, word))
            if leaves:
                sentences.add(leaves)
    return _data(source, found, "splits as published")


def _data(source: Source, found: Sequence[Sentences], made: str) -> TaggedData:
    notes = [made]
    if traces := sum(sentences.traces for sentences in found):
        notes.append(f"{traces:,} traces ({TRACE}) are no words")
    if empty := sum(sentences.empty for sentences in found):
        notes.append(f"{empty:,} sentences of traces alone left out")
    train, dev, test = (sentences.split() for sentences in found)
    return TaggedData(source.name, tags_of(train, dev, test), train, dev, test, tuple(notes), "tokens")


def _section(path: Path) -> int:
    match = FILE.fullmatch(path.name)
    if not match or int(match[1]) > 24:
        raise InputError(f"{path}: the name does not tell the section: expected wsj_0000.mrg to wsj_2499.mrg")
    return int(match[1])


def _trees(path: Path) -> Iterator[list[tuple[str, str]]]:
    """The leaves (tag, word) of each tree of a file."""
    depth = 0
    leaves: list[tuple[str, str]] = []
    # What stands behind the innermost bracket that is open: a label, or a tag and its word.
    inside: list[str] = []
    closed = True
    for number, line in enumerate(read_lines(path), 1):
        for token in TOKEN.findall(line):
            if token == "(":
                if len(inside) > 1:
                    raise InputError(f"{path}:{number}: a bracket behind a word: {LEAF}")
                depth += 1
                inside, closed = [], False
            elif token != ")":
                inside.append(token)
                if closed or len(inside) > 2:
                    raise InputError(f"{path}:{number}: '{token[:40]}' stands outside of a leaf: {LEAF}")
            else:
                depth -= 1
                if depth < 0 or (not closed and len(inside) != 2):
                    raise InputError(f"{path}:{number}: a closing bracket too many, or no word before it: {LEAF}")
                if not closed:
                    leaves.append((inside[0], inside[1]))
                inside, closed = [], True
                if depth == 0:
                    yield leaves
                    leaves = []
    if depth:
        told = f"{depth} brackets are" if depth > 1 else "1 bracket is"
        raise InputError(f"{path}: {told} open at the end of the file: cut short?")
