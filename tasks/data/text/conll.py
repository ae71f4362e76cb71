"""Readers of column files: a word and its labels per line, an empty line between sentences (CoNLL-2000/2003, WNUT).

Columns are separated by tabs if a line has one, else by spaces. The tag in the last column marks spans. Lines of
CoNLL-2003 that start with -DOCSTART- separate documents; they are not sentences, although some papers count them. All
readers raise InputError, which names file and line, if a line does not parse or the tag scheme is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from harness.errors import InputError
from tasks.data.dataset import Unit
from tasks.data.lines import read_lines
from tasks.data.locate import Source
from tasks.data.text.tag_schemes import Scheme, detect_scheme, to_bio
from tasks.data.text.tagged import TaggedData, TaggedSplit, carve_sentences, sentence_split_note, tagged_data

DOCUMENT = "-DOCSTART-"


@dataclass(frozen=True)
class ColumnFile:
    """Sentences of one file, with tags in BIO; the scheme of the file; its number of document lines."""

    split: TaggedSplit
    scheme: Scheme
    documents: int


def read_columns(path: Path, names: Sequence[str]) -> ColumnFile:
    """Return the sentences of a file in UTF-8; the first of the names of its columns is "word", the last "tag".

    Raises:
        InputError: a line has other columns, the file has no sentence, or the tag scheme is unknown.
    """
    sentences: list[list[list[str]]] = []
    starts: list[int] = []
    documents = 0
    starts_sentence = True
    for number, line in enumerate(read_lines(path), 1):
        # ASCII white space only: words of the published sets contain other kinds.
        text = line.rstrip(" \t\r")
        if text.startswith(DOCUMENT):
            documents += 1
        if not text or text.startswith(DOCUMENT):
            starts_sentence = True
            continue
        fields = [field.strip(" ") for field in text.split("\t")] if "\t" in text else re.split(" +", text.strip(" "))
        if len(fields) != len(names) or not all(fields):
            problem = f"{len(fields)} column{'s' * (len(fields) > 1)}" if all(fields) else "an empty column"
            raise InputError(f"{path}:{number}: {problem}: expected {len(names)}, {', '.join(names)}")
        if starts_sentence:
            sentences.append([])
            starts.append(number)
            starts_sentence = False
        sentences[-1].append(fields)
    if not sentences:
        raise InputError(f"{path}: no sentences: expected one at least")
    columns = {name: tuple(tuple(row[index] for row in rows) for rows in sentences) for index, name in enumerate(names)}
    words, tags = columns.pop("word"), columns.pop("tag")
    scheme = detect_scheme(path, tags, starts)
    return ColumnFile(TaggedSplit(words, tuple(to_bio(row) for row in tags), columns), scheme, documents)


def _read(source: Source, names: Sequence[str]) -> TaggedData:
    files = [read_columns(path, names) for path in source.files]
    splits = [file.split for file in files]
    split_note = "splits as published"
    if len(splits) == 2:
        splits[:1] = carve_sentences(splits[0])
        split_note = sentence_split_note("dev is 10 % of the sentences of the published train")
    schemes = ", ".join(f"{path.name} in {file.scheme}" for path, file in zip(source.files, files, strict=True))
    if len({file.scheme for file in files}) == 1:
        schemes = files[0].scheme
    notes = [split_note, f"tags: {schemes}" + (", trained and scored as BIO" if schemes != "BIO" else "")]
    documents = [file.documents for file in files]
    if any(documents):
        notes.append(f"{sum(documents):,} lines {DOCUMENT} are no sentences")
    if len(files) == 2:
        documents.insert(1, 0)
    skipped = dict(zip(("train", "dev", "test"), documents, strict=True))
    left_out: Mapping[Unit, Mapping[str, int]] = {"rows": skipped, "tokens": skipped}
    return tagged_data(source, splits, notes, "spans", left_out)


read_conll2003 = partial(_read, names=("word", "pos", "chunk", "tag"))
"""Read three files of four columns: word, part of speech, chunk and entity."""
read_wnut = partial(_read, names=("word", "tag"))
"""Read three files of two columns: token and entity."""
read_conll2000 = partial(_read, names=("word", "pos", "tag"))
"""Read two files of three columns: word, part of speech and chunk; dev is 10 % of the sentences of train."""
