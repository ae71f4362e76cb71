"""What there is of every data set, and what a set holds when all of it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.settings import Settings
from harness.task import SUBSET
from tasks.data.catalog import DATASETS
from tasks.data.dataset import Dataset, Published, Unit
from tasks.data.locate import Source, default_folder, nearest_layout
from tasks.data.read import CountsTokens, Data, LeavesOut, read_any


@dataclass(frozen=True)
class Listed:
    """A set, and whether its files are there: `state` is "ready", "incomplete" or "missing"."""

    dataset: Dataset
    folder: Path
    state: str

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable names."""
        return {
            "name": self.dataset.name,
            "help": self.dataset.help,
            "kind": self.dataset.kind,
            "classes": self.dataset.classes,
            "published": [asdict(published) for published in self.dataset.published],
            "licence": self.dataset.licence,
            "home": self.dataset.home,
            "folder": str(self.folder),
            "state": self.state,
            "synthetic": bool(self.dataset.synthetic),
        }


def listed(settings: Settings) -> list[Listed]:
    """Every set, without reading any."""
    found = []
    for name in DATASETS:
        dataset = DATASETS.get(name)
        folder = settings.folders.get(name) or default_folder(dataset, settings.data)
        nearest = nearest_layout(dataset, folder)
        found.append(Listed(dataset, nearest.folder, nearest.state))
    return found


@dataclass(frozen=True)
class Compared:
    """A published size beside the one found."""

    split: str
    count: int
    where: str
    unit: Unit
    with_left_out: bool
    found: int

    def difference(self) -> str:
        """Both in words."""
        left_out = ", those left out among them," if self.with_left_out else ""
        return f"{self.split}: {self.found:,} {self.unit}{left_out or ','} {self.where} has {self.count:,}"


@dataclass(frozen=True)
class Checked:
    """What a set holds; `tokens` is empty for a set that does not count them."""

    source: Source
    fingerprint: str
    classes: tuple[str, ...]
    rows: Mapping[str, int]
    tokens: Mapping[str, int]
    class_rows: Mapping[str, Mapping[str, int]]
    published: tuple[Compared, ...]
    notes: tuple[str, ...]

    def differences(self) -> list[str]:
        """Where the set is not what was published, in words."""
        told = [compared.difference() for compared in self.published if compared.found != compared.count]
        expected = self.source.dataset.classes
        if expected and len(self.classes) != expected and not self.source.synthetic:
            told.append(f"{len(self.classes)} classes, published: {expected}")
        return told

    def to_json(self) -> dict[str, Any]:
        """Plain values under stable names."""
        return {
            "name": self.source.name,
            "kind": self.source.dataset.kind,
            "synthetic": self.source.synthetic,
            "folder": str(self.source.folder),
            "files": list(self.source.layout.files),
            "fingerprint": self.fingerprint,
            "classes": list(self.classes),
            "rows": dict(self.rows),
            "tokens": dict(self.tokens),
            "class_rows": {split: dict(rows) for split, rows in self.class_rows.items()},
            "published": [asdict(compared) for compared in self.published],
            "differences": self.differences(),
            "notes": list(self.notes),
        }


def check(source: Source, decode: bool = True, progress: Callable[[int], Callable[[], None]] | None = None) -> Checked:
    """Read all of a set.

    Args:
        source: the files, from `locate`.
        decode: also decode every image that lies in a file of its own.
        progress: gets the number of rows, and returns what is called after each of them.

    Raises:
        InputError: a file is damaged or a row does not parse; the message says where.
    """
    data = read_any(source)
    counts = _counts(data)
    if decode:
        data.verify(progress(sum(counts["rows"].values())) if progress else lambda: None)
    compared, class_rows, fingerprint = _compared(source, data, counts), data.class_rows(), source.fingerprint()
    return Checked(
        source, fingerprint, data.classes, counts["rows"], counts["tokens"], class_rows, compared, data.notes
    )


def subset_notes(source: Source, data: Data) -> list[str]:
    """Where a set has clearly less than was published, in words that begin with `harness.task.SUBSET`.

    Copies of a set differ in some rows, and so do the sizes that are stated: a twentieth less is a part of the set.
    """
    compared = _compared(source, data, _counts(data))
    least: dict[tuple[str, str], Compared] = {}
    for one in compared:
        key = one.split, one.unit
        least[key] = min(one, least.get(key, one), key=lambda entry: entry.count)
    return [f"{SUBSET}{one.difference()}" for one in least.values() if one.found < 0.95 * one.count]


def _counts(data: Data) -> dict[Unit, Mapping[str, int]]:
    return {"rows": data.rows(), "tokens": data.tokens() if isinstance(data, CountsTokens) else {}}


def _compared(source: Source, data: Data, counts: Mapping[Unit, Mapping[str, int]]) -> tuple[Compared, ...]:
    """The published sizes beside those found; none for a generated set."""
    left_out = data.left_out if isinstance(data, LeavesOut) else {}
    published = () if source.synthetic else source.dataset.published
    # A dev split that nobody published was carved out of train.
    carved = not any(entry.split == "dev" for entry in published)
    return tuple(
        Compared(**asdict(entry), found=_found(entry, counts[entry.unit], left_out.get(entry.unit, {}), carved))
        for entry in published
    )


def _found(entry: Published, counts: Mapping[str, int], left_out: Mapping[str, int], carved: bool) -> int:
    splits = counts if entry.split == "all" else {entry.split, *(["dev"] if carved and entry.split == "train" else [])}
    more = left_out if entry.with_left_out else {}
    return sum(counts[split] + more.get(split, 0) for split in splits)
