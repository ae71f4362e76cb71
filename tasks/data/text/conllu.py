"""Reader of CoNLL-U (Universal Dependencies) for part-of-speech tagging: ten tab-separated columns, the fourth is UPOS.

Lines of multiword tokens (numbered 1-2) and of empty nodes (8.1) are not words and are left out; # starts a comment.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from harness.errors import InputError
from tasks.data.lines import read_lines
from tasks.data.locate import Source
from tasks.data.text.tagged import TaggedData, TaggedSplit, collect_tags

COLUMNS = 10
SKIPPED = {"-": "multiword tokens", ".": "empty nodes"}
SKIPPED_NUMBER = re.compile(r"\d+([-.])\d+", re.ASCII)
UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM",
    "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip


def read(source: Source) -> TaggedData:
    """Read the three files; the splits are the published ones.

    Raises:
        InputError: a line does not parse; the message names file and line.
    """
    files = [read_split(path) for path in source.files]
    train, dev, test = (split for split, _ in files)
    left_out = sum((counts for _, counts in files), Counter[str]())
    notes = [f"{count:,} {what} are no words" for what, count in sorted(left_out.items())]
    return TaggedData(
        source.name, collect_tags(train, dev, test), train, dev, test, ("splits as published", *notes), "tokens"
    )


def read_split(path: Path) -> tuple[TaggedSplit, Counter[str]]:
    """Return the sentences of one file, and the number of lines left out of each kind.

    Raises:
        InputError: a line does not parse, or the file has no sentence; the message names file and line.
    """
    words: list[tuple[str, ...]] = []
    tags: list[tuple[str, ...]] = []
    left_out: Counter[str] = Counter()
    sentence: list[tuple[str, str]] = []
    # An empty line is appended, because the end of the file ends a sentence.
    for number, line in enumerate([*read_lines(path), ""], 1):
        location = f"{path}:{number}"
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
                    f"{location}: {len(fields)} column{'s' * (len(fields) > 1)}: expected {COLUMNS}, separated by tabs"
                )
            if skipped := SKIPPED_NUMBER.fullmatch(fields[0]):
                left_out[SKIPPED[skipped[1]]] += 1
                continue
            if fields[0] != str(len(sentence) + 1):
                raise InputError(f"{location}: word number '{fields[0][:20]}': expected {len(sentence) + 1}")
            if fields[3] not in UPOS:
                raise InputError(f"{location}: UPOS '{fields[3][:20]}': expected one of {', '.join(UPOS)}")
            sentence.append((fields[1], fields[3]))
    if not words:
        raise InputError(f"{path}: no sentences: expected one at least")
    return TaggedSplit(tuple(words), tuple(tags)), left_out
