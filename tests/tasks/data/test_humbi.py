"""HUMBI's bodies: the published layout, cameras, splits by subject, and what is refused."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from harness.errors import InputError
from tasks.data import locate, read
from tasks.data.bodies import BodyData, Camera
from tasks.data.locate import Source
from tasks.data.synthetic_bodies import CAMERAS, FRAMES, SUBJECTS

FEW = range(1, 6)
"""Subjects of a small copy."""


@pytest.fixture(scope="module")
def twin() -> Source:
    return locate("humbi-synthetic")


@pytest.fixture
def copy(twin: Source, tmp_path: Path) -> Path:
    """A few subjects of the generated set, to be damaged."""
    for name in ("body_model", *(f"subject_{number}" for number in FEW)):
        shutil.copytree(twin.folder / name, tmp_path / name)
    return tmp_path


def data(folder: Path) -> BodyData:
    return read(locate("humbi", folders={"humbi": folder}), BodyData)


def test_every_image_of_every_subject_is_in_one_split(twin: Source) -> None:
    found = read(twin, BodyData)
    assert sum(found.rows().values()) == SUBJECTS * FRAMES * CAMERAS
    subjects = {name: {shot.subject for shot in shots} for name, shots in found.splits().items()}
    assert {name: len(numbers) for name, numbers in subjects.items()} == {"train": 20, "dev": 1, "test": 9}
    assert len(set().union(*subjects.values())) == SUBJECTS
    assert found.notes[0] == (
        "20 subjects for train, 1 for dev, 9 for test (seed 2019); DropKey trains on 294 and tests 120"
    )
    assert found.notes[1].startswith("body model: free template of ")
    assert found.class_rows() == {}


def test_bodies_are_where_their_images_show_them(twin: Source) -> None:
    found = read(twin, BodyData)
    seen = 0
    for shot in found.train[::40]:
        image = found.pixels(shot).astype(int)
        vertices = found.vertices(shot)
        assert vertices.shape == found.body.template.shape
        columns, rows = np.floor(shot.camera.pixels(vertices)).astype(int).T
        inside = (columns >= 0) & (columns < image.shape[1]) & (rows >= 0) & (rows < image.shape[0])
        body = np.zeros(image.shape[:2], bool)
        body[rows[inside], columns[inside]] = True
        ground = np.median(image.reshape(-1, 3), axis=0)
        differs = np.abs(image - ground).sum(axis=2)
        assert differs[body].mean() > 5 * differs[~body].mean()
        seen += 1
    assert seen > 5


def test_cameras_are_read_as_written(copy: Path) -> None:
    (copy / "subject_1" / "body" / "intrinsic.txt").write_text(
        "Numcam: 1\nnumframes: 6\nnumP: 1\n0 2\n900 0 960\n0 910 540\n0 0 1\n"
    )
    (copy / "subject_1" / "body" / "extrinsic.txt").write_text(
        "Numcam: 1\nnumframes: 6\nnumP: 1\n0 2\n1 2 -3\n0 -1 0\n1 0 0\n0 0 1\n"
    )
    found = data(copy)
    mine = [shot for shots in found.splits().values() for shot in shots if shot.subject == 1]
    assert {shot.image.rsplit("/", 1)[1] for shot in mine} == {"image0000002.jpg"}
    camera = mine[0].camera
    seen = camera.seen(np.array([[1.0, 2.0, 1.0], [2.0, 2.0, 1.0]]))
    assert seen.tolist() == [[0, 0, 4], [0, 1, 4]]
    assert camera.pixels(seen).tolist() == [[960, 540], [960, 540 + 910 / 4]]
    assert f"{FRAMES * (CAMERAS - 1)} images without a calibrated camera left out" in found.notes


def test_frames_without_a_mesh_are_left_out_and_counted(copy: Path) -> None:
    (copy / "subject_2" / "body" / "00000003" / "reconstruction" / "smpl_vertex.txt").unlink()
    shutil.rmtree(copy / "subject_3" / "body" / "00000001")
    found = data(copy)
    assert f"{CAMERAS} images without a mesh left out" in found.notes
    assert sum(found.rows().values()) == (len(FEW) * FRAMES - 2) * CAMERAS


def test_all_of_it_can_be_verified(copy: Path) -> None:
    found, seen = data(copy), []
    found.verify(lambda: seen.append(1))
    assert len(seen) == len(FEW) * FRAMES * CAMERAS


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("1 2 3\n", r"1 vertices: expected the \d+ of the body model"),
        ("1 2\n", r"2 numbers: expected the \d+ of the body model"),
        ("1 2 x\n", r"expected \d+ lines of three numbers"),
        ("", "the file is empty"),
    ],
)
def test_meshes_of_another_topology_are_refused(copy: Path, content: str, told: str) -> None:
    path = copy / "subject_2" / "body" / "00000003" / "reconstruction" / "smpl_vertex.txt"
    path.write_text(content)
    with pytest.raises(InputError, match=rf"00000003/reconstruction/smpl_vertex.txt: {told}"):
        data(copy).verify(lambda: None)


def test_vertices_must_be_finite(copy: Path) -> None:
    path = copy / "subject_2" / "body" / "00000003" / "reconstruction" / "smpl_vertex.txt"
    path.write_text(path.read_text().replace(path.read_text().split()[0], "nan", 1))
    with pytest.raises(InputError, match="vertices that are no finite numbers"):
        data(copy).verify(lambda: None)


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("intrinsic.txt", "Numcam:", "Cameras:", r"intrinsic.txt:1: Cameras: 4: expected Numcam: and a number"),
        (
            "intrinsic.txt",
            "0 1\n",
            "camera one\n",
            r"intrinsic.txt:8: camera one: expected 0 and the number of a camera",
        ),
        ("intrinsic.txt", " 1.000000000\n0 1\n", "\n0 1\n", r"intrinsic.txt:7: .*expected 3 numbers of camera 0"),
        ("extrinsic.txt", "0 3\n", "0 3\n1 ", r"extrinsic.txt:20: 1 .*: expected 3 numbers of camera 3"),
    ],
)
def test_damaged_cameras_are_told_by_line(copy: Path, file: str, old: str, new: str, told: str) -> None:
    path = copy / "subject_4" / "body" / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(InputError, match=told) as error:
        data(copy)
    assert "\n" not in str(error.value)


def test_a_camera_that_is_cut_off_is_told(copy: Path) -> None:
    path = copy / "subject_4" / "body" / "extrinsic.txt"
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    with pytest.raises(InputError, match=r"extrinsic.txt:\d+: : expected 3 numbers of camera 3"):
        data(copy)


def test_a_camera_that_is_no_rotation_is_refused(copy: Path) -> None:
    path = copy / "subject_4" / "body" / "extrinsic.txt"
    lines = path.read_text().splitlines()
    lines[5] = "2 2 2"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"extrinsic.txt: camera 0: expected a centre and a rotation"):
        data(copy)


def test_a_body_behind_the_camera_is_refused(copy: Path) -> None:
    found = data(copy)
    shot = found.train[0]
    behind = type(shot)(
        shot.image, shot.mesh, Camera(shot.camera.intrinsic, shot.camera.rotation, np.array([0.0, 0.9, 0.0])), 1
    )
    with pytest.raises(InputError, match="the body is not in front of the camera of subject_"):
        found.vertices(behind)


def test_without_a_body_model_it_says_where_one_is_to_be_had(copy: Path) -> None:
    (copy / "body_model" / "template.obj").unlink()
    with pytest.raises(InputError, match=r"no body model: expected smpl.npz .*https://smpl.is.tue.mpg.de") as error:
        data(copy)
    assert "\n" not in str(error.value)
    shutil.rmtree(copy / "body_model")
    with pytest.raises(InputError, match=r"but not body_model/ .*https://smpl.is.tue.mpg.de"):
        data(copy)


def test_fewer_than_three_subjects_cannot_be_parted(copy: Path) -> None:
    for number in FEW[2:]:
        shutil.rmtree(copy / f"subject_{number}")
    with pytest.raises(InputError, match="images of 2 subjects: expected 3 at least"):
        data(copy)
