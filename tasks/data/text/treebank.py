r"""Readers of the Penn Treebank for part-of-speech tagging: trees (`.mrg`), or `word_TAG` text.

The leaves of a tree are `(TAG word)`. Traces (-NONE-) are not words and are left out; words stay as published (-LRB-
for an opening bracket, `1\/2`). The Wall Street Journal part has 25 sections, given by the names of its files:
wsj_0123.mrg is in section 01. Train, dev and test are sections 0 to 18, 19 to 21 and 22 to 24 (Collins, 2002). The free
sample has no files of sections 19 to 24; its files are split by DropBench.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dropbench.harness.errors import InputError, count_of
from dropbench.tasks.data.lines import read_lines
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.splits import stratified
from dropbench.tasks.data.text.tagged import TaggedData, TaggedSplit, tagged_data

TRACE = "-NONE-"
SECTIONS = (range(19), range(19, 22), range(22, 25))
FILE = re.compile(r"wsj_(\d\d)\d\d\.mrg", re.ASCII)
TOKEN = re.compile(r"[()]|[^\s()]+")
LEAF = "expected trees of (TAG word), such as ( (S (NP (DT The) (NN cat)) (VP (VBD sat))) )"

Sentence = list[tuple[str, str]]
"""Pairs of a word and its tag."""


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
        rows = stratified(np.zeros(len(paths), np.int64), (80, 10, 10), source.split_seed)
        parts = [[paths[row] for row in part] for part in rows]
        files = count_of(len(paths), "file")
        note = f"80 % train, 10 % dev, 10 % test of {files} of the sample (seed {source.split_seed})"
    return _data(source, [[tree for path in part for tree in _trees(path)] for part in parts], note)


def read_text(source: Source) -> TaggedData:
    """Read three files with one sentence of `word_TAG` per line; a word may contain underscores.

    Raises:
        InputError: a word has no tag; the message names file and line.
    """
    parts: list[list[Sentence]] = []
    for path in source.files:
        parts.append([])
        for number, line in enumerate(read_lines(path), 1):
            sentence = []
            for item in filter(None, re.split("[ \t\r]+", line)):
                word, _, tag = item.rpartition("_")
                if not word or not tag:
                    raise InputError(f"{path}:{number}: '{item[:40]}' has no tag: expected word_TAG")
                sentence.append((word, tag))
            if sentence:
                parts[-1].append(sentence)
    return _data(source, parts, "splits as published")


def _data(source: Source, parts: Sequence[Sequence[Sentence]], split_note: str) -> TaggedData:
    """Return the data set of some parts without their traces."""
    traces = sum(tag == TRACE for sentences in parts for sentence in sentences for _, tag in sentence)
    words = [[[pair for pair in sentence if pair[1] != TRACE] for sentence in sentences] for sentences in parts]
    notes = [split_note]
    if traces:
        notes.append(f"{traces:,} traces ({TRACE}) are no words")
    if empty := sum(sentences.count([]) for sentences in words):
        notes.append(f"{empty:,} sentences of traces alone left out")
    splits = [TaggedSplit.from_pairs(filter(None, sentences)) for sentences in words]
    return tagged_data(source, splits, notes, "tokens")


def _section(path: Path) -> int:
    match = FILE.fullmatch(path.name)
    if not match or int(match[1]) > 24:
        raise InputError(f"{path}: no section in the file name: expected wsj_0000.mrg to wsj_2499.mrg")
    return int(match[1])


def _trees(path: Path) -> Iterator[Sentence]:
    """Yield the leaves of each tree of a file."""
    depth = 0
    leaves: Sentence = []
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
                    leaves.append((tokens[1], tokens[0]))
                tokens, after_closing = [], True
                if depth == 0:
                    yield leaves
                    leaves = []
    if depth:
        raise InputError(f"{path}: {count_of(depth, 'open bracket')} at the end of the file: is it truncated?")
