"""Columns: a word and its labels on each line, an empty line between sentences (CoNLL-2000, CoNLL-2003, WNUT).

Columns are parted by spaces or, where a line has one, by a tab. The tag in the last column marks spans. Lines of
CoNLL-2003 that begin with -DOCSTART- part documents; they are no sentences, though some papers count them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import InputError
from tasks.data.lines import read_lines
from tasks.data.schemes import Scheme, recognise, to_bio
from tasks.data.tagged import TaggedData, TaggedSplit, carve_sentences, noted_sentences, tags_of

if TYPE_CHECKING:
    from tasks.data.locate import Source

DOCUMENT = "-DOCSTART-"
DEV_NOTE = noted_sentences("dev is 10 % of the sentences of the published train")


def read_conll2003(source: Source) -> TaggedData:
    """Four columns: word, part of speech, chunk and entity; three files.

    Raises:
        InputError: a line does not parse, or the tags are of no known scheme; the message has file and line.
    """
    return _published(source, ("word", "pos", "chunk", "tag"))


def read_wnut(source: Source) -> TaggedData:
    """Two columns: token and entity; three files.

    Raises:
        InputError: a line does not parse, or the tags are of no known scheme; the message has file and line.
    """
    return _published(source, ("word", "tag"))


def read_conll2000(source: Source) -> TaggedData:
    """Three columns: word, part of speech and chunk; dev is 10 % of the train file's sentences.

    Raises:
        InputError: a line does not parse, or the tags are of no known scheme; the message has file and line.
    """
    names = ("word", "pos", "tag")
    files = [read_columns(path, names) for path in source.files]
    train, dev = carve_sentences(files[0].split)
    return _data(source, files, (train, dev, files[1].split), DEV_NOTE)


@dataclass(frozen=True)
class ColumnFile:
    """One file: its sentences, with tags in BIO; the scheme it has; how many lines were document marks."""

    split: TaggedSplit
    scheme: Scheme
    documents: int


def read_columns(path: Path, names: Sequence[str]) -> ColumnFile:
    """The sentences of one file.

    Args:
        path: the file; UTF-8.
        names: what its columns are; the first is "word", the last "tag".

    Raises:
        InputError: a line has other columns, no sentence is there, or the tags are of no known scheme.
    """
    sentences: list[list[list[str]]] = []
    starts: list[int] = []
    documents = 0
    between = True
    for number, line in enumerate(read_lines(path), 1):
        # ASCII's white space alone: words of the published sets contain other kinds.
        text = line.rstrip(" \t\r")
        if text.startswith(DOCUMENT):
            documents += 1
        if not text or text.startswith(DOCUMENT):
            between = True
            continue
        fields = (
            [field.strip(" ") for field in text.split("\t")]
            if "\t" in text
            else [field for field in text.split(" ") if field]
        )
        if len(fields) != len(names) or not all(fields):
            told = f"{len(fields)} column{'s' * (len(fields) > 1)}" if all(fields) else "an empty column"
            raise InputError(f"{path}:{number}: {told}: expected {len(names)}, {', '.join(names)}")
        if between:
            sentences.append([])
            starts.append(number)
            between = False
        sentences[-1].append(fields)
    if not sentences:
        raise InputError(f"{path}: no sentence is there")
    columns = {name: tuple(tuple(row[at] for row in rows) for rows in sentences) for at, name in enumerate(names)}
    words, tags = columns.pop("word"), columns.pop("tag")
    scheme = recognise(path, tags, starts)
    return ColumnFile(TaggedSplit(words, tuple(to_bio(row) for row in tags), columns), scheme, documents)


def _published(source: Source, names: Sequence[str]) -> TaggedData:
    files = [read_columns(path, names) for path in source.files]
    train, dev, test = (file.split for file in files)
    return _data(source, files, (train, dev, test), "splits as published")


def _data(
    source: Source, files: Sequence[ColumnFile], splits: tuple[TaggedSplit, TaggedSplit, TaggedSplit], made: str
) -> TaggedData:
    found = ", ".join(f"{path.name} in {file.scheme}" for path, file in zip(source.files, files, strict=True))
    if len({file.scheme for file in files}) == 1:
        found = files[0].scheme
    notes = [made, f"tags: {found}" + (", trained and scored as BIO" if found != "BIO" else "")]
    documents = [file.documents for file in files]
    if any(documents):
        notes.append(f"{sum(documents):,} lines {DOCUMENT} are no sentences")
    # A file without its dev beside it gives train and dev.
    names = ("train", "dev", "test") if len(files) == 3 else ("train", "test")
    marks = dict.fromkeys(("train", "dev", "test"), 0) | dict(zip(names, documents, strict=True))
    return TaggedData(source.name, tags_of(*splits), *splits, tuple(notes), "spans", {"rows": marks, "tokens": marks})
