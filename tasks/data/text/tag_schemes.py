"""Tag schemes for spans: IOB1, BIO and BIOES, detected from the tags and converted to BIO.

- BIO (IOB2): B- starts every span, I- continues it.
- IOB1: I- throughout; B- only starts a span directly after another of the same type (CoNLL-2003 as published).
- BIOES: also E- for the last word of a span, S- for a span of one word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

from dropbench.harness.errors import InputError

Scheme = Literal["IOB1", "BIO", "BIOES"]
Tags = Sequence[str]
EXPECTED = "expected O, or B-, I-, E- or S- and a type, such as B-PER (IOB1, BIO or BIOES)"
TO_BIO = {"S": "B", "E": "I", "B": "B", "I": "I"}


def detect_scheme(path: Path, sentences: Sequence[Tags], lines: Sequence[int]) -> Scheme:
    """Return the scheme of the tags of the sentences of a file; BIO if it has no span.

    `lines` are the lines of the first word of each sentence; the other words are on the following lines.

    Raises:
        InputError: a tag has no known scheme, the tags of two schemes are mixed, or a BIOES span is incomplete.
    """
    prefixes = set()
    for line, _, tag in _tag_positions(sentences, lines):
        prefix, hyphen, kind = tag.partition("-")
        if tag != "O" and not (prefix in TO_BIO and hyphen and kind):
            raise InputError(f"{path}:{line}: tag '{tag[:40]}' has no known scheme: {EXPECTED}")
        prefixes.add(prefix)
    if prefixes & {"E", "S"}:
        _check_bioes(path, sentences, lines)
        return "BIOES"
    # If I- starts a span, the tags are not BIO; if B- starts one after no span of its type, they are not IOB1.
    evidence = {"B": "", "I": ""}
    for line, previous, tag in _tag_positions(sentences, lines):
        if tag[0] in evidence and not evidence[tag[0]] and previous[2:] != tag[2:]:
            evidence[tag[0]] = f"{path}:{line}: {tag}"
    if evidence["B"] and evidence["I"]:
        raise InputError(
            f"{evidence['I']} starts a span (IOB1), and so does {evidence['B']} (BIO): expected one scheme per file"
        )
    return "IOB1" if evidence["I"] else "BIO"


def to_bio(tags: Tags) -> tuple[str, ...]:
    """Convert the tags of a sentence from any of the schemes to BIO."""
    return tuple(
        tag if tag == "O" else f"{TO_BIO[tag[0]] if previous[2:] == tag[2:] else 'B'}-{tag[2:]}"
        for previous, tag in pairwise(("O", *tags))
    )


def _check_bioes(path: Path, sentences: Sequence[Tags], lines: Sequence[int]) -> None:
    for line, before, tag in _tag_positions([(*tags, "O") for tags in sentences], lines):
        is_open = before[0] in "BI"
        continues = tag[0] in "IE" and before[2:] == tag[2:]
        if is_open and not continues:
            raise InputError(f"{path}:{line - 1}: {before} is not closed: expected E{before[1:]} at its end (BIOES)")
        if tag[0] in "IE" and not (is_open and continues):
            raise InputError(f"{path}:{line}: {tag} without a start: expected B{tag[1:]} before it (BIOES)")


def _tag_positions(sentences: Sequence[Tags], lines: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    """Yield the line of each tag, the previous tag (O for the first), and the tag."""
    for tags, start in zip(sentences, lines, strict=True):
        for line, (previous, tag) in enumerate(pairwise(("O", *tags)), start):
            yield line, previous, tag
