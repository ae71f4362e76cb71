"""HUMBI's bodies (Yu et al. 2020): people in many cameras at once, with the fitted mesh of every moment.

``subject_<n>/body/<frame>/image/image<camera>.jpg``, ``…/reconstruction/smpl_vertex.txt`` (a line X Y Z a vertex), and
``subject_<n>/body/intrinsic.txt`` and ``extrinsic.txt``. Frames and cameras may be missing.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from harness.errors import InputError
from tasks.data.bodies import BodyData, Camera, Shot
from tasks.data.body_model import Points, read_body_model
from tasks.data.lines import read_lines
from tasks.data.splits import SPLIT_SEED

if TYPE_CHECKING:
    from tasks.data.locate import Source

BODY_MODEL = "body_model"
TEST_SUBJECTS, SUBJECTS = 120, 414
"""DropKey, Section 4.4: 294 subjects are trained on and 120 tested; which ones it does not say."""
HEADER = ("Numcam:", "numframes:", "numP:")
INTRINSIC_ROWS, EXTRINSIC_ROWS = (3, 3, 3), (3, 3, 3, 3)
"""How many numbers stand in each line of a camera: a 3×3 K; a centre and a 3×3 R."""


def read(source: Source) -> BodyData:
    """Test is 120 of 414 subjects, dev a twentieth of the others, by a fixed seed: nobody is in two splits.

    Raises:
        InputError: there is no body model, no subject, or a file is damaged; says which line.
    """
    body = read_body_model(source.folder / BODY_MODEL)
    subjects = _numbered(source.folder, r"subject_(\d+)")
    shots: dict[int, list[Shot]] = {}
    without_mesh = without_camera = 0
    for number, folder in subjects.items():
        cameras = _cameras(folder / "body")
        shots[number] = []
        for frame in _numbered(folder / "body", r"(\d+)").values():
            mesh = frame / "reconstruction" / "smpl_vertex.txt"
            images = _numbered(frame / "image", r"image(\d+)\.jpg")
            if not mesh.is_file():
                without_mesh += len(images)
                continue
            for camera, image in images.items():
                if camera not in cameras:
                    without_camera += 1
                    continue
                shown, true = (path.relative_to(source.folder).as_posix() for path in (image, mesh))
                shots[number].append(Shot(shown, true, cameras[camera], number))
    shots = {number: found for number, found in shots.items() if found}
    if len(shots) < 3:
        raise InputError(f"{source.folder}: images of {len(shots)} subjects: expected 3 at least, for three splits")
    order = [list(shots)[place] for place in np.random.RandomState([SPLIT_SEED, 0]).permutation(len(shots))]
    tested = max(1, round(len(order) * TEST_SUBJECTS / SUBJECTS))
    held = tested + max(1, (len(order) - tested) // 20)
    parts = [order[held:], order[tested:held], order[:tested]]
    split = [tuple(shot for number in sorted(part) for shot in shots[number]) for part in parts]
    notes = [
        f"{len(parts[0])} subjects for train, {len(parts[1])} for dev, {len(parts[2])} for test (seed {SPLIT_SEED}); "
        f"DropKey trains on {SUBJECTS - TEST_SUBJECTS} and tests {TEST_SUBJECTS}",
        f"body model: {body.name}",
        *(
            f"{count} images without {what} left out"
            for count, what in ((without_mesh, "a mesh"), (without_camera, "a calibrated camera"))
            if count
        ),
    ]
    return BodyData(source.name, source.folder, body, split[0], split[1], split[2], tuple(notes))


def _numbered(folder: Path, pattern: str) -> dict[int, Path]:
    """What lies in a folder under names with a number in them, by that number, in its order; no folder holds none."""
    if not folder.is_dir():
        return {}
    found = ((re.fullmatch(pattern, path.name), path) for path in folder.iterdir())
    return dict(sorted((int(match[1]), path) for match, path in found if match))


def _cameras(folder: Path) -> dict[int, Camera]:
    """Cameras by number; those of which only one half is there are as good as missing."""
    inner = _matrices(folder / "intrinsic.txt", INTRINSIC_ROWS)
    outer = _matrices(folder / "extrinsic.txt", EXTRINSIC_ROWS)
    for number, values in outer.items():
        rotation = values[1:]
        if not np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-3):
            raise InputError(f"{folder / 'extrinsic.txt'}: camera {number}: expected a centre and a rotation")
    return {number: Camera(inner[number], outer[number][1:], outer[number][0]) for number in inner if number in outer}


def _matrices(path: Path, rows: tuple[int, ...]) -> dict[int, Points]:
    """By camera what stands below its line ``0 <camera>``."""
    lines = [(number, line.split()) for number, line in enumerate(read_lines(path), 1) if line.strip()]
    for (number, words), head in zip(lines, HEADER, strict=False):
        if words[0] != head:
            raise InputError(f"{path}:{number}: {' '.join(words)[:40]}: expected {head} and a number")
    found: dict[int, Points] = {}
    lines = lines[len(HEADER) :]
    for start in range(0, len(lines), 1 + len(rows)):
        (number, head_words), *body = lines[start : start + 1 + len(rows)]
        if len(head_words) != 2 or not head_words[1].isdecimal():
            raise InputError(f"{path}:{number}: {' '.join(head_words)[:40]}: expected 0 and the number of a camera")
        values = []
        for place, count in enumerate(rows):
            at, words = body[place] if place < len(body) else (number, [])
            try:
                values.append([float(word) for word in words])
            except ValueError:
                values.append([])
            if len(values[-1]) != count or not np.isfinite(values[-1]).all():
                raise InputError(
                    f"{path}:{at}: {' '.join(words)[:40]}: expected {count} numbers of camera {head_words[1]}"
                )
        found[int(head_words[1])] = np.array(values)
    return found
