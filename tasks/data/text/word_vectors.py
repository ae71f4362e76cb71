"""Readers of pre-trained word vectors: GloVe, fastText and word2vec as text, and SENNA.

- GloVe: a word and its numbers per line, separated by spaces. Some words of the largest file contain spaces.
- fastText and word2vec text: the same after a header of two numbers, those of words and of dimensions.
- SENNA: a folder with the words in hash/words.lst and their numbers in embeddings/embeddings.txt, line by line.

The files have millions of words, a data set has thousands: the files are streamed, and only requested vectors kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.settings import Settings
from dropbench.tasks.data.lines import stream_lines

FOLDER = "vectors"
SENNA_FILES = (("hash/words.lst", "embeddings/embeddings.txt"), ("words.lst", "embeddings.txt"))
MAX_FLOAT = float(np.finfo(np.float32).max)
HEADER = re.compile(r"\d{1,12} (\d{1,6})", re.ASCII)
Vector = NDArray[np.float32]
VectorLine = tuple[str, str, str]
"""Location (file:line), word, and numbers as text."""


def locate_vectors(name: str, settings: Settings) -> Path:
    """Return the file, or SENNA's folder, of that name in the folder "vectors" of the data root.

    Raises:
        InputError: it does not exist, or the name is a path; the message lists the available names.
    """
    folder = settings.data / FOLDER
    if name in ("", ".", "..") or Path(name).name != name:
        raise InputError(f"vectors '{name}': expected the name of a file in {folder}, not a path")
    path = folder / name
    if not path.exists():
        present = sorted(entry.name for entry in folder.iterdir() if entry.name[0] != ".") if folder.is_dir() else []
        raise InputError(f"vectors '{name}' not found in {folder}: expected one of {', '.join(present) or 'its files'}")
    return path


def read_vectors(path: Path, words: Collection[str]) -> tuple[int, dict[str, Vector]]:
    """Return the length D of every vector, and the vectors (D,), float32, of those words that have one, by word.

    The path is a file, plain or gzipped, or SENNA's folder. A word without a vector gets that of the lowercase word. Of
    the lines that repeat a word, the first counts.

    Raises:
        InputError: the file is missing, empty or not UTF-8, a line differs in dimensions from the first, or a requested
            vector is not made of finite numbers; the message names file and line.
    """
    requested = set(words)
    lookup = requested | {word.lower() for word in requested}
    stored: dict[str, Vector] = {}
    dim = 0
    for location, word, numbers in _senna(path) if path.is_dir() else _text(path):
        count = numbers.count(" ") + 1
        dim = dim or count
        if count != dim:
            raise InputError(f"{location}: {count_of(count, 'number')}: expected {dim}")
        if word in lookup and word not in stored:
            stored[word] = _vector(numbers, location)
    if not dim:
        raise InputError(f"{path}: no vectors: expected one at least")
    vectors = {word: stored[word] for word in sorted(requested & stored.keys())}
    vectors |= {word: stored[word.lower()] for word in sorted(requested - stored.keys()) if word.lower() in stored}
    return dim, vectors


def _text(path: Path) -> Iterator[VectorLine]:
    dim = 0
    for number, line in stream_lines(path):
        # fastText ends every line with a space.
        text = line.rstrip(" ")
        if not text:
            continue
        if number == 1 and (header := HEADER.fullmatch(text)):
            dim = int(header[1])
            continue
        spaces = text.count(" ")
        dim = dim or spaces
        word, _, numbers = text.partition(" ")
        if spaces > dim:
            # A word may contain spaces; if it seems to end with a number, the line has one number too many.
            numbers = text.split(" ", spaces - dim + 1)[-1]
            word = text[: -len(numbers) - 1]
        if not 0 < dim <= spaces or (spaces > dim and _is_number(word.rpartition(" ")[2])):
            raise InputError(f"{path}:{number}: expected a word and {dim or 'its'} numbers, not {spaces}")
        yield f"{path}:{number}", word, numbers


def _senna(folder: Path) -> Iterator[VectorLine]:
    for names in SENNA_FILES:
        words, embeddings = (folder / name for name in names)
        if words.is_file() and embeddings.is_file():
            break
    else:
        raise InputError(f"{folder}: expected SENNA's {' and '.join(SENNA_FILES[0])}")
    rows = stream_lines(embeddings)
    for number, word in stream_lines(words):
        _, row = next(rows, (0, ""))
        text = " ".join(row.split())
        if not text:
            raise InputError(f"{embeddings}:{number}: no numbers: expected those of '{word}', line {number} of {words}")
        yield f"{embeddings}:{number}", word.strip(), text
    if extra := next(rows, None):
        raise InputError(f"{embeddings}:{extra[0]}: more lines than {words}: expected one line per word")


def _vector(numbers: str, location: str) -> Vector:
    try:
        values = np.array([float(number) for number in numbers.split(" ")])
    except ValueError as error:
        raise InputError(f"{location}: {error}: expected numbers after the word") from None
    if not (np.abs(values) <= MAX_FLOAT).all():
        raise InputError(f"{location}: a number is not finite: expected finite numbers in float32")
    return values.astype(np.float32)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
