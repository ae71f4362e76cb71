"""Listing of all data sets, and a full check of one set against its published sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dropbench.harness.errors import count_of
from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import SUBSET
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.data.dataset import DATASETS, Dataset, Published, Unit
from dropbench.tasks.data.locate import Source, default_folder, locate, nearest_layout
from dropbench.tasks.data.read import Data, read_any

Counts = Mapping[Unit, Mapping[str, int]]
"""Unit → split → number."""


@dataclass(frozen=True)
class DatasetStatus:
    """A data set and the state of its files: "ready", "incomplete" or "missing"."""

    dataset: Dataset
    folder: Path
    state: str

    def to_json(self) -> dict[str, Any]:
        """Return plain values under stable names."""
        stated = {"kind", "classes", "help", "published", "licence", "home"}
        return {
            "name": self.dataset.name,
            "state": self.state,
            **self.dataset.model_dump(mode="json", include=stated),
            "folder": str(self.folder),
            "synthetic": bool(self.dataset.synthetic),
        }


def list_datasets(settings: Settings) -> list[DatasetStatus]:
    """Return the status of every data set. No data file is read."""
    statuses = []
    for name, dataset in DATASETS.working(DATASETS, DATASETS.get):
        folder = settings.folders.get(name) or default_folder(dataset, settings.data)
        match = nearest_layout(dataset, folder)
        statuses.append(DatasetStatus(dataset, match.folder, match.state))
    return statuses


class SizeComparison(Published, frozen=True):
    """A published size (`count`, stated in `where`) and the size of the files (`found`)."""

    found: int

    def difference(self) -> str:
        """Return a sentence that states both sizes."""
        left_out = ", those left out among them," if self.with_left_out else ""
        return f"{self.split}: {count_of(self.found, self.unit[:-1])}{left_out or ','} {self.where} has {self.count:,}"


@dataclass(frozen=True)
class CheckReport:
    """Content of a data set; `tokens` is empty for a set that does not count tokens."""

    source: Source
    fingerprint: str
    classes: tuple[str, ...]
    rows: Mapping[str, int]
    tokens: Mapping[str, int]
    class_rows: Mapping[str, Mapping[str, int]]
    published: tuple[SizeComparison, ...]
    notes: tuple[str, ...]

    def differences(self) -> list[str]:
        """Return a sentence for each published size that the set does not have."""
        sentences = [size.difference() for size in self.published if size.found != size.count]
        expected = self.source.dataset.classes
        if expected and len(self.classes) != expected and not self.source.synthetic:
            sentences.append(f"{count_of(len(self.classes), 'class', 'classes')}, published: {expected}")
        return sentences

    def to_json(self) -> dict[str, Any]:
        """Return plain values under stable names."""
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
            "published": [size.model_dump() for size in self.published],
            "differences": self.differences(),
            "notes": list(self.notes),
        }


def check(
    source: Source, decode: bool = True, progress: Callable[[int], Callable[[], None]] | None = None
) -> CheckReport:
    """Read a whole data set and compare it with its published sizes.

    Args:
        source: the files.
        decode: also decode every image that has a file of its own.
        progress: called with the number of rows; returns a function that is called after each row.

    Raises:
        InputError: a file is damaged or a row does not parse; the message names the file.
    """
    data = read_any(source)
    counts = _counts(data)
    if decode:
        data.verify(progress(sum(counts["rows"].values())) if progress else lambda: None)
    sizes, by_class, fingerprint = _compare_sizes(source, data, counts), data.class_rows(), source.fingerprint()
    return CheckReport(source, fingerprint, data.classes, counts["rows"], counts["tokens"], by_class, sizes, data.notes)


def require_readable(trial: Trial, settings: Settings) -> None:
    """Read the data of a trial if they are the user's own, once, so that no trial is queued on damaged files.

    Raises:
        InputError: as `check`, without decoding images.
    """
    name, key = trial.data.name, (trial.data, *sorted(trial.plugins.items()))
    if name not in DATASETS or key in _readable:
        return
    if DATASETS.entry(name).plugin or DATASETS.get(name).card:
        read_any(locate(name, settings.data, settings.folders))
    _readable.add(key)


_readable: set[tuple[Any, ...]] = set()


def subset_notes(source: Source, data: Data) -> list[str]:
    """Return notes on splits that are smaller than published, starting with `harness.trials.task.SUBSET` for subsets.

    Copies of a set differ by some rows, and so do the stated sizes: a split is a subset if more than 5 % is missing.
    """
    smallest: dict[tuple[str, str], SizeComparison] = {}
    for size in _compare_sizes(source, data, _counts(data)):
        key = size.split, size.unit
        smallest[key] = min(size, smallest.get(key, size), key=lambda stated: stated.count)
    short = [size for size in smallest.values() if size.found < size.count]
    return [
        f"{SUBSET if size.found < 0.95 * size.count else 'possibly cut short: '}{size.difference()}" for size in short
    ]


def _counts(data: Data) -> Counts:
    return {"rows": data.rows(), "tokens": getattr(data, "tokens", dict)()}


def _compare_sizes(source: Source, data: Data, counts: Counts) -> tuple[SizeComparison, ...]:
    """Return a comparison for every published size; none for a synthetic set."""
    left_out: Counts = getattr(data, "left_out", {})
    published = () if source.synthetic else source.dataset.published
    # Without a published dev split, the reader has carved dev out of train.
    carved = not any(size.split == "dev" for size in published)
    comparisons = []
    for size in published:
        rows, extra = counts[size.unit], left_out.get(size.unit, {}) if size.with_left_out else {}
        splits = rows if size.split == "all" else {size.split, *(["dev"] if carved and size.split == "train" else [])}
        count = sum(rows[split] + extra.get(split, 0) for split in splits)
        comparisons.append(SizeComparison(**size.model_dump(), found=count))
    return tuple(comparisons)
