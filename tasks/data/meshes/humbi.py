"""Reader of HUMBI's bodies (Yu et al. 2020): people seen by many cameras at once, and the mesh fitted at each moment.

``subject_<n>/body/<frame>/image/image<camera>.jpg``, ``…/reconstruction/smpl_vertex.txt`` (one line X Y Z per vertex),
and ``subject_<n>/body/intrinsic.txt`` and ``extrinsic.txt``. Frames and cameras may be missing.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from dropbench.harness.errors import InputError, count_of
from dropbench.tasks.data.lines import read_lines
from dropbench.tasks.data.locate import Source
from dropbench.tasks.data.meshes.bodies import BodyData, Camera, Frame
from dropbench.tasks.data.meshes.body_model import Points, read_body_model

BODY_MODEL = "body_model"
TEST_SUBJECTS, SUBJECTS = 120, 414
"""DropKey, Section 4.4: 294 subjects for training and 120 for testing; the paper does not list them."""
HEADER = ("Numcam:", "numframes:", "numP:")
INTRINSIC_ROWS, EXTRINSIC_ROWS = 3, 4
"""Number of lines of a camera, with three values each: a 3×3 K; a center and a 3×3 R."""


def read(source: Source) -> BodyData:
    """Read all subjects: 120 of 414 are test, a twentieth of the others dev, drawn with a fixed seed.

    Raises:
        InputError: the body model or the subjects are missing, or a file is damaged; the message names the line.
    """
    body = read_body_model(source.folder / BODY_MODEL)
    frames: dict[int, list[Frame]] = {}
    without_mesh = without_camera = 0
    for subject, folder in _numbered_paths(source.folder, r"subject_(\d+)").items():
        cameras = _cameras(folder / "body")
        frames[subject] = []
        for moment in _numbered_paths(folder / "body", r"(\d+)").values():
            mesh = moment / "reconstruction" / "smpl_vertex.txt"
            images = _numbered_paths(moment / "image", r"image(\d+)\.jpg")
            if not mesh.is_file():
                without_mesh += len(images)
                continue
            for camera, image in images.items():
                if camera not in cameras:
                    without_camera += 1
                    continue
                image_name, mesh_name = (path.relative_to(source.folder).as_posix() for path in (image, mesh))
                frames[subject].append(Frame(image_name, mesh_name, cameras[camera], subject))
    frames = {subject: subject_frames for subject, subject_frames in frames.items() if subject_frames}
    if len(frames) < 3:
        raise InputError(f"{source.folder}: images of {len(frames)} subjects: expected 3 at least, one per split")
    order = [list(frames)[index] for index in np.random.RandomState([source.split_seed, 0]).permutation(len(frames))]
    test_end = max(1, round(len(order) * TEST_SUBJECTS / SUBJECTS))
    dev_end = test_end + max(1, (len(order) - test_end) // 20)
    parts = [order[dev_end:], order[test_end:dev_end], order[:test_end]]
    train, dev, test = (tuple(frame for subject in sorted(part) for frame in frames[subject]) for part in parts)
    sizes = f"{len(parts[0])} subjects for train, {len(parts[1])} for dev, {len(parts[2])} for test"
    notes = [
        f"{sizes} (seed {source.split_seed}); DropKey trains on {SUBJECTS - TEST_SUBJECTS} and tests {TEST_SUBJECTS}",
        f"body model: {body.name}",
        *(
            f"{count_of(count, 'image')} without {missing} left out"
            for count, missing in ((without_mesh, "a mesh"), (without_camera, "a calibrated camera"))
            if count
        ),
    ]
    return BodyData(source.name, (), train, dev, test, tuple(notes), folder=source.folder, body=body)


def _numbered_paths(folder: Path, pattern: str) -> dict[int, Path]:
    """Return the entries of a folder whose names match, sorted by the number in them; {} if there is no folder."""
    if not folder.is_dir():
        return {}
    matches = ((re.fullmatch(pattern, path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in matches if match))


def _cameras(folder: Path) -> dict[int, Camera]:
    """Return the cameras by number, without those that lack the intrinsic or the extrinsic half."""
    intrinsics = _matrices(folder / "intrinsic.txt", INTRINSIC_ROWS)
    extrinsics = _matrices(folder / "extrinsic.txt", EXTRINSIC_ROWS)
    for number, values in extrinsics.items():
        rotation = values[1:]
        if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3):
            raise InputError(f"{folder / 'extrinsic.txt'}: camera {number}: expected a center and a rotation")
    both = [number for number in intrinsics if number in extrinsics]
    return {number: Camera(intrinsics[number], extrinsics[number][1:], extrinsics[number][0]) for number in both}


def _matrices(path: Path, num_rows: int) -> dict[int, Points]:
    """Return the rows below each line ``0 <camera>``, by camera."""
    lines = [(number, line.split()) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    for (number, words), head in zip(lines, HEADER, strict=False):
        if words[0] != head:
            raise InputError(f"{path}:{number}: {' '.join(words)[:40]}: expected {head} and a number")
    matrices: dict[int, Points] = {}
    lines = lines[len(HEADER) :]
    for start in range(0, len(lines), 1 + num_rows):
        (number, head_words), *rows = lines[start : start + 1 + num_rows]
        if len(head_words) != 2 or not head_words[1].isdecimal():
            raise InputError(f"{path}:{number}: {' '.join(head_words)[:40]}: expected 0 and the number of a camera")
        values = []
        for line, words in [*rows, *[(number, [])] * (num_rows - len(rows))]:
            try:
                values.append([float(word) for word in words])
            except ValueError:
                values.append([])
            if len(values[-1]) != 3 or not np.isfinite(values[-1]).all():
                raise InputError(f"{path}:{line}: {' '.join(words)[:40]}: expected 3 numbers of camera {head_words[1]}")
        matrices[int(head_words[1])] = np.array(values)
    return matrices
