"""Reader of meshes in Wavefront .obj files."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from dropbench.harness.errors import InputError
from dropbench.tasks.data.lines import read_lines


@dataclass(frozen=True, eq=False)
class Wavefront:
    """The mesh of an .obj file, without textures and materials.

    Attributes:
        vertices: (V, 3).
        faces: group → triangles (F, 3) of vertex indices; polygons are split into fans. "" is the group before any.
    """

    vertices: NDArray[np.float64]
    faces: dict[str, NDArray[np.int64]]


def read_wavefront(path: Path) -> Wavefront:
    """Read the vertices, faces and groups of a file; raise InputError, which names the line, if it is invalid."""
    vertices: list[list[float]] = []
    faces: dict[str, list[tuple[int, int, int]]] = {}
    out_of_range_at, group = "", ""
    for number, line in enumerate(read_lines(path), 1):
        kind, *words = line.split() or [""]
        try:
            if kind == "v":
                vertices.append([float(word) for word in words[:3]])
                if len(vertices[-1]) != 3 or not np.isfinite(vertices[-1]).all():
                    raise ValueError
            elif kind == "g":
                group = words[0] if words else ""
            elif kind == "f":
                corners = [int(word.split("/")[0]) for word in words]
                # Numbers start at 1; negative ones count back from the last vertex so far.
                indices = [corner - 1 if corner > 0 else len(vertices) + corner for corner in corners]
                if len(set(indices)) < max(3, len(indices)) or 0 in corners or min(indices) < 0:
                    raise ValueError
                fan = [(indices[0], second, third) for second, third in pairwise(indices[1:])]
                faces.setdefault(group, []).extend(fan)
                out_of_range_at = f"{path}:{number}" if max(indices) >= len(vertices) else out_of_range_at
        except ValueError:
            expected = "v X Y Z" if kind == "v" else "f and the numbers of three or more distinct vertices"
            raise InputError(f"{path}:{number}: {' '.join(line.split())[:60]}: expected {expected}") from None
    if not vertices or not faces:
        raise InputError(f"{path}: no mesh: expected lines v X Y Z and f A B C")
    triangles = {name: np.array(corners, np.int64) for name, corners in faces.items()}
    if max(corners.max() for corners in triangles.values()) >= len(vertices):
        raise InputError(f"{out_of_range_at}: face with a vertex number above {len(vertices)}, the number of vertices")
    return Wavefront(np.array(vertices), triangles)


def check_closed(faces: NDArray[np.int64], count: int, location: str) -> None:
    """Raise InputError unless triangles (F, 3) on vertices 0 … count − 1 are one closed surface.

    The mesh may have no hole, no edge with more than two faces, no unused vertex, and one connected part only.
    """
    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), axis=1)
    edges, counts = np.unique(edges, axis=0, return_counts=True)
    expected = "expected one closed surface"
    if (counts == 1).any():
        raise InputError(f"{location}: the mesh has holes: {(counts == 1).sum()} edges with one face: {expected}")
    if (counts > 2).any():
        raise InputError(f"{location}: the mesh has {(counts > 2).sum()} edges with more than two faces: {expected}")
    unused = count - len(np.unique(faces))
    if unused:
        raise InputError(f"{location}: the mesh has {unused} vertices in no face: {expected}")
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count))
    num_parts = connected_components(graph, directed=False, return_labels=False)
    if num_parts > 1:
        raise InputError(f"{location}: the mesh has {num_parts} disconnected parts: {expected}")
