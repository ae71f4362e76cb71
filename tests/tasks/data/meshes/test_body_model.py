"""Body models: a free template from any closed mesh, SMPL from converted files, and refused files."""

from __future__ import annotations

import math
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dropbench.harness.errors import InputError
from dropbench.tasks.data.meshes.body_model import (
    HIPS,
    JOINTS,
    SMPL_FILES,
    BodyModel,
    decimate,
    free_body_model,
    read_body_model,
)
from dropbench.tasks.data.meshes.wavefront import check_closed
from tests.damage import TouchesAFile
from tests.input_errors import one_line

ROUND, HIGH = 16, 12


def tube(round_: int = ROUND, high: int = HIGH) -> tuple[NDArray[np.float64], list[list[int]]]:
    """Return a closed tube: rings of vertices, quadrangles between them, and a fan at either end."""
    angle = 2 * np.pi * np.arange(round_) / round_
    rings = [[0.2 * np.cos(a), height, 0.2 * np.sin(a)] for height in np.linspace(0, 1.7, high) for a in angle]
    faces = [
        [ring * round_ + side, ring * round_ + (side + 1) % round_,
         (ring + 1) * round_ + (side + 1) % round_, (ring + 1) * round_ + side]
        for ring in range(high - 1) for side in range(round_)
    ]  # fmt: skip
    low, top = len(rings), len(rings) + 1
    last = (high - 1) * round_
    faces += [[side, low, (side + 1) % round_] for side in range(round_)]
    faces += [[last + side, last + (side + 1) % round_, top] for side in range(round_)]
    return np.array([*rings, [0, -0.05, 0], [0, 1.75, 0]]), faces


def write(path: Path, vertices: NDArray[np.float64], groups: dict[str, list[list[int]]]) -> Path:
    lines = [f"v {x} {y} {z}" for x, y, z in vertices.tolist()]
    for name, faces in groups.items():
        lines += [f"g {name}"] * bool(name) + ["f " + " ".join(f"{corner + 1}/1" for corner in face) for face in faces]
    path.write_text("# a mesh\n" + "\n".join(lines) + "\n")
    return path


def with_joints(path: Path) -> Path:
    """Write a tube with a small tetrahedron around each joint, where MakeHuman's meshes have cubes."""
    vertices, faces = tube()
    groups, points = {"body": faces}, [vertices]
    for number, group in enumerate(JOINTS.values()):
        joint = np.array([0.05 * np.cos(number), 0.1 + 0.1 * number, 0.05 * np.sin(number)])
        first = sum(map(len, points))
        points.append(joint + 0.01 * np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]))
        groups[group] = [[first, first + 1, first + 2], [first, first + 2, first + 3], [first, first + 1, first + 3]]
    return write(path, np.concatenate(points), groups)


def check_matrices(body: BodyModel) -> None:
    coarse, middle, full = body.levels
    assert full == len(body.template)
    assert (middle, coarse) == (math.ceil(full / 4), math.ceil(math.ceil(full / 4) / 4))
    for matrix in body.down:
        assert np.allclose(matrix.sum(axis=1), 1)
        assert matrix.data.min() > 0
        assert bool((np.bincount(matrix.indices) == 1).all())  # each vertex belongs to one
    assert np.allclose(body.regressor.sum(axis=1), 1)
    assert body.regressor.min() >= 0
    assert body.pelvis.sum() == pytest.approx(1)
    # Linear maps whose weights sum to 1 move with the body.
    moved = body.template + np.array([1.0, 2.0, 3.0])
    assert np.allclose(body.downsample(moved)[0], body.downsample(body.template)[0] + np.array([1.0, 2.0, 3.0]))
    size = np.ptp(body.template, axis=0).max()
    merged = (body.down[0] > 0).T @ body.downsample(body.template)[1]
    assert np.linalg.norm(merged - body.template, axis=1).max() < 0.3 * size


def test_joints_of_a_mesh_without_joint_groups_are_spread_over_it(tmp_path: Path) -> None:
    vertices, faces = tube()
    body = free_body_model(write(tmp_path / "template.obj", vertices, {"": faces}))
    check_matrices(body)
    assert body.regressor.shape == (14, len(vertices))
    assert body.root == tuple(range(14))
    joints = body.regressor @ body.template
    distances = np.linalg.norm(joints[:, None] - joints[None], axis=2) + 10 * np.eye(14)
    assert distances.min() > 0.1


def test_joints_are_the_centers_of_their_groups(tmp_path: Path) -> None:
    body = free_body_model(with_joints(tmp_path / "template.obj"))
    check_matrices(body)
    assert (body.joints, body.root) == (tuple(JOINTS), HIPS)
    joints = body.regressor @ body.template
    for number, joint in enumerate(joints):
        assert joint == pytest.approx([0.05 * np.cos(number), 0.1 + 0.1 * number, 0.05 * np.sin(number)], abs=1e-4)
    assert body.pelvis @ body.template == pytest.approx(joints[list(HIPS)].mean(axis=0))
    matrix, vertices, faces = decimate(body.template, body.faces, tmp_path)
    check_closed(faces, len(vertices), "coarser")
    assert (matrix != body.down[0]).nnz == 0
    tokens = body.tokens()
    assert tokens.shape == (14 + body.levels[0], 3)
    assert tokens[list(HIPS)].mean(axis=0) == pytest.approx([0, 0, 0], abs=1e-12)
    assert tokens[13, 1] < tokens[0, 1]  # the head above the ankle: the axis points down


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("hole", r"the mesh has holes: 4 edges with one face: expected one closed surface"),
        ("fin", r"has 1 edges with more than two faces|has holes"),
        ("two", r"the mesh has 2 disconnected parts"),
        ("coarse", r"98 vertices: expected 128 at least"),
        ("beyond", r"template.obj:\d+: face with a vertex number above 194"),
        ("nan", r"template.obj:2: v nan 0.0 0.0: expected v X Y Z"),
        ("word", r"template.obj:\d+: f 1 2 x: expected f and the numbers"),
        ("none", r"no mesh: expected lines v X Y Z and f A B C"),
        ("joints", r"only groups of joints and helpers"),
    ],
)
def test_other_meshes_are_refused_in_one_line(tmp_path: Path, damage: str, message: str) -> None:
    vertices, faces = tube(8) if damage == "coarse" else tube()
    path = tmp_path / "template.obj"
    if damage == "hole":
        faces = faces[1:]
    elif damage == "fin":
        faces.append([*faces[0][:2], len(vertices) - 1])
    elif damage == "two":
        faces = faces + [[corner + len(vertices) for corner in face] for face in faces]
        vertices = np.concatenate([vertices, vertices + 3])
    elif damage == "nan":
        vertices[0] = [np.nan, 0, 0]
    elif damage == "beyond":
        faces[5][2] = len(vertices)
    write(path, vertices, {"joint-neck" if damage == "joints" else "": faces})
    if damage == "word":
        with path.open("a") as file:
            file.write("f 1 2 x\n")
    elif damage == "none":
        path.write_text("# nothing\n")
    with one_line(message) as error:
        free_body_model(path)
    assert str(path) in str(error.value)


def sphere_of_6890() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    vertices, faces = tube(56, 123)
    triangles = [(face[0], second, third) for face in faces for second, third in pairwise(face[1:])]
    return vertices, np.array(triangles)


def smpl_folder(folder: Path) -> dict[str, Any]:
    """Write files of the shapes of SMPL's converted files, with invented values."""
    vertices, faces = sphere_of_6890()
    regressor = np.random.RandomState(0).random_sample((17, 6890))
    regressor /= regressor.sum(1, keepdims=True)
    first = np.stack([np.arange(1723), np.arange(1723) * 4 - (np.arange(1723) == 1722) * 2, np.ones(1723)], axis=1)
    second = np.stack([np.arange(431), np.arange(431) * 4, np.ones(431)], axis=1)
    np.savez(folder / "smpl.npz", v_template=vertices, f=faces)
    np.save(folder / "J_regressor_h36m_correct.npy", regressor)
    np.savez(folder / "sampling.npz", down0=first, down1=second)
    return {"vertices": vertices, "regressor": regressor, "first": first, "second": second}


def test_smpl_is_read_from_converted_files(tmp_path: Path) -> None:
    arrays = smpl_folder(tmp_path)
    body = read_body_model(tmp_path)
    assert body.name == "SMPL"
    assert body.levels == (431, 1723, 6890)
    assert np.array_equal(body.pelvis, arrays["regressor"][0])
    assert np.array_equal(body.regressor[2], arrays["regressor"][1])  # the right hip
    coarse, middle = body.downsample(body.template)
    assert np.array_equal(middle, arrays["vertices"][arrays["first"][:, 1].astype(int)])
    assert np.array_equal(coarse, middle[::4])
    assert body.tokens().shape == (445, 3)


def test_a_missing_file_of_smpl_is_reported_with_its_source(tmp_path: Path) -> None:
    smpl_folder(tmp_path)
    (tmp_path / next(iter(SMPL_FILES))).unlink()
    with pytest.raises(InputError, match=r"no body model: expected .*https://.*or a free template mesh") as error:
        read_body_model(tmp_path)
    assert [name in str(error.value) for name in SMPL_FILES] == [True, False, False]


@pytest.mark.parametrize("name", SMPL_FILES)
def test_no_pickle_is_run(tmp_path: Path, name: str) -> None:
    smpl_folder(tmp_path)
    harmful = TouchesAFile(tmp_path / "harm")
    if name.endswith(".npy"):
        (tmp_path / name).write_bytes(pickle.dumps(harmful))
    else:
        objects: Any = np.array([harmful], dtype=object)
        np.savez(tmp_path / name, v_template=objects, f=objects, down0=objects, down1=objects)
    with pytest.raises(InputError, match=rf"{name}: .*: expected plain arrays without pickle"):
        read_body_model(tmp_path)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize(
    ("name", "arrays", "message"),
    [
        ("smpl.npz", {"v_template": np.zeros((10, 3)), "f": np.zeros((4, 3), int)}, r"v_template of shape \(10, 3\)"),
        ("smpl.npz", {"v_template": np.zeros((6890, 3)), "f": np.array([[0, 1, 9999]])}, "expected triangles"),
        ("smpl.npz", {"v_template": np.zeros((6890, 3))}, "no array f"),
        ("sampling.npz", {"down0": np.zeros((3, 2)), "down1": np.zeros((3, 3))}, "down0 of shape"),
        ("sampling.npz", {"down0": np.array([[0, 7000, 1.0]]), "down1": np.zeros((3, 3))}, "index outside"),
    ],
)
def test_arrays_of_another_shape_are_refused(tmp_path: Path, name: str, arrays: dict[str, Any], message: str) -> None:
    smpl_folder(tmp_path)
    np.savez(tmp_path / name, **arrays)
    with pytest.raises(InputError, match=message) as error:
        read_body_model(tmp_path)
    assert name in str(error.value)
