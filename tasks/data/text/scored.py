"""Texts, or pairs of texts, with a score each: the data of regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError
from dropbench.tasks.data.classification import RowSplit
from dropbench.tasks.data.read import ThreeSplits


@dataclass(frozen=True, eq=False)
class ScoredSplit(RowSplit):
    """Rows of one text or two, with single spaces, and their scores (N,)."""

    texts: tuple[tuple[str, ...], ...]
    scores: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ScoredData(ThreeSplits[ScoredSplit]):
    """Texts, or pairs of texts, with a score each; attributes as in `Data`.

    Raises:
        InputError: a split is empty, or all scores of train are the same.
    """

    kind: ClassVar[str] = "text-regression"

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.ptp(self.train.scores) == 0:
            raise InputError(
                f"data '{self.name}': all scores of train are {self.train.scores[0]}: expected two or more"
            )


def finite_number(text: str, where: str) -> float:
    """Return a finite number; raise InputError, which begins with `where`, for any other text."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{where} '{text[:40]}': expected a finite number")
    return value
