r"""Readers of the Penn Treebank for part-of-speech tagging: trees (`.mrg`), or `word_TAG` text.

The leaves of a tree are `(TAG word)`. Traces (-NONE-) are not words and are left out; words stay as published (-LRB-
for an opening bracket, `1\/2`). The Wall Street Journal part has 25 sections, given by the names of its files:
wsj_0123.mrg is in section 01. Train, dev and test are sections 0 to 18, 19 to 21 and 22 to 24 (Collins, 2002). The free
sample has no files of sections 19 to 24; its files are split by DropBench.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from harness.errors import InputError
from tasks.data.lines import read_lines
from tasks.data.locate import Source
from tasks.data.splits import stratified
from tasks.data.text.tagged import TaggedData, TaggedSplit, collect_tags, sentence_split_note

TRACE = "-NONE-"
SECTIONS = (range(19), range(19, 22), range(22, 25))
FILE = re.compile(r"wsj_(\d\d)\d\d\.mrg", re.ASCII)
TOKEN = re.compile(r"[()]|[^\s()]+")
LEAF = "expected trees of (TAG word), such as ( (S (NP (DT The) (NN cat)) (VP (VBD sat))) )"


@dataclass
class Sentences:
    """Words and tags in the order of the files, and the numbers of traces and empty sentences left out."""

    words: list[tuple[str, ...]] = field(default_factory=list)
    tags: list[tuple[str, ...]] = field(default_factory=list)
    traces: int = 0
    empty: int = 0

    def add(self, leaves: Sequence[tuple[str, str]]) -> None:
        """Add a sentence of (tag, word) without its traces, unless it has nothing else."""
        without_traces = [leaf for leaf in leaves if leaf[0] != TRACE]
        self.traces += len(leaves) - len(without_traces)
        if without_traces:
            self.words.append(tuple(word for _, word in without_traces))
            self.tags.append(tuple(tag for tag, _ in without_traces))
        else:
            self.empty += 1

    def split(self) -> TaggedSplit:
        """Return the sentences as a split."""
        return TaggedSplit(tuple(self.words), tuple(self.tags))


def read_trees(source: Source) -> TaggedData:
    """Read a folder of .mrg files, at any depth.

    Raises:
        InputError: a file has an unexpected name or does not parse, or sections are missing; the message names them.
    """
    [folder] = source.files
    paths = sorted(path for path in folder.rglob("*.mrg") if not path.name.startswith("."))
    sections = [_section(path) for path in paths]
    if not paths:
        raise InputError(f"{folder}: no .mrg files: expected the folder of the Penn Treebank or of its free sample")
    if set(sections) & {*SECTIONS[1], *SECTIONS[2]}:
        missing = sorted(set(range(25)) - set(sections))
        if missing:
            names = ", ".join(f"{section:02d}" for section in missing)
            raise InputError(f"{folder}: no files of sections {names}: expected all of 00 to 24, or the free sample")
        parts = [[path for path, section in zip(paths, sections, strict=True) if section in part] for part in SECTIONS]
        note = "train, dev and test are sections 0 to 18, 19 to 21 and 22 to 24"
    else:
        rows = stratified(np.zeros(len(paths), np.int64), (80, 10, 10))
        parts = [[paths[row] for row in part] for part in rows]
        note = sentence_split_note(f"80 % train, 10 % dev, 10 % test of {len(paths)} files of the sample")
    splits = [Sentences() for _ in parts]
    for sentences, part in zip(splits, parts, strict=True):
        for path in part:
            for leaves in _trees(path):
                sentences.add(leaves)
    return _data(source, splits, note)


def read_text(source: Source) -> TaggedData:
    """Read three files with one sentence of `word_TAG` per line; a word may contain underscores.

    Raises:
        InputError: a word has no tag; the message names file and line.
    """
    splits = [Sentences() for _ in source.files]
    for sentences, path in zip(splits, source.files, strict=True):
        for number, line in enumerate(read_lines(path), 1):
            leaves = []
            for item in filter(None, re.split("[ \t\r]+", line)):
                word, _, tag = item.rpartition("_")
                if not word or not tag:
                    raise InputError(f"{path}:{number}: '{item[:40]}' has no tag: expected word_TAG")
                leaves.append((tag, word))
            if leaves:
                sentences.add(leaves)
    return _data(source, splits, "splits as published")


def _data(source: Source, splits: Sequence[Sentences], split_note: str) -> TaggedData:
    notes = [split_note]
    if traces := sum(sentences.traces for sentences in splits):
        notes.append(f"{traces:,} traces ({TRACE}) are no words")
    if empty := sum(sentences.empty for sentences in splits):
        notes.append(f"{empty:,} sentences of traces alone left out")
    train, dev, test = (sentences.split() for sentences in splits)
    return TaggedData(source.name, collect_tags(train, dev, test), train, dev, test, tuple(notes), "tokens")


def _section(path: Path) -> int:
    match = FILE.fullmatch(path.name)
    if not match or int(match[1]) > 24:
        raise InputError(f"{path}: no section in the file name: expected wsj_0000.mrg to wsj_2499.mrg")
    return int(match[1])


def _trees(path: Path) -> Iterator[list[tuple[str, str]]]:
    """Yield the leaves (tag, word) of each tree of a file."""
    depth = 0
    leaves: list[tuple[str, str]] = []
    # Tokens after the innermost open bracket: a label, or a tag and its word.
    tokens: list[str] = []
    after_closing = True
    for number, line in enumerate(read_lines(path), 1):
        for token in TOKEN.findall(line):
            if token == "(":
                if len(tokens) > 1:
                    raise InputError(f"{path}:{number}: bracket after a word: {LEAF}")
                depth += 1
                tokens, after_closing = [], False
            elif token != ")":
                tokens.append(token)
                if after_closing or len(tokens) > 2:
                    raise InputError(f"{path}:{number}: '{token[:40]}' is outside of a leaf: {LEAF}")
            else:
                depth -= 1
                if depth < 0 or (not after_closing and len(tokens) != 2):
                    raise InputError(f"{path}:{number}: unmatched closing bracket, or no word before it: {LEAF}")
                if not after_closing:
                    leaves.append((tokens[0], tokens[1]))
                tokens, after_closing = [], True
                if depth == 0:
                    yield leaves
                    leaves = []
    if depth:
        raise InputError(f"{path}: {depth} open bracket{'s' * (depth > 1)} at the end of the file: is it truncated?")
