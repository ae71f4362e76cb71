"""Tag schemes for spans: IOB1, BIO and BIOES, recognised by their tags and brought to BIO.

- BIO (IOB2): B- begins every span, I- goes on with it.
- IOB1: I- throughout; B- only begins a span right behind another of the same type (CoNLL-2003 as published).
- BIOES: also E- for the last word of a span, S- for a span of one word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from harness.errors import InputError

Scheme = Literal["IOB1", "BIO", "BIOES"]
Tags = Sequence[str]
KNOWN = "expected O, or B-, I-, E- or S- and a type, such as B-PER (IOB1, BIO or BIOES)"
TO_BIO = {"S": "B", "E": "I", "B": "B", "I": "I"}


def recognise(path: Path, sentences: Sequence[Tags], lines: Sequence[int]) -> Scheme:
    """The scheme of a file's tags.

    Args:
        path: the file, for errors.
        sentences: the tags of each sentence.
        lines: the line at which each sentence begins; its words stand on lines of their own.

    Returns:
        A file without a span is BIO.

    Raises:
        InputError: a tag is of no known scheme, the tags of two schemes are mixed, or a BIOES span is broken.
    """
    prefixes = set()
    for line, _, tag in _places(sentences, lines):
        prefix, hyphen, kind = tag.partition("-")
        if tag != "O" and not (prefix in TO_BIO and hyphen and kind):
            raise InputError(f"{path}:{line}: tag '{tag[:40]}' is of no known scheme: {KNOWN}")
        prefixes.add(prefix)
    if prefixes & {"E", "S"}:
        _check_bioes(path, sentences, lines)
        return "BIOES"
    # Where I- begins a span the tags are no BIO; where B- does without need they are no IOB1.
    begun = {"B": "", "I": ""}
    for line, before, tag in _places(sentences, lines):
        if tag[0] in begun and not begun[tag[0]] and before[2:] != tag[2:]:
            begun[tag[0]] = f"{path}:{line}: {tag}"
    if begun["B"] and begun["I"]:
        raise InputError(f"{begun['I']} begins a span, and so does {begun['B']}: IOB1 and BIO are mixed")
    return "IOB1" if begun["I"] else "BIO"


def to_bio(tags: Tags) -> tuple[str, ...]:
    """One sentence's tags of a recognised scheme as BIO."""
    converted = []
    for before, tag in _pairs(tags):
        if tag == "O":
            converted.append(tag)
            continue
        begins = before[2:] != tag[2:]
        converted.append(f"{'B' if begins else TO_BIO[tag[0]]}-{tag[2:]}")
    return tuple(converted)


def _check_bioes(path: Path, sentences: Sequence[Tags], lines: Sequence[int]) -> None:
    for tags, start in zip(sentences, lines, strict=True):
        for line, (before, tag) in enumerate(_pairs((*tags, "O")), start):
            is_open = before[0] in "BI"
            goes_on = tag[0] in "IE" and before[2:] == tag[2:]
            if is_open and not goes_on:
                raise InputError(f"{path}:{line - 1}: {before} is left open: expected E{before[1:]} at its end (BIOES)")
            if tag[0] in "IE" and not (is_open and goes_on):
                raise InputError(f"{path}:{line}: {tag} without a beginning: expected B{tag[1:]} before it (BIOES)")


def _places(sentences: Sequence[Tags], lines: Sequence[int]) -> Iterator[tuple[int, str, str]]:
    """The line of each tag, the tag before it, and the tag itself."""
    for tags, start in zip(sentences, lines, strict=True):
        for line, (before, tag) in enumerate(_pairs(tags), start):
            yield line, before, tag


def _pairs(tags: Tags) -> Iterator[tuple[str, str]]:
    """Each tag with the one before it, O before the first."""
    return zip(("O", *tags), tags, strict=False)
