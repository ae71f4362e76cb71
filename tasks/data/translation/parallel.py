"""Translation data, and readers of parallel text: two files per split, whose lines are translations of each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar, Literal

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.classification import Rows
from dropbench.tasks.data.dataset import Unit
from dropbench.tasks.data.lines import single_spaces, stream_lines
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.read import Data
from dropbench.tasks.data.splits import SPLITS


@dataclass(frozen=True)
class TranslationData(Data):
    """Sentences with their translations; `source` and `target` are the language codes of the two."""

    kind: ClassVar[str] = "translation"

    name: str
    source: str
    target: str

    def rows(self) -> Mapping[str, int]:
        """Return the number of pairs of each split; the first call reads all of them."""
        raise NotImplementedError


@dataclass(frozen=True)
class PairFiles:
    """The two files of a split, plain or gzipped, read on every call; `rows` (N,) selects lines, ascending from 0."""

    source: Path
    target: Path
    rows: Rows | None = field(default=None, compare=False)

    def __len__(self) -> int:
        """Return the number of pairs, those with an empty side included."""
        return sum(self.counts)

    def take(self, rows: Rows) -> PairFiles:
        """Return the pairs of some lines, in their order."""
        return replace(self, rows=rows)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield every selected pair, with single spaces; a side without text is "".

        Raises:
            InputError: a file is missing, empty, damaged or binary, a line is not UTF-8, or one file is longer.
        """
        selected = None if self.rows is None else {*self.rows.tolist()}
        for number, (source, target) in enumerate(zip_longest(_lines(self.source), _lines(self.target)), 1):
            if source is None or target is None:
                longer, shorter = (self.target, self.source) if source is None else (self.source, self.target)
                if not (source or target):
                    continue  # an empty line after the last sentence
                raise InputError(f"{longer}:{number}: {shorter.name} has no line {number}: expected as many in both")
            if selected is None or number - 1 in selected:
                yield source, target

    @cached_property
    def counts(self) -> tuple[int, int]:
        """Numbers of pairs with and without text on both sides; raises InputError as `pairs`."""
        counts = Counter(map(all, self.pairs()))
        if not counts[True]:
            raise InputError(f"{self.source}: no sentence with a translation in {self.target.name}")
        return counts[True], counts[False]


@dataclass(frozen=True)
class ParallelText(TranslationData):
    """Parallel text files.

    Attributes:
        files: the files of "train", "dev" and "test".
        form: "raw" for untokenized text; "bpe" for Moses tokens split into pieces, with "@@" after all but the last
            piece of a word.
    """

    files: Mapping[Split, PairFiles]
    form: Literal["raw", "bpe"]
    split_notes: tuple[str, ...] = ()

    def rows(self) -> dict[str, int]:
        """Return the number of pairs with text on both sides."""
        return {split: files.counts[0] for split, files in self.files.items()}

    @property
    def left_out(self) -> dict[Unit, dict[str, int]]:
        """Number of pairs with an empty side."""
        return {"rows": {split: files.counts[1] for split, files in self.files.items()}}

    @property
    def notes(self) -> tuple[str, ...]:
        """How the splits were made, and pairs left out."""
        left_out = (
            f"{count_of(count, 'pair')} of {split} with an empty side left out"
            for split, count in self.left_out["rows"].items()
            if count
        )
        return (*self.split_notes, *left_out)


def _text(source: Source, form: Literal["raw", "bpe"]) -> ParallelText:
    sides = list(zip(source.files[::2], source.files[1::2], strict=True))
    files = {split: PairFiles(*side) for split, side in zip(SPLITS, sides, strict=True)}
    first, second = (file.name.removesuffix(".gz").rpartition(".")[2] for file in sides[0])
    return ParallelText(source.name, first, second, files, form)


def _lines(path: Path) -> Iterator[str]:
    return (single_spaces(line) for _, line in stream_lines(path, gzipped=path.suffix == ".gz"))


read_raw = partial(_text, form="raw")
"""Return a set of raw text, which is read on access."""
read_bpe = partial(_text, form="bpe")
"""Return a set of text in BPE pieces, which is read on access."""
