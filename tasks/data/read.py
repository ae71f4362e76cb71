"""Read a data set: call the reader that its card names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from dropbench.harness.errors import InputError
from dropbench.harness.registry import load_for
from dropbench.tasks.data.locate import Source


class Data(Protocol):
    """Interface of the data that readers return, for every kind; a base class for sets without classes.

    A set may also have `tokens()`, the number of tokens of each split, and `left_out` (unit → split → number), the rows
    that its published size includes although they are in no split, such as those without a label.
    """

    kind: ClassVar[str]

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names in the order of their numbers; () for a set without classes."""
        return ()

    @property
    def notes(self) -> tuple[str, ...]:
        """How the splits were made and which rows were left out, for readers of the results."""
        return ()

    def rows(self) -> Mapping[str, int]:
        """Return the number of rows of each split."""
        raise NotImplementedError

    def class_rows(self) -> Mapping[str, Mapping[str, int]]:
        """Return the number of rows (of words, in a tagged set) of each class of each split; empty without classes."""
        return {}

    def verify(self, progress: Callable[[], None]) -> None:
        """Read what the reader has deferred, calling `progress` after each row; raise InputError for a damaged file."""
        return


P = TypeVar("P", bound=Sized)


@dataclass(frozen=True, eq=False)
class ThreeSplits(Generic[P]):
    """Base of the data classes that have the fields train, dev and test; raise InputError if one of them is empty.

    A split is a sequence of rows, such as a list of pairs of tensors. The other attributes are as in `Data`.
    """

    kind: ClassVar[str] = ""
    """The kind of data that a subclass holds; "": any."""
    name: str
    classes: tuple[str, ...]
    train: P
    dev: P
    test: P
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for split, count in self.rows().items():
            if not count:
                raise InputError(f"data '{self.name}': no rows for {split}: too few for train, dev and test")

    @classmethod
    def carve(cls, source: Source, rows: Sequence[Any], classes: Sequence[str] = ()) -> ThreeSplits[list[Any]]:
        """Split rows into 80 % train, 10 % dev and 10 % test: at random, but the same with the seed of the source.

        Args:
            source: the files, with the seed of their splits (`seed_splits` in a recipe).
            rows: the rows of all files.
            classes: names of the classes, if there are any.
        """
        import numpy as np

        order = np.random.RandomState(source.split_seed).permutation(len(rows))
        part = len(rows) // 10
        dev, test, train = ([rows[index] for index in each] for each in np.split(order, (part, 2 * part)))
        note = f"80 % train, 10 % dev, 10 % test of all rows (seed {source.split_seed})"
        return ThreeSplits(source.name, tuple(classes), train, dev, test, (note,))

    def splits(self) -> dict[str, P]:
        """Return the three splits by name."""
        return {"train": self.train, "dev": self.dev, "test": self.test}

    def rows(self) -> dict[str, int]:
        """Return the number of rows (texts, sentences, images) of each split."""
        return {name: len(split) for name, split in self.splits().items()}

    def class_rows(self) -> dict[str, dict[str, int]]:
        """Return the counts of `count_classes` of each split; {} without classes, or if rows do not contain them."""
        counts = {name: self.count_classes(split) for name, split in self.splits().items()} if self.classes else {}
        return {
            name: dict(zip(self.classes, numbers, strict=True))
            for name, numbers in counts.items()
            if numbers is not None
        }

    def count_classes(self, split: P) -> Sequence[int] | None:
        """Return the number of rows of each class in a split; None if the last item of a row is not its class."""
        try:
            labels = Counter(float(row[-1]) for row in cast("Any", split))
        except (TypeError, ValueError, RuntimeError, LookupError):  # of tensors with several values, too
            return None
        numbers = range(len(self.classes))
        return [labels[number] for number in numbers] if labels.keys() <= {*numbers} else None

    def verify(self, progress: Callable[[], None]) -> None:
        """Do nothing: the reader has read all files."""


D = TypeVar("D", bound=Data)


def read_any(source: Source) -> Data:
    """Read a data set of any kind; raise InputError if its reader cannot be imported or its files are damaged."""
    data: Data = load_for(f"data '{source.dataset.name}'", source.layout.reader)(source)
    if not all(hasattr(data, method) for method in ("rows", "class_rows", "verify")):
        raise InputError(
            f"{source.layout.reader} returned {type(data).__name__}: expected a dropbench.tasks.data.read.Data"
        )
    return data


def read(source: Source, kind: type[D]) -> D:
    """Read a set of the kind that a task needs; raise InputError for another kind, a damaged file or an invalid row."""
    if kind.kind and source.dataset.kind != kind.kind:
        raise InputError(f"data '{source.name}' is for {source.dataset.kind}: expected a data set for {kind.kind}")
    data = read_any(source)
    if not isinstance(data, kind):
        raise InputError(f"{source.layout.reader} returned {type(data).__name__}, not {kind.__name__}")
    return data
