"""CoNLL-U (Universal Dependencies) for tagging of parts of speech: ten columns parted by tabs, the fourth is UPOS.

Lines of multiword tokens (numbered 1-2) and of empty nodes (8.1) are no words and are left out; # begins a comment.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import InputError
from tasks.data.lines import read_lines
from tasks.data.tagged import TaggedData, TaggedSplit, tags_of

if TYPE_CHECKING:
    from tasks.data.locate import Source

COLUMNS = 10
LEFT_OUT = {"-": "multiword tokens", ".": "empty nodes"}
OTHER = re.compile(r"\d+([-.])\d+", re.ASCII)
UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM",
    "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip


def read(source: Source) -> TaggedData:
    """Three files, as they were parted by their publishers.

    Raises:
        InputError: a line does not parse; the message has file and line.
    """
    files = [read_split(path) for path in source.files]
    train, dev, test = (split for split, _ in files)
    left_out = sum((counts for _, counts in files), Counter[str]())
    notes = [f"{count:,} {what} are no words" for what, count in sorted(left_out.items())]
    return TaggedData(
        source.name, tags_of(train, dev, test), train, dev, test, ("splits as published", *notes), "tokens"
    )


def read_split(path: Path) -> tuple[TaggedSplit, Counter[str]]:
    """The sentences of one file, and how many lines of what were left out.

    Raises:
        InputError: a line does not parse, or no sentence is there; the message has file and line.
    """
    words: list[tuple[str, ...]] = []
    tags: list[tuple[str, ...]] = []
    left_out: Counter[str] = Counter()
    sentence: list[tuple[str, str]] = []
    # A line of its own behind the last one: the end of a file ends a sentence.
    for number, line in enumerate([*read_lines(path), ""], 1):
        where = f"{path}:{number}"
        text = line.rstrip(" \t\r")
        if not text:
            if sentence:
                words.append(tuple(word for word, _ in sentence))
                tags.append(tuple(tag for _, tag in sentence))
            sentence = []
        elif not text.startswith("#"):
            fields = text.split("\t")
            if len(fields) != COLUMNS:
                raise InputError(
                    f"{where}: {len(fields)} column{'s' * (len(fields) > 1)}: expected {COLUMNS}, parted by tabs"
                )
            if other := OTHER.fullmatch(fields[0]):
                left_out[LEFT_OUT[other[1]]] += 1
                continue
            if fields[0] != str(len(sentence) + 1):
                raise InputError(f"{where}: word number '{fields[0][:20]}': expected {len(sentence) + 1}")
            if fields[3] not in UPOS:
                raise InputError(f"{where}: UPOS '{fields[3][:20]}': expected one of {', '.join(UPOS)}")
            sentence.append((fields[1], fields[3]))
    if not words:
        raise InputError(f"{path}: no sentence is there")
    return TaggedSplit(tuple(words), tuple(tags)), left_out
