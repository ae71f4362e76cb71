"""Meshes from Wavefront .obj files."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from tasks.data.lines import read_lines


@dataclass(frozen=True, eq=False)
class Wavefront:
    """What an .obj file holds of a mesh, textures and materials left out.

    Attributes:
        vertices: (V, 3).
        faces: by group, triangles (F, 3) of vertex numbers from 0; polygons are cut into fans. "" before any group.
    """

    vertices: NDArray[np.float64]
    faces: dict[str, NDArray[np.int64]]


def read_wavefront(path: Path) -> Wavefront:
    """Vertices, faces and groups of a file.

    Raises:
        InputError: the file cannot be read, or a line of a vertex or a face is not as it should be; says which.
    """
    vertices: list[list[float]] = []
    faces: dict[str, list[tuple[int, int, int]]] = {}
    last, group = "", ""
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
                # From 1; those below 0 count back from the last vertex so far.
                places = [corner - 1 if corner > 0 else len(vertices) + corner for corner in corners]
                if len(set(places)) < max(3, len(places)) or 0 in corners or min(places) < 0:
                    raise ValueError
                fan = [(places[0], here, after) for here, after in pairwise(places[1:])]
                faces.setdefault(group, []).extend(fan)
                last = f"{path}:{number}" if max(places) >= len(vertices) else last
        except ValueError:
            expected = "v X Y Z" if kind == "v" else "f with the numbers of three or more different vertices"
            raise InputError(f"{path}:{number}: {' '.join(line.split())[:60]}: expected {expected}") from None
    if not vertices or not faces:
        raise InputError(f"{path}: no mesh: expected lines v X Y Z and f A B C")
    triangles = {name: np.array(found, np.int64) for name, found in faces.items()}
    if max(found.max() for found in triangles.values()) >= len(vertices):
        raise InputError(f"{last}: a face beyond the last of {len(vertices)} vertices")
    return Wavefront(np.array(vertices), triangles)


def check_closed(faces: NDArray[np.int64], count: int, where: str) -> None:
    """See whether triangles (F, 3) on vertices 0 … count − 1 are one closed surface.

    Raises:
        InputError: it has a hole, an edge with more than two faces, parts that do not hang together, or a vertex in no
            face; says how many.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    edges = np.sort(np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]), axis=1)
    edges, times = np.unique(edges, axis=0, return_counts=True)
    expected = "expected one closed surface"
    if (times == 1).any():
        raise InputError(f"{where}: the mesh has holes: {(times == 1).sum()} edges with one face: {expected}")
    if (times > 2).any():
        raise InputError(f"{where}: the mesh has {(times > 2).sum()} edges with more than two faces: {expected}")
    lonely = count - len(np.unique(faces))
    if lonely:
        raise InputError(f"{where}: {lonely} vertices are in no face: {expected}")
    graph = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count))
    parts = connected_components(graph, directed=False, return_labels=False)
    if parts > 1:
        raise InputError(f"{where}: the mesh has {parts} parts that do not hang together: {expected}")
