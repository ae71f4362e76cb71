"""Parallel text: two files a split, one sentence a line, line N of the one the translation of line N of the other."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from harness.errors import InputError
from tasks.data.lines import single_spaces

if TYPE_CHECKING:
    from tasks.data.dataset import Unit
    from tasks.data.locate import Source

SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class TranslationData:
    """Sentences of a source language with their translations.

    Attributes:
        name: of the set.
        source: language code of what is translated.
        target: language code of the translations.
    """

    kind: ClassVar[str] = "translation"
    classes: ClassVar[tuple[str, ...]] = ()

    name: str
    source: str
    target: str

    def rows(self) -> dict[str, int]:
        """Number of pairs of each split; reads all of them the first time."""
        raise NotImplementedError

    @property
    def notes(self) -> tuple[str, ...]:
        """Which rows were left out."""
        return ()

    def class_rows(self) -> dict[str, dict[str, int]]:
        """There are no classes."""
        return {}

    def verify(self, progress: Callable[[], None]) -> None:
        """Read what counting the rows has not, calling `progress` after each row; raises InputError for damage."""


@dataclass(frozen=True)
class PairFiles:
    """The two files of a split, plain or gzipped; they are read line by line, as often as is asked for."""

    source: Path
    target: Path

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Every pair, with white space made single; a side without text is "".

        Raises:
            InputError: a file is missing, damaged or binary, a line is no UTF-8, or one file has more sentences.
        """
        for number, (source, target) in enumerate(zip_longest(_lines(self.source), _lines(self.target)), 1):
            if source is None or target is None:
                longer, shorter = (self.target, self.source) if source is None else (self.source, self.target)
                if not (source or target):
                    continue  # an empty line behind the last sentence
                raise InputError(
                    f"{longer}:{number}: {shorter.name} has no line {number}: expected as many lines in both"
                )
            yield source, target

    @cached_property
    def counts(self) -> tuple[int, int]:
        """How many pairs have text on both sides, and how many have not; raises InputError as `pairs`."""
        whole = total = 0
        for source, target in self.pairs():
            whole += bool(source and target)
            total += 1
        if not whole:
            raise InputError(f"{self.source}: no sentence with a translation in {self.target.name}")
        return whole, total - whole


@dataclass(frozen=True)
class ParallelText(TranslationData):
    """Text files.

    Attributes:
        files: those of "train", "dev" and "test".
        form: "raw" as people write; "bpe" cut into Moses tokens and these into pieces, with "@@" behind all but the
            last piece of a word.
    """

    files: dict[str, PairFiles]
    form: Literal["raw", "bpe"]

    def rows(self) -> dict[str, int]:
        """Number of pairs with text on both sides."""
        return {split: files.counts[0] for split, files in self.files.items()}

    @property
    def left_out(self) -> dict[Unit, dict[str, int]]:
        """Number of pairs with an empty side."""
        return {"rows": {split: files.counts[1] for split, files in self.files.items()}}

    @property
    def notes(self) -> tuple[str, ...]:
        """Where pairs were left out."""
        return tuple(
            f"{count:,} pair{'s' * (count > 1)} of {split} with an empty side left out"
            for split, count in self.left_out["rows"].items()
            if count
        )


def read_raw(source: Source) -> ParallelText:
    """A set of raw text; nothing is read before it is asked for."""
    return _text(source, "raw")


def read_bpe(source: Source) -> ParallelText:
    """A set that comes in pieces of tokens; nothing is read before it is asked for."""
    return _text(source, "bpe")


def _text(source: Source, form: Literal["raw", "bpe"]) -> ParallelText:
    sides = list(zip(source.files[::2], source.files[1::2], strict=True))
    files = {split: PairFiles(*side) for split, side in zip(SPLITS, sides, strict=True)}
    first, second = (_language(file) for file in sides[0])
    return ParallelText(source.name, first, second, files, form)


def _language(file: Path) -> str:
    return file.name.removesuffix(".gz").rpartition(".")[2]


def _lines(path: Path) -> Iterator[str]:
    number = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            # Only a line feed ends a line, as for those who aligned the files; Python's text mode knows other ends.
            for number, line in enumerate(file, 1):
                if b"\0" in line:
                    raise InputError(f"{path}:{number}: a zero byte: expected UTF-8 text")
                yield single_spaces(line.decode("utf-8-sig" if number == 1 else "utf-8"))
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(f"{path}:{number}: byte 0x{byte:02x} is no utf-8: expected utf-8 text") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged behind line {number} ({error})") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
