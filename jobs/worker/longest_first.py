"""The order of a worker's trials: the longest first, so that workers that share them end at about the same time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path


class LongestFirst:
    """An iterator over trials: first one of each kind, then those of the kind that takes longest (Graham 1969, LPT).

    The duration of a kind is the longest recorded, as trials that fail or are resumed are short. Trials of a kind, and
    kinds without a duration, keep their order.
    """

    def __init__(self, paths: Sequence[Path], kinds: Sequence[str]) -> None:
        """Plan trials with these paths; `kinds` are in the same order, or empty if all are of one kind."""
        self._kinds = dict(zip(paths, kinds or [""] * len(paths), strict=True))
        self._seconds: dict[str, float] = {}
        self._pending: dict[str, deque[tuple[int, Path]]] = {}
        for number, (path, kind) in enumerate(self._kinds.items()):
            self._pending.setdefault(kind, deque()).append((number, path))

    def __iter__(self) -> Iterator[Path]:
        while self._pending:
            kind = min(self._pending, key=self._rank)
            _, path = self._pending[kind].popleft()
            if not self._pending[kind]:
                del self._pending[kind]
            yield path

    def record(self, path: Path, seconds: float) -> None:
        """Record how long the trial with this path took."""
        kind = self._kinds[path]
        self._seconds[kind] = max(seconds, self._seconds.get(kind, 0.0))

    def _rank(self, kind: str) -> tuple[float, int]:
        return -self._seconds.get(kind, math.inf), self._pending[kind][0][0]
