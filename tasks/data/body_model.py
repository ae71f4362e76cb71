"""What METRO knows of bodies: the template, its coarser meshes, and where joints are in it.

SMPL's files are bound to a licence and never shipped: they lie in the user's folder, converted to plain arrays
(docs/data.md). Without them a free template does: any closed mesh in an .obj file, from which coarse meshes are made by
decimation and joints by construction.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fast_simplification
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls
from scipy.sparse import coo_array, csr_array
from scipy.spatial import KDTree

from harness.errors import InputError
from tasks.data.wavefront import Wavefront, check_closed, read_wavefront

Points = NDArray[np.float64]

JOINTS = {
    "right ankle": "joint-r-ankle", "right knee": "joint-r-knee", "right hip": "joint-r-upper-leg",
    "left hip": "joint-l-upper-leg", "left knee": "joint-l-knee", "left ankle": "joint-l-ankle",
    "right wrist": "joint-r-hand", "right elbow": "joint-r-elbow", "right shoulder": "joint-r-shoulder",
    "left shoulder": "joint-l-shoulder", "left elbow": "joint-l-elbow", "left wrist": "joint-l-hand",
    "neck": "joint-neck", "head": "joint-head-2",
}  # fmt: skip
"""METRO's joints in its order, and the groups of a mesh by MakeHuman that stand around each."""
HIPS = (2, 3)
H36M_JOINTS = (3, 2, 1, 4, 5, 6, 16, 15, 14, 11, 12, 13, 8, 10)
"""Rows of the 17 joints of Human3.6M that these are; row 0 is the pelvis."""
SMPL_VERTICES = 6890
SMPL_FILES = {
    "smpl.npz": "SMPL's template and faces, from https://smpl.is.tue.mpg.de",
    "J_regressor_h36m_correct.npy": "the regressor of joints, from https://github.com/microsoft/MeshTransformer",
    "sampling.npz": "mesh_downsampling.npz as plain arrays, from https://github.com/microsoft/MeshTransformer",
}
FREE_FILE = "template.obj"
LEAST = 128
"""Vertices, for a mesh a sixteenth as fine to be one."""


@dataclass(frozen=True, eq=False)
class BodyModel:
    """A template mesh, and matrices that belong to it.

    Attributes:
        name: what it is, for notes.
        template: (V, 3), the body at rest, in metres.
        faces: (F, 3).
        regressor: (J, V): joints are these means of vertices.
        pelvis: (V,): so is the place around which meshes are given.
        root: numbers of the joints whose mean is the place around which joints are given: the hips.
        down: matrices (M, V) and (C, M) to the meshes of about a quarter and a sixteenth of the vertices.
        joints: names.
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
        """Vertices of the coarsest mesh, of the one between, of the full one."""
        return self.down[1].shape[0], self.down[0].shape[0], len(self.template)

    def coarser(self, vertices: Points) -> tuple[Points, Points]:
        """Meshes (V, 3) → the coarsest one (C, 3), and the one between (M, 3)."""
        middle = self.down[0] @ vertices
        return self.down[1] @ middle, middle

    def tokens(self) -> Points:
        """(J + C, 3): joints and coarsest mesh of the template, around the pelvis.

        They are upside down: templates stand upright, and the second axis of a camera points down. METRO does the same.
        """
        found = np.concatenate([self.regressor @ self.template, self.coarser(self.template)[0]])
        turned: Points = (found - self.pelvis @ self.template) * np.array([1.0, -1.0, -1.0])
        return turned


def read_body_model(folder: Path) -> BodyModel:
    """The body model in a folder: SMPL's converted files, or a free template.

    Raises:
        InputError: there is neither, or what there is is damaged or of another topology; says which file.
    """
    if (folder / FREE_FILE).is_file():
        return free_body_model(folder / FREE_FILE)
    missing = [f"{name} ({what})" for name, what in SMPL_FILES.items() if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"{folder}: no body model: expected {'; '.join(missing)}, converted as docs/data.md says; or a free "
            f"template mesh as {FREE_FILE}"
        )
    return _smpl(folder)


def _smpl(folder: Path) -> BodyModel:
    model, regressor, sampling = (folder / name for name in SMPL_FILES)
    parts, levels = _arrays(model, "v_template", "f"), _arrays(sampling, "down0", "down1")
    template, faces = _shaped(model, "v_template", parts["v_template"], (SMPL_VERTICES, 3)), parts["f"]
    if faces.ndim != 2 or faces.shape[1] != 3 or faces.min() < 0 or faces.max() >= SMPL_VERTICES:
        raise InputError(f"{model}: f of shape {faces.shape}: expected triangles of vertices 0 to {SMPL_VERTICES - 1}")
    faces = faces.astype(np.int64)
    check_closed(faces, SMPL_VERTICES, str(model))
    joints = _shaped(regressor, "the regressor", _array(regressor), (17, SMPL_VERTICES))
    middle = _matrix(sampling, "down0", levels["down0"], SMPL_VERTICES)
    coarse = _matrix(sampling, "down1", levels["down1"], middle.shape[0])
    return BodyModel(
        "SMPL", template, faces, joints[list(H36M_JOINTS)], joints[0], HIPS, (middle, coarse), tuple(JOINTS)
    )


def free_body_model(path: Path) -> BodyModel:
    """A body model from a mesh: the group "body" where the file has one, else all but groups of joints and helpers.

    Raises:
        InputError: the file is damaged, the mesh is not closed or too coarse.
    """
    found = read_wavefront(path)
    kept = [name for name in found.faces if not name.startswith(("joint-", "helper-"))]
    names = ["body"] if "body" in found.faces else kept
    if not names:
        raise InputError(f"{path}: only groups of joints and helpers: expected the faces of a body")
    faces = np.concatenate([found.faces[name] for name in names])
    used, inverse = np.unique(faces, return_inverse=True)
    faces, template = inverse.reshape(-1, 3).astype(np.int64), found.vertices[used]
    if len(template) < LEAST:
        raise InputError(f"{path}: {len(template)} vertices: expected {LEAST} at least")
    check_closed(faces, len(template), str(path))
    first, coarser, fewer = decimated(template, faces, path)
    second, _, _ = decimated(coarser, fewer, path)
    regressor, names_of_joints = _joints(found, template)
    root = HIPS if names_of_joints == tuple(JOINTS) else tuple(range(len(regressor)))
    pelvis = regressor[list(root)].mean(axis=0)
    return BodyModel(f"free template of {len(template)} vertices", template, faces, regressor, pelvis, root,
                     (first, second), names_of_joints)  # fmt: skip


def decimated(vertices: Points, faces: NDArray[np.int64], where: Path) -> tuple[csr_array, Points, NDArray[np.int64]]:
    """A mesh of a quarter of the vertices, by quadric error metrics (Garland and Heckbert 1997).

    Returns:
        the matrix (M, V) that makes each vertex the mean of those that were drawn together in it; the mesh.

    Raises:
        InputError: the mesh does not let itself be made coarser.
    """
    wanted = -(-len(vertices) // 4)
    # A closed surface with h handles has 2 (V + 2h − 2) triangles, fine or coarse.
    target = len(faces) - 2 * (len(vertices) - wanted)
    points, triangles = vertices.astype(np.float32), faces.astype(np.int32)
    *_, collapses = fast_simplification.simplify(points, triangles, target_count=target, return_collapses=True)
    _, fewer, places = fast_simplification.replay_simplification(points, triangles, collapses)
    count = int(places.max()) + 1
    if not wanted <= count <= 1.1 * wanted + 4:
        raise InputError(f"{where}: a mesh of {len(vertices)} vertices became one of {count}: expected {wanted}")
    together = np.bincount(places, minlength=count)
    entries = (1 / together[places], (places, np.arange(len(vertices))))
    matrix = csr_array(coo_array(entries, shape=(count, len(vertices))))
    return matrix, matrix @ vertices, fewer.astype(np.int64)


def _joints(found: Wavefront, template: Points) -> tuple[Points, tuple[str, ...]]:
    """A regressor, and names: from groups that stand around joints; else joints spread over the body."""
    tree = KDTree(template)
    regressor = np.zeros((len(JOINTS), len(template)))
    if all(group in found.faces for group in JOINTS.values()):
        for row, group in zip(regressor, JOINTS.values(), strict=True):
            place = found.vertices[np.unique(found.faces[group])].mean(axis=0)
            _surround(row, place, tree)
        return regressor, tuple(JOINTS)
    chosen = [int(np.argmax(np.linalg.norm(template - template.mean(axis=0), axis=1)))]
    nearest = np.full(len(template), np.inf)
    for row in regressor:
        _, around = tree.query(template[chosen[-1]], k=max(4, len(template) // 64))
        row[around] = 1 / len(around)
        nearest = np.minimum(nearest, np.linalg.norm(template - template[chosen[-1]], axis=1))
        chosen.append(int(nearest.argmax()))
    return regressor, tuple(f"joint {number}" for number in range(len(regressor)))


def _surround(row: Points, place: Points, tree: KDTree) -> None:
    """Write weights, none negative and 1 in sum, by which the mean of vertices around a place is that place."""
    size = np.ptp(tree.data, axis=0).max()
    count = 32
    while True:
        _, around = tree.query(place, k=min(count, tree.n))
        offsets = (tree.data[around] - place) / size
        weights, left = nnls(np.vstack([offsets.T, np.full(len(around), 1.0)]), np.array([0.0, 0.0, 0.0, 1.0]))
        if left < 1e-6 or count >= tree.n:
            row[around] = weights / weights.sum()
            return
        count *= 2


def _arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    try:
        with np.load(path, allow_pickle=False) as content:
            absent = [name for name in names if name not in content]
            if absent:
                raise InputError(f"{path}: no array {absent[0]}: expected {', '.join(names)} (docs/data.md)")
            return {name: content[name] for name in names}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise _damaged(path, error) from None


def _array(path: Path) -> NDArray[Any]:
    try:
        content = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, error) from None
    if not isinstance(content, np.ndarray):
        raise InputError(f"{path}: several arrays: expected one")
    return content


def _damaged(path: Path, error: Exception) -> InputError:
    told = " ".join(str(error).split())[:80] or type(error).__name__
    return InputError(f"{path}: expected plain arrays, without pickle (docs/data.md says how to convert): {told}")


def _shaped(path: Path, name: str, values: NDArray[Any], shape: tuple[int, ...]) -> Points:
    if values.shape != shape or values.dtype.kind != "f" or not np.isfinite(values).all():
        raise InputError(f"{path}: {name} of shape {values.shape}: expected numbers of shape {shape}")
    return values.astype(np.float64)


def _matrix(path: Path, name: str, entries: NDArray[Any], columns: int) -> csr_array:
    """A matrix from rows (row, column, value)."""
    if entries.ndim != 2 or entries.shape[1] != 3 or not len(entries) or not np.isfinite(entries).all():
        raise InputError(f"{path}: {name} of shape {entries.shape}: expected rows of row, column and value")
    places = entries[:, :2].astype(np.int64)
    if places.min() < 0 or places[:, 1].max() >= columns or places[:, 0].max() >= columns:
        raise InputError(f"{path}: {name}: a place outside of a matrix with {columns} columns")
    return csr_array(coo_array((entries[:, 2], places.T), shape=(int(places[:, 0].max()) + 1, columns)))
