"""Outlines of boxes and meshes, as figures draw them over images (`harness.task.Mark`)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Line = NDArray[np.float64]

_BREAK = np.full((1, 2), np.nan)


def box_line(corners: Sequence[float]) -> Line:
    """Left, top, right, bottom → once around it (5, 2)."""
    left, top, right, bottom = (float(corner) for corner in corners)
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom], [left, top]])


def joined_boxes(one: Sequence[float], other: Sequence[float]) -> Line:
    """Two boxes (left, top, right, bottom) and a line between their middles."""
    around = [box_line(one), box_line(other)]
    middles = np.stack([(line[0] + line[2]) / 2 for line in around])
    return np.concatenate([around[0], _BREAK, around[1], _BREAK, middles])


def mesh_line(points: NDArray[np.float64], faces: NDArray[np.int64]) -> Line:
    """Every edge of a mesh of points (V, 2) and triangles (F, 3), once."""
    pairs = np.concatenate([faces[:, [first, second]] for first, second in (*pairwise(range(3)), (2, 0))])
    edges = np.unique(np.sort(pairs, axis=1), axis=0)
    broken: Line = np.concatenate([points[edges], np.broadcast_to(_BREAK, (len(edges), 1, 2))], axis=1).reshape(-1, 2)
    return broken
