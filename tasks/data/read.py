"""From the files of a data set to its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

from harness.errors import InputError
from harness.registry import load
from tasks.data.dataset import Unit
from tasks.data.locate import Source


class Data(Protocol):
    """What every reader returns, whatever its kind."""

    kind: ClassVar[str]

    @property
    def classes(self) -> tuple[str, ...]:
        """Names in the order of their numbers; () for a set without classes."""
        ...

    @property
    def notes(self) -> tuple[str, ...]: ...

    def rows(self) -> Mapping[str, int]:
        """Number of rows of each split."""
        ...

    def class_rows(self) -> Mapping[str, Mapping[str, int]]:
        """Number of rows (of words, where each has a tag) of each class of each split; empty without classes."""
        ...

    def verify(self, progress: Callable[[], None]) -> None:
        """Read what reading the set has put off, calling `progress` after each row; raises InputError for damage."""
        ...


@runtime_checkable
class CountsTokens(Protocol):
    """Data whose size is published in tokens as well."""

    def tokens(self) -> Mapping[str, int]:
        """Number of tokens of each split."""
        ...


@runtime_checkable
class LeavesOut(Protocol):
    """Data whose published size counts what no split has, such as rows without a label."""

    @property
    def left_out(self) -> Mapping[Unit, Mapping[str, int]]:
        """Unit → split → number."""
        ...


D = TypeVar("D", bound=Data)


def read_any(source: Source) -> Data:
    """Read a set of any kind.

    Raises:
        InputError: a file is damaged or a row does not parse; the message says where.
    """
    reader: Callable[[Source], Data] = load(source.layout.reader)
    return reader(source)


def read(source: Source, kind: type[D]) -> D:
    """Read a set of the kind that a task needs, such as `TextClassificationData`.

    Raises:
        InputError: the set is of another kind, a file is damaged, or a row does not parse.
    """
    if source.dataset.kind != kind.kind:
        raise InputError(f"data '{source.name}' is for {source.dataset.kind}: expected a set for {kind.kind}")
    data = read_any(source)
    if not isinstance(data, kind):
        raise TypeError(f"{source.layout.reader} returns {type(data).__name__}, not {kind.__name__}")
    return data
