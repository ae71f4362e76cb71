"""Seeded, stratified splits, the same on every machine.

The default seed is independent of a trial's seed, so that all trials are tested on the same rows. NumPy's
`RandomState` is used because its stream is frozen (NEP 19); the newer generators do not guarantee theirs.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.classification import Labels, Rows
from dropbench.tasks.data.dataset import SPLIT_SEED

SPLITS: tuple[Split, ...] = ("train", "dev", "test")


def stratified(labels: Labels, percents: Sequence[int], seed: int = SPLIT_SEED) -> list[Rows]:
    """Split rows so that every class is split in the same ratio, to within one row; return each part's row numbers.

    `labels` (N,) counts classes from 0, and the shares of the parts sum to 100. Row numbers are ascending. Every row is
    in exactly one part, and the split of a class does not depend on the rows of other classes.
    """
    if sum(percents) != 100:
        raise ValueError(f"{percents} do not sum to 100")
    parts: list[list[Rows]] = [[] for _ in percents]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        shuffled = np.random.RandomState([seed, int(label)]).permutation(rows)
        start = taken = 0
        for part, percent in zip(parts, percents, strict=True):
            taken += percent
            # In integers, because the rounding of floats could differ between machines.
            end = (len(rows) * taken + 50) // 100
            part.append(shuffled[start:end])
            start = end
    return [np.sort(np.concatenate(part or [np.empty(0, np.int64)])).astype(np.int64) for part in parts]


def three_splits(
    given: Mapping[Split, Any],
    percent: Mapping[Any, int] = {},
    groups: Mapping[Split, Sequence[str]] = {},
    whole: str = "the published train",
    seed: int = SPLIT_SEED,
) -> tuple[tuple[Any, Any, Any], str]:
    """Return train, dev and test, those that are not given carved from train (default: 10 % each), and a note on that.

    Rows are split by `stratified`; those without labels are of one class. If `groups` has a name for each row of each
    split, groups are split instead, by the labels of their first rows; raises InputError for one in two given splits.
    """
    split_of: dict[str, Split] = {}
    for split, names in groups.items():
        for name in names:
            if split_of.setdefault(name, split) != split:
                raise InputError(f"group '{name[:40]}' is in {split_of[name]} and {split}: move it, or drop `group`")
    splits, note = dict(given), ""
    if shares := {split: percent.get(split, 10) for split in SPLITS[1:] if split not in given}:
        train, rest = given["train"], 100 - sum(shares.values())
        labels = getattr(train, "labels", np.zeros(len(train), np.int64))
        keys = groups["train"] if groups else np.arange(len(labels))
        _, first_rows, numbers = np.unique(keys, return_index=True, return_inverse=True)
        parts = stratified(labels[first_rows], (rest, *shares.values()), seed)
        if groups and not all(map(len, parts)):
            few = f"{count_of(len(first_rows), 'group')} in train: too few for {', '.join(['train', *shares])}"
            raise InputError(f"{few}: use more groups, give files for the other splits, or drop `group`")
        rows = (np.flatnonzero(np.isin(numbers, part)) for part in parts)
        splits |= {split: train.take(next(rows)) for split in SPLITS if split == "train" or split in shares}
        how = "whole groups, " if groups else "stratified, " if labels.any() else ""
        note = "".join(f"{split} is {share} %" for split, share in shares.items())
        if len(shares) > 1:
            note = ", ".join(f"{share} % {split}" for split, share in {"train": rest, **shares}.items())
        note += f" of {whole} ({how}seed {seed})"
    return (splits["train"], splits["dev"], splits["test"]), note


def overlap_notes(splits: Iterable[Iterable[Hashable]]) -> Iterator[str]:
    """Yield a note on the rows of dev that are in train, too, and one on those of test in train or dev."""
    seen: set[int] = set()
    for split, keys in zip(SPLITS, splits, strict=True):
        hashes = [*map(hash, keys)]
        if count := sum(value in seen for value in hashes):
            earlier = "train or dev" if split == "test" else "train"
            yield f"duplicates: {count_of(count, 'row')} of {split} {'is' if count == 1 else 'are'} also in {earlier}"
        seen.update(hashes)
