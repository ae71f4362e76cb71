"""Seeded, stratified splits, the same on every machine and for every trial.

The seed is no trial's seed: trials that differ in their seed are tested on the same rows. NumPy's `RandomState` is used
because its stream is frozen for all time (NEP 19), which the newer generators do not promise.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.data.classification import Labels, Rows, S

SPLIT_SEED = 2019


def stratified(labels: Labels, percents: Sequence[int]) -> list[Rows]:
    """Part rows so that every class is parted in the same ratio, to within one row.

    Args:
        labels: (N,) class of each row, from 0.
        percents: share of each part; they sum to 100.

    Returns:
        The row numbers of each part, ascending. No row is in two parts, none is lost, and rows of one class do not
        change how another class is parted.
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
            # Integers alone: a float's rounding could differ between machines.
            end = (len(rows) * taken + 50) // 100
            part.append(shuffled[start:end])
            start = end
    return [np.sort(np.concatenate(part or [np.empty(0, np.int64)])).astype(np.int64) for part in parts]


def carve_dev(train: S) -> tuple[S, S]:
    """Train and dev from a set that was published without dev: 90 % and 10 %."""
    kept, dev = stratified(train.labels, (90, 10))
    return train.take(kept), train.take(dev)


def noted(percents: str) -> str:
    """The note that goes with a split made here."""
    return f"{percents} (stratified, seed {SPLIT_SEED})"
