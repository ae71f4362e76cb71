"""Readers of column files: a word and its labels per line, an empty line between sentences (CoNLL-2000/2003, WNUT).

Columns are separated by tabs if a line has one, else by spaces. Comments before a sentence, as in CoNLL-U, are left
out: lines that begin with "#" and have no tab in a file with tabs, or that are `# key = value`, `# newdoc` or
`# newpar`. The tag in the last column marks spans. Lines of CoNLL-2003 that start with -DOCSTART- separate documents;
they are not sentences, although some papers count them. All readers raise InputError, which names file and line, if a
line does not parse or the tag scheme is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.lines import stream_lines
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.splits import SPLITS, three_splits
from dropbench.tasks.data.text.tag_schemes import Scheme, detect_scheme, to_bio
from dropbench.tasks.data.text.tagged import Scored, TaggedData, TaggedSplit, tagged_data

DOCUMENT = "-DOCSTART-"
COMMENT = re.compile(r"#\s*(\S+\s*=(?!\S)|new(doc|par)\b)")
MAX_PEEK = 1000
"""Lines of which one has a tab, in a file whose columns are separated by tabs."""


def read_columns(path: Path, names: Sequence[str], scored: Scored = "spans") -> tuple[TaggedSplit, Scheme, int]:
    """Return the sentences of a file, with tags in BIO; the scheme of the file; its number of document lines.

    The file is in UTF-8, and its columns have these names, "word" and "tag" among them. Tags that are scored as
    "tokens" are not changed.

    Raises:
        InputError: a line has other columns, the file has no sentence, or the tag scheme is unknown.
    """
    sentences: list[list[list[str]]] = []
    starts: list[int] = []
    documents = 0
    hashes: list[tuple[int, str]] = []
    starts_sentence = True
    has_tabs = any("\t" in line for _, line in islice(stream_lines(path), MAX_PEEK))
    for number, line in stream_lines(path):
        # ASCII white space only: words of the published sets contain other kinds.
        text = line.rstrip(" \t\r")
        if text.startswith(DOCUMENT):
            documents += 1
        if not text or text.startswith(DOCUMENT):
            starts_sentence = True
            continue
        if starts_sentence and text.startswith("#") and ("\t" not in text if has_tabs else COMMENT.match(text)):
            continue
        fields = [field.strip(" ") for field in re.split("\t" if "\t" in text else " +", text.strip(" "))]
        if len(fields) != len(names) or not all(fields):
            problem = count_of(len(fields), "column") if all(fields) else "an empty column"
            raise InputError(f"{path}:{number}: {problem}: expected {len(names)}, {', '.join(names)}")
        if starts_sentence:
            sentences.append([])
            starts.append(number)
            starts_sentence = False
            if fields[0] == "#" and "\t" not in text:
                hashes.append((number, fields[names.index("tag")]))
        sentences[-1].append(fields)
    if not sentences:
        raise InputError(f"{path}: no sentences: expected one at least")
    columns = {name: tuple(tuple(row[index] for row in rows) for rows in sentences) for index, name in enumerate(names)}
    words, tags = columns.pop("word"), columns.pop("tag")
    if scored == "tokens":
        _require_words(path, hashes, tags)
        return TaggedSplit(words, tags, columns), "BIO", documents
    scheme = detect_scheme(path, tags, starts)
    return TaggedSplit(words, tuple(map(to_bio, tags)), columns), scheme, documents


def _require_words(path: Path, hashes: Sequence[tuple[int, str]], tags: Sequence[Sequence[str]]) -> None:
    """Raise InputError if a sentence starts with the word "#" (line, tag) whose tag nothing else has: a comment."""
    others = Counter(tag for sentence in tags for tag in sentence) - Counter(tag for _, tag in hashes)
    for number, tag in hashes:
        if tag not in others:
            expected = "expected comments as `# key = value`, or tabs between columns if # is a word"
            raise InputError(f"{path}:{number}: the word # with the tag '{tag[:40]}' looks like a comment: {expected}")


def _read(source: Source, names: Sequence[str]) -> TaggedData:
    present: tuple[Split, ...] = SPLITS if len(source.files) > 2 else ("train", "test")
    files = {split: read_columns(path, names) for split, path in zip(present, source.files, strict=True)}
    given = {split: rows for split, (rows, _, _) in files.items()}
    splits, note = three_splits(given, whole="the sentences of the published train", seed=source.split_seed)
    schemes = [scheme for _, scheme, _ in files.values()]
    tags = ", ".join(f"{path.name} in {scheme}" for path, scheme in zip(source.files, schemes, strict=True))
    if len({*schemes}) == 1:
        tags = schemes[0]
    scored_as = ", trained and scored as BIO" if tags != "BIO" else ""
    skipped: dict[str, int] = {split: files[split][2] if split in files else 0 for split in SPLITS}
    count = sum(skipped.values())
    documents = [f"{count_of(count, 'line')} {DOCUMENT} left out"] if count else []
    notes = [note or "splits as published", f"tags: {tags}{scored_as}", *documents]
    return tagged_data(source, splits, notes, "spans", {"rows": skipped, "tokens": skipped})


read_conll2003 = partial(_read, names=("word", "pos", "chunk", "tag"))
"""Read three files of four columns: word, part of speech, chunk and entity."""
read_wnut = partial(_read, names=("word", "tag"))
"""Read three files of two columns: token and entity."""
read_conll2000 = partial(_read, names=("word", "pos", "tag"))
"""Read two files of three columns: word, part of speech and chunk; dev is 10 % of the sentences of train."""
