"""Outlines of boxes and meshes for `dropbench.harness.trials.sample_view.Overlay`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Line = NDArray[np.float64]

_BREAK = np.full((1, 2), np.nan)


def box_line(corners: Sequence[float]) -> Line:
    """Return the closed outline (5, 2) of a box (left, top, right, bottom)."""
    left, top, right, bottom = (float(corner) for corner in corners)
    return np.array([[left, top], [right, top], [right, bottom], [left, bottom], [left, top]])


def joined_boxes(first: Sequence[float], second: Sequence[float]) -> Line:
    """Return the outlines of two boxes (left, top, right, bottom) and the line between their centers."""
    outlines = [box_line(first), box_line(second)]
    centers = np.stack([(line[0] + line[2]) / 2 for line in outlines])
    return np.concatenate([outlines[0], _BREAK, outlines[1], _BREAK, centers])


def mesh_line(points: NDArray[np.float64], faces: NDArray[np.int64]) -> Line:
    """Return every edge of a mesh of points (V, 2) and triangles (F, 3) once."""
    pairs = np.concatenate([faces[:, [start, end]] for start, end in (*pairwise(range(3)), (2, 0))])
    edges = np.unique(np.sort(pairs, axis=1), axis=0)
    line: Line = np.concatenate([points[edges], np.broadcast_to(_BREAK, (len(edges), 1, 2))], axis=1).reshape(-1, 2)
    return line
