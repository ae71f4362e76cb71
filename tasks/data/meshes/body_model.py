"""METRO's body model: the template, its coarser meshes, and the regressor of its joints.

SMPL's files require a license and are never shipped: users convert them to plain arrays (docs/data.md). A free template
can replace them: any closed mesh in an .obj file, whose coarse meshes come from decimation.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import fast_simplification
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.sparse import coo_array, csr_array
from scipy.spatial import KDTree

from dropbench.harness.errors import InputError
from dropbench.tasks.data.meshes.wavefront import Wavefront, check_closed, read_wavefront

Points = NDArray[np.float64]

JOINTS = {
    "right ankle": "joint-r-ankle", "right knee": "joint-r-knee", "right hip": "joint-r-upper-leg",
    "left hip": "joint-l-upper-leg", "left knee": "joint-l-knee", "left ankle": "joint-l-ankle",
    "right wrist": "joint-r-hand", "right elbow": "joint-r-elbow", "right shoulder": "joint-r-shoulder",
    "left shoulder": "joint-l-shoulder", "left elbow": "joint-l-elbow", "left wrist": "joint-l-hand",
    "neck": "joint-neck", "head": "joint-head-2",
}  # fmt: skip
"""METRO's joints in its order, and the groups of MakeHuman's mesh that surround each."""
HIPS = (2, 3)
H36M_JOINTS = (3, 2, 1, 4, 5, 6, 16, 15, 14, 11, 12, 13, 8, 10)
"""Rows of these joints among the 17 of Human3.6M; row 0 is the pelvis."""
SMPL_VERTICES = 6890
SMPL_FILES = {
    "smpl.npz": "SMPL's template and faces, from https://smpl.is.tue.mpg.de",
    "J_regressor_h36m_correct.npy": "the regressor of joints, from https://github.com/microsoft/MeshTransformer",
    "sampling.npz": "mesh_downsampling.npz as plain arrays, from https://github.com/microsoft/MeshTransformer",
}
FREE_FILE = "template.obj"
MIN_VERTICES = 128
"""Minimum number of vertices of a template, so that a sixteenth of them still form a mesh."""


@dataclass(frozen=True, eq=False)
class BodyModel:
    """A template mesh and its matrices.

    Attributes:
        name: name for notes.
        template: (V, 3), the body at rest, in meters.
        faces: (F, 3).
        regressor: (J, V), weights of the vertices in each joint.
        pelvis: (V,), weights of the vertices in the origin of meshes.
        root: indices of the joints whose mean is the origin of joints: the hips.
        down: matrices (M, V) and (C, M) to the meshes with about a quarter and a sixteenth of the vertices.
        joints: names of the joints.
    """

    name: str
    template: Points
    faces: NDArray[np.int64]
    regressor: Points
    pelvis: Points
    root: tuple[int, ...]
    down: tuple[csr_array, csr_array]
    joints: tuple[str, ...]

    @property
    def levels(self) -> tuple[int, int, int]:
        """Number of vertices of the coarse, the middle and the full mesh."""
        return self.down[1].shape[0], self.down[0].shape[0], len(self.template)

    def downsample(self, vertices: Points) -> tuple[Points, Points]:
        """Return the coarse mesh (C, 3) and the middle mesh (M, 3) of a full mesh (V, 3)."""
        middle = self.down[0] @ vertices
        return self.down[1] @ middle, middle

    def tokens(self) -> Points:
        """Return the joints and the coarse mesh of the template, centered on the pelvis, (J + C, 3).

        They are upside down, as in METRO: the second axis of a camera points down.
        """
        points = np.concatenate([self.regressor @ self.template, self.downsample(self.template)[0]])
        return cast(Points, (points - self.pelvis @ self.template) * np.array([1.0, -1.0, -1.0]))


def read_body_model(folder: Path) -> BodyModel:
    """Read the body model of a folder, SMPL or a free template; raise InputError if it is missing or damaged."""
    if (folder / FREE_FILE).is_file():
        return free_body_model(folder / FREE_FILE)
    missing = [f"{name} ({what})" for name, what in SMPL_FILES.items() if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"{folder}: no body model: expected {'; '.join(missing)}, converted as described in docs/data.md; "
            f"or a free template mesh as {FREE_FILE}"
        )
    return _smpl(folder)


def _smpl(folder: Path) -> BodyModel:
    model, regressor, sampling = (folder / name for name in SMPL_FILES)
    (template, faces), (down0, down1) = _arrays(model, "v_template", "f"), _arrays(sampling, "down0", "down1")
    template = _checked_array(model, "v_template", template, (SMPL_VERTICES, 3))
    if faces.ndim != 2 or faces.shape[1] != 3 or faces.min() < 0 or faces.max() >= SMPL_VERTICES:
        raise InputError(f"{model}: f of shape {faces.shape}: expected triangles of vertices 0 to {SMPL_VERTICES - 1}")
    faces = faces.astype(np.int64)
    check_closed(faces, SMPL_VERTICES, str(model))
    joints = _checked_array(regressor, "the regressor", _arrays(regressor)[0], (17, SMPL_VERTICES))
    middle = _sparse_matrix(sampling, "down0", down0, SMPL_VERTICES)
    coarse = _sparse_matrix(sampling, "down1", down1, middle.shape[0])
    return BodyModel(
        "SMPL", template, faces, joints[list(H36M_JOINTS)], joints[0], HIPS, (middle, coarse), tuple(JOINTS)
    )


def free_body_model(path: Path) -> BodyModel:
    """Build a body model from a mesh: the group "body" if the file has one, else all but joint and helper groups.

    Raises:
        InputError: the file is damaged, the mesh is not closed or too coarse.
    """
    mesh = read_wavefront(path)
    body_groups = [name for name in mesh.faces if not name.startswith(("joint-", "helper-"))]
    names = ["body"] if "body" in mesh.faces else body_groups
    if not names:
        raise InputError(f"{path}: only groups of joints and helpers: expected the faces of a body")
    faces = np.concatenate([mesh.faces[name] for name in names])
    used, inverse = np.unique(faces, return_inverse=True)
    faces, template = inverse.reshape(-1, 3).astype(np.int64), mesh.vertices[used]
    if len(template) < MIN_VERTICES:
        raise InputError(f"{path}: {len(template)} vertices: expected {MIN_VERTICES} at least")
    check_closed(faces, len(template), str(path))
    to_middle, middle, middle_faces = decimate(template, faces, path)
    to_coarse, _, _ = decimate(middle, middle_faces, path)
    regressor, joint_names = _joints(mesh, template)
    root = HIPS if joint_names == tuple(JOINTS) else tuple(range(len(regressor)))
    pelvis = regressor[list(root)].mean(axis=0)
    return BodyModel(f"free template of {len(template)} vertices", template, faces, regressor, pelvis, root,
                     (to_middle, to_coarse), joint_names)  # fmt: skip


def decimate(vertices: Points, faces: NDArray[np.int64], path: Path) -> tuple[csr_array, Points, NDArray[np.int64]]:
    """Reduce a mesh to a quarter of its vertices by quadric error metrics (Garland and Heckbert 1997).

    Returns:
        The matrix (M, V) by which each new vertex is the mean of the vertices merged into it; the new vertices (M, 3)
        and faces.

    Raises:
        InputError: the mesh cannot be reduced; `path` is its file.
    """
    target_vertices = -(-len(vertices) // 4)
    # A closed surface with h handles has 2 (V + 2h − 2) triangles, fine or coarse.
    target_faces = len(faces) - 2 * (len(vertices) - target_vertices)
    points, triangles = vertices.astype(np.float32), faces.astype(np.int32)
    *_, collapses = fast_simplification.simplify(points, triangles, target_count=target_faces, return_collapses=True)
    _, new_faces, merged_into = fast_simplification.replay_simplification(points, triangles, collapses)
    count = int(merged_into.max()) + 1
    if not target_vertices <= count <= 1.1 * target_vertices + 4:
        raise InputError(
            f"{path}: decimation of {len(vertices)} vertices resulted in {count}: expected {target_vertices}; "
            "use another mesh"
        )
    group_sizes = np.bincount(merged_into, minlength=count)
    entries = (1 / group_sizes[merged_into], (merged_into, np.arange(len(vertices))))
    matrix = csr_array(coo_array(entries, shape=(count, len(vertices))))
    return matrix, matrix @ vertices, new_faces.astype(np.int64)


def _joints(mesh: Wavefront, template: Points) -> tuple[Points, tuple[str, ...]]:
    """Return a regressor and names: of the joints that groups of the mesh surround, else of points spread over it."""
    tree = KDTree(template)
    regressor = np.zeros((len(JOINTS), len(template)))
    if all(group in mesh.faces for group in JOINTS.values()):
        for row, group in zip(regressor, JOINTS.values(), strict=True):
            joint = mesh.vertices[np.unique(mesh.faces[group])].mean(axis=0)
            _set_barycentric_weights(row, joint, tree)
        return regressor, tuple(JOINTS)
    centers = [int(np.argmax(np.linalg.norm(template - template.mean(axis=0), axis=1)))]
    distances = np.full(len(template), np.inf)
    for row in regressor:
        _, neighbors = tree.query(template[centers[-1]], k=max(4, len(template) // 64))
        row[neighbors] = 1 / len(neighbors)
        distances = np.minimum(distances, np.linalg.norm(template - template[centers[-1]], axis=1))
        centers.append(int(distances.argmax()))
    return regressor, tuple(f"joint {number}" for number in range(len(regressor)))


def _set_barycentric_weights(row: Points, point: Points, tree: KDTree) -> None:
    """Set nonnegative weights with sum 1 in `row`, by which the mean of the vertices around a point is that point."""
    size = np.ptp(tree.data, axis=0).max()
    count = 32
    while True:
        _, neighbors = tree.query(point, k=min(count, tree.n))
        offsets = (tree.data[neighbors] - point) / size
        weights, residual = nnls(np.vstack([offsets.T, np.full(len(neighbors), 1.0)]), np.array([0.0, 0.0, 0.0, 1.0]))
        if residual < 1e-6 or count >= tree.n:
            row[neighbors] = weights / weights.sum()
            return
        count *= 2


def _arrays(path: Path, *names: str) -> list[NDArray[Any]]:
    """Return the arrays of those names in an archive; without names, the one array of a file."""
    try:
        with path.open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if not names and not isinstance(content, np.ndarray):
                raise InputError(f"{path}: an archive of arrays: expected one array")
            missing = [name for name in names if name not in content]
            if missing:
                raise InputError(f"{path}: no array {missing[0]}: expected {', '.join(names)} (see docs/data.md)")
            return [content[name] for name in names] if names else [content]
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        message = " ".join(str(error).split())[:80] or type(error).__name__
        expected = "expected plain arrays without pickle; convert them as in docs/data.md"
        raise InputError(f"{path}: {message}: {expected}") from None


def _checked_array(path: Path, name: str, values: NDArray[Any], shape: tuple[int, ...]) -> Points:
    if values.shape != shape or values.dtype.kind != "f" or not np.isfinite(values).all():
        raise InputError(f"{path}: {name} of shape {values.shape}: expected numbers of shape {shape}")
    return values.astype(np.float64)


def _sparse_matrix(path: Path, name: str, entries: NDArray[Any], columns: int) -> csr_array:
    """Return the matrix of entries (row, column, value)."""
    if entries.ndim != 2 or entries.shape[1] != 3 or not len(entries) or not np.isfinite(entries).all():
        raise InputError(f"{path}: {name} of shape {entries.shape}: expected rows of row, column and value")
    indices = entries[:, :2].astype(np.int64)
    if indices.min() < 0 or indices[:, 1].max() >= columns or indices[:, 0].max() >= columns:
        raise InputError(f"{path}: {name}: index outside of a matrix with {columns} columns")
    return csr_array(coo_array((entries[:, 2], indices.T), shape=(int(indices[:, 0].max()) + 1, columns)))
