"""HUMBI's bodies: the published layout, cameras, splits by subject, and refused files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from dropbench.harness.errors import InputError
from dropbench.tasks.data import locate, read
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.meshes.bodies import BodyData, Camera
from dropbench.tasks.data.synthetic.bodies import CAMERAS, FRAMES, SUBJECTS
from tests.input_errors import one_line

COPIED = range(1, 6)
"""Subjects of a small copy."""


@pytest.fixture(scope="module")
def twin() -> Source:
    return locate("humbi-synthetic")


@pytest.fixture
def copy(twin: Source, tmp_path: Path) -> Path:
    """Copy a few subjects of the synthetic set, for tests that damage them."""
    for name in ("body_model", *(f"subject_{number}" for number in COPIED)):
        shutil.copytree(twin.folder / name, tmp_path / name)
    return tmp_path


def data(folder: Path) -> BodyData:
    return read(locate("humbi", folders={"humbi": folder}), BodyData)


def test_every_image_of_every_subject_is_in_one_split(twin: Source) -> None:
    bodies = read(twin, BodyData)
    assert sum(bodies.rows().values()) == SUBJECTS * FRAMES * CAMERAS
    subjects = {name: {frame.subject for frame in frames} for name, frames in bodies.splits().items()}
    assert {name: len(numbers) for name, numbers in subjects.items()} == {"train": 20, "dev": 1, "test": 9}
    assert len(set().union(*subjects.values())) == SUBJECTS
    assert bodies.notes[0] == (
        "20 subjects for train, 1 for dev, 9 for test (seed 2019); DropKey trains on 294 and tests 120"
    )
    assert bodies.notes[1].startswith("body model: free template of ")
    assert bodies.class_rows() == {}


def test_bodies_are_projected_onto_their_images(twin: Source) -> None:
    bodies = read(twin, BodyData)
    calls = 0
    for frame in bodies.train[::40]:
        image = bodies.pixels(frame).astype(int)
        vertices = bodies.vertices(frame)
        assert vertices.shape == bodies.body.template.shape
        columns, rows = np.floor(frame.camera.project(vertices)).astype(int).T
        inside = (columns >= 0) & (columns < image.shape[1]) & (rows >= 0) & (rows < image.shape[0])
        body = np.zeros(image.shape[:2], bool)
        body[rows[inside], columns[inside]] = True
        ground = np.median(image.reshape(-1, 3), axis=0)
        differs = np.abs(image - ground).sum(axis=2)
        assert differs[body].mean() > 5 * differs[~body].mean()
        calls += 1
    assert calls > 5


def test_cameras_are_read_as_written(copy: Path) -> None:
    (copy / "subject_1" / "body" / "intrinsic.txt").write_text(
        "Numcam: 1\nnumframes: 6\nnumP: 1\n0 2\n900 0 960\n0 910 540\n0 0 1\n"
    )
    (copy / "subject_1" / "body" / "extrinsic.txt").write_text(
        "Numcam: 1\nnumframes: 6\nnumP: 1\n0 2\n1 2 -3\n0 -1 0\n1 0 0\n0 0 1\n"
    )
    bodies = data(copy)
    first_subject = [frame for frames in bodies.splits().values() for frame in frames if frame.subject == 1]
    assert {frame.image.rsplit("/", 1)[1] for frame in first_subject} == {"image0000002.jpg"}
    camera = first_subject[0].camera
    points = camera.to_camera(np.array([[1.0, 2.0, 1.0], [2.0, 2.0, 1.0]]))
    assert points.tolist() == [[0, 0, 4], [0, 1, 4]]
    assert camera.project(points).tolist() == [[960, 540], [960, 540 + 910 / 4]]
    assert f"{FRAMES * (CAMERAS - 1)} images without a calibrated camera left out" in bodies.notes


def test_frames_without_a_mesh_are_left_out_and_counted(copy: Path) -> None:
    (copy / "subject_2" / "body" / "00000003" / "reconstruction" / "smpl_vertex.txt").unlink()
    shutil.rmtree(copy / "subject_3" / "body" / "00000001")
    bodies, calls = data(copy), []
    assert f"{CAMERAS} images without a mesh left out" in bodies.notes
    bodies.verify(lambda: calls.append(1))
    assert len(calls) == sum(bodies.rows().values()) == (len(COPIED) * FRAMES - 2) * CAMERAS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1 2 3\n", r"1 vertices: expected \d+ vertices, as the body model has"),
        ("1 2 x\n", r"expected \d+ lines of three numbers"),
        ("nan 2 3\n" * 1000, "1000 vertices: expected|vertices that are not finite"),
    ],
)
def test_meshes_of_another_topology_are_refused(copy: Path, content: str, message: str) -> None:
    path = copy / "subject_2" / "body" / "00000003" / "reconstruction" / "smpl_vertex.txt"
    path.write_text(content)
    with pytest.raises(InputError, match=rf"00000003/reconstruction/smpl_vertex.txt: {message}"):
        data(copy).verify(lambda: None)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("intrinsic.txt", "Numcam:", "Cameras:", r"intrinsic.txt:1: Cameras: 4: expected Numcam: and a number"),
        ("intrinsic.txt", "0 1\n", "camera one\n", r"intrinsic.txt:8: camera one: expected 0 and the number of a"),
        ("intrinsic.txt", " 1.000000000\n0 1\n", "\n0 1\n", r"intrinsic.txt:7: .*expected 3 numbers of camera 0"),
        ("extrinsic.txt", "0 3\n", "0 3\n1 ", r"extrinsic.txt:20: 1 .*: expected 3 numbers of camera 3"),
        ("extrinsic.txt", "0 1\n", "2 2 2\n0 1\n", r"extrinsic.txt:\d+: 2 2 2: expected 0 and the number"),
    ],
)
def test_damaged_cameras_are_reported_by_line(copy: Path, file: str, old: str, new: str, message: str) -> None:
    path = copy / "subject_4" / "body" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with one_line(message):
        data(copy)


def test_a_body_behind_the_camera_is_refused(copy: Path) -> None:
    bodies = data(copy)
    frame = bodies.train[0]
    behind = type(frame)(
        frame.image, frame.mesh, Camera(frame.camera.intrinsic, frame.camera.rotation, np.array([0.0, 0.9, 0.0])), 1
    )
    with pytest.raises(InputError, match="the body is not in front of the camera of subject_"):
        bodies.vertices(behind)


def test_a_missing_body_model_is_reported_with_its_source(copy: Path) -> None:
    (copy / "body_model" / "template.obj").unlink()
    with one_line(r"no body model: expected smpl.npz .*https://smpl.is.tue.mpg.de"):
        data(copy)
    shutil.rmtree(copy / "body_model")
    with pytest.raises(InputError, match=r"but not body_model/ .*https://smpl.is.tue.mpg.de"):
        data(copy)


def test_fewer_than_three_subjects_cannot_be_split(copy: Path) -> None:
    for number in COPIED[2:]:
        shutil.rmtree(copy / f"subject_{number}")
    with pytest.raises(InputError, match="images of 2 subjects: expected 3 at least"):
        data(copy)
