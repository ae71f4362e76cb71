"""Reader of CoNLL-U (Universal Dependencies) for part-of-speech tagging: ten tab-separated columns, the fourth is UPOS.

Lines of multiword tokens (numbered 1-2) and of empty nodes (8.1) are not words and are left out; # starts a comment.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from dropbench.harness.errors import InputError, count_of
from dropbench.tasks.data.lines import read_lines
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.text.tagged import TaggedData, TaggedSplit, tagged_data

COLUMNS = 10
SKIPPED = {"-": "multiword tokens", ".": "empty nodes"}
SKIPPED_NUMBER = re.compile(r"\d+([-.])\d+", re.ASCII)
UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM",
    "PART", "PRON", "PROPN", "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip


def read(source: Source) -> TaggedData:
    """Read the three files; raise the errors of `read_split`. An empty line must follow the last sentence, too."""
    splits, left_out = zip(*(read_split(path) for path in source.files), strict=True)
    counts = sorted(sum(left_out, Counter[str]()).items())
    notes = ["splits as published", *(f"{count:,} {kind} are no words" for kind, count in counts)]
    ends = {path.name: path.read_bytes()[-99:].translate(None, b"\r ") for path in source.files}
    notes += [f"{name} ends inside a sentence: possibly cut short" for name, end in ends.items() if end[-2:] != b"\n\n"]
    return tagged_data(source, splits, notes, "tokens")


def read_split(path: Path) -> tuple[TaggedSplit, Counter[str]]:
    """Return the sentences of a file, and the counts of the lines left out; raise InputError for an invalid line."""
    sentences: list[list[tuple[str, str]]] = [[]]
    left_out: Counter[str] = Counter()
    for number, line in enumerate(read_lines(path), 1):
        location = f"{path}:{number}"
        text = line.rstrip(" \t\r")
        if not text:
            sentences.append([])
        elif not text.startswith("#"):
            fields = text.split("\t")
            if len(fields) != COLUMNS:
                raise InputError(f"{location}: {count_of(len(fields), 'column')}: expected {COLUMNS} between tabs")
            if skipped := SKIPPED_NUMBER.fullmatch(fields[0]):
                left_out[SKIPPED[skipped[1]]] += 1
                continue
            expected = len(sentences[-1]) + 1
            if fields[0] != str(expected):
                raise InputError(f"{location}: word number '{fields[0][:20]}': expected {expected}")
            if fields[3] not in UPOS:
                raise InputError(f"{location}: UPOS '{fields[3][:20]}': expected one of {', '.join(UPOS)}")
            sentences[-1].append((fields[1], fields[3]))
    if not any(sentences):
        raise InputError(f"{path}: no sentences: expected one at least")
    return TaggedSplit.from_pairs(filter(None, sentences)), left_out
