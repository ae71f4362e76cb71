"""Seeded, stratified splits, the same on every machine and for every trial.

The seed is independent of a trial's seed, so that all trials are tested on the same rows. NumPy's `RandomState` is used
because its stream is frozen (NEP 19); the newer generators do not guarantee theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.data.classification import Labels, Rows, S

SPLIT_SEED = 2019


def stratified(labels: Labels, percents: Sequence[int]) -> list[Rows]:
    """Split rows so that every class is split in the same ratio, to within one row; return each part's row numbers.

    `labels` (N,) counts classes from 0, and the shares of the parts sum to 100. Row numbers are ascending. Every row is
    in exactly one part, and the split of a class does not depend on the rows of other classes.
    """
    if sum(percents) != 100:
        raise ValueError(f"{percents} do not sum to 100")
    parts: list[list[Rows]] = [[] for _ in percents]
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        shuffled = np.random.RandomState([SPLIT_SEED, int(label)]).permutation(rows)
        start = taken = 0
        for part, percent in zip(parts, percents, strict=True):
            taken += percent
            # In integers, because the rounding of floats could differ between machines.
            end = (len(rows) * taken + 50) // 100
            part.append(shuffled[start:end])
            start = end
    return [np.sort(np.concatenate(part or [np.empty(0, np.int64)])).astype(np.int64) for part in parts]


def carve_dev(train: S) -> tuple[S, S]:
    """Split the train rows of a set that was published without dev into 90 % train and 10 % dev."""
    train_rows, dev_rows = stratified(train.labels, (90, 10))
    return train.take(train_rows), train.take(dev_rows)


def split_note(percents: str) -> str:
    """Return the note on a split that DropBench has made."""
    return f"{percents} (stratified, seed {SPLIT_SEED})"
