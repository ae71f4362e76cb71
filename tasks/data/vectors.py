"""Pre-trained word vectors of the user's: GloVe, fastText and word2vec as text, and SENNA.

- GloVe: a word and its numbers on each line, parted by spaces. Some words of the largest file contain spaces.
- fastText and word2vec text: the same behind a first line of two numbers, how many words and how many dimensions.
- SENNA: a folder in which hash/words.lst has the words and embeddings/embeddings.txt their numbers, line by line.

The files have millions of words, a data set has thousands: they are streamed, and only what is wanted is kept.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from harness.settings import Settings
from tasks.data.fingerprint import fingerprint
from tasks.data.streamed import stream_lines

FOLDER = "vectors"
SENNA = (("hash/words.lst", "embeddings/embeddings.txt"), ("words.lst", "embeddings.txt"))
LARGEST = float(np.finfo(np.float32).max)
HEADER = re.compile(r"\d{1,12} (\d{1,6})", re.ASCII)
Vector = NDArray[np.float32]
Line = tuple[str, str, str]
"""Where a vector stands (file:line), its word, and its numbers as text."""


@dataclass(frozen=True, eq=False)
class Vectors:
    """The vectors of some words.

    Attributes:
        dim: D, the length of every vector.
        vectors: word → (D,) float32, for the words that were found.
        wanted: how many words were asked for.
        skipped: lines of the file without use: without a word, or with a wanted word once more (the first one counts).
    """

    dim: int
    vectors: dict[str, Vector]
    wanted: int
    skipped: int

    @property
    def found(self) -> int:
        """How many words have a vector."""
        return len(self.vectors)


def locate_vectors(name: str, settings: Settings) -> Path:
    """The file, or SENNA's folder, of that name in the folder "vectors" of the data root.

    Raises:
        InputError: there is none, or the name leads out of that folder; says what is there.
    """
    folder = settings.data / FOLDER
    if name in ("", ".", "..") or Path(name).name != name:
        raise InputError(f"vectors '{name}': expected the name of a file in {folder}, not a path")
    path = folder / name
    if not path.exists():
        there = sorted(entry.name for entry in folder.iterdir() if entry.name[0] != ".") if folder.is_dir() else []
        raise InputError(f"vectors '{name}' are not in {folder}: there is {', '.join(there) or 'nothing'}")
    return path


def vectors_fingerprint(path: Path) -> str:
    """12 hex digits that change with the file, or with the files of SENNA's folder; see `tasks.data.fingerprint`."""
    return fingerprint(path.parent, [path])


def read_vectors(path: Path, words: Collection[str], *, lowercase_fallback: bool = True) -> Vectors:
    """The vectors of some words.

    Args:
        path: a file, packed with gzip or not, or SENNA's folder.
        words: the words that are wanted.
        lowercase_fallback: a word that is not there gets the vector of its lower case.

    Raises:
        InputError: the file is missing, empty or no UTF-8, a line has another number of dimensions than the first, or a
            wanted vector is not made of finite numbers; the message has file and line.
    """
    wanted = set(words)
    looked_for = wanted | {word.lower() for word in wanted} if lowercase_fallback else wanted
    kept: dict[str, Vector] = {}
    skipped = dim = 0
    for where, word, numbers in _senna(path) if path.is_dir() else _text(path):
        dim = dim or numbers.count(" ") + 1
        if not word or word in kept:
            skipped += 1
        elif word in looked_for:
            kept[word] = _vector(numbers, where)
    if not dim:
        raise InputError(f"{path}: no vector is there")
    vectors = {word: kept[word] for word in sorted(wanted & kept.keys())}
    if lowercase_fallback:
        vectors |= {word: kept[word.lower()] for word in sorted(wanted - kept.keys()) if word.lower() in kept}
    return Vectors(dim, vectors, len(wanted), skipped)


def _text(path: Path) -> Iterator[Line]:
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
            # A word may contain spaces; a number that seems to end it is one number too many.
            numbers = text.split(" ", spaces - dim + 1)[-1]
            word = text[: -len(numbers) - 1]
        if not 0 < dim <= spaces or (spaces > dim and _is_number(word.rpartition(" ")[2])):
            raise InputError(f"{path}:{number}: {spaces} numbers: expected a word and {dim or 'its'} numbers")
        yield f"{path}:{number}", word, numbers


def _senna(folder: Path) -> Iterator[Line]:
    for names in SENNA:
        words, embeddings = (folder / name for name in names)
        if words.is_file() and embeddings.is_file():
            break
    else:
        raise InputError(f"{folder}: expected SENNA's {' and '.join(SENNA[0])}")
    rows = stream_lines(embeddings)
    dim = 0
    for number, word in stream_lines(words):
        _, row = next(rows, (0, ""))
        text = " ".join(row.split())
        if not text:
            raise InputError(f"{embeddings}:{number}: no numbers: expected those of '{word}', line {number} of {words}")
        dim = dim or text.count(" ") + 1
        if text.count(" ") + 1 != dim:
            raise InputError(f"{embeddings}:{number}: {text.count(' ') + 1} numbers: expected {dim}")
        yield f"{embeddings}:{number}", word.strip(), text
    if more := next(rows, None):
        raise InputError(f"{embeddings}:{more[0]}: more lines than {words}")


def _vector(numbers: str, where: str) -> Vector:
    try:
        values = np.array([float(number) for number in numbers.split(" ")])
    except ValueError as error:
        raise InputError(f"{where}: {error}: expected numbers behind the word") from None
    if not (np.abs(values) <= LARGEST).all():
        raise InputError(f"{where}: a number is not finite")
    return values.astype(np.float32)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
