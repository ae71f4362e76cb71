"""Generated bodies in HUMBI's format: a figure of blocks, rounded, in many poses, painted as several cameras see it."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.spatial.transform import Rotation

from tasks.data.bodies import Camera
from tasks.data.body_model import JOINTS, Points
from tasks.data.dataset import Dataset

SUBJECTS, FRAMES, CAMERAS = 30, 8, 4
WIDTH, HEIGHT, FOCAL, DISTANCE = 128, 128, 150.0, 2.8
BLOCK = 0.1
"""Metres along a block; a block of the surface is four squares."""
FIGURE = {
    *product(range(-1, 2), range(9, 15)),  # trunk
    *product((-1, 1), range(9)),  # legs
    *product((*range(-7, -1), *range(2, 8)), (14,)),  # arms
    *product((0,), range(15, 18)),  # neck and head
}
"""Columns and rows of blocks, the person's left side at positive columns, as seen from the front."""
PLACES = {
    "right ankle": (-1, 0.5), "right knee": (-1, 4.5), "right hip": (-1, 9), "left hip": (1, 9), "left knee": (1, 4.5),
    "left ankle": (1, 0.5), "right wrist": (-7, 14), "right elbow": (-4.5, 14), "right shoulder": (-2, 14),
    "left shoulder": (2, 14), "left elbow": (4.5, 14), "left wrist": (7, 14), "neck": (0, 15), "head": (0, 17),
}  # fmt: skip
BONES = (
    ("left hip", "neck", ""), ("neck", "head", "trunk"), ("right shoulder", "right elbow", "trunk"),
    ("right elbow", "right wrist", "right shoulder"), ("left shoulder", "left elbow", "trunk"),
    ("left elbow", "left wrist", "left shoulder"), ("right hip", "right knee", "trunk"),
    ("right knee", "right ankle", "right hip"), ("left hip", "left knee", "trunk"),
    ("left knee", "left ankle", "left hip"),
)  # fmt: skip
"""From joint to joint, and which bone it hangs on by the joint where that begins; the first is the trunk."""
COLOURS = (
    (200, 200, 200), (250, 220, 180), (230, 60, 60), (250, 140, 120), (60, 60, 230),
    (120, 140, 250), (200, 120, 40), (230, 190, 60), (40, 150, 90), (110, 220, 130),
)  # fmt: skip


def humbi(folder: Path, dataset: Dataset, seed: int) -> None:
    """Thirty subjects in eight poses each, seen by four cameras, and the template that all meshes come from."""
    template, faces = figure()
    (folder / "body_model").mkdir(parents=True)
    write_template(folder / "body_model" / "template.obj", template, faces)
    weights = skin(template)
    for number in range(1, SUBJECTS + 1):
        random = np.random.RandomState([seed, number])
        below = folder / f"subject_{number}" / "body"
        below.mkdir(parents=True)
        cameras = {camera: around(camera, random) for camera in range(CAMERAS)}
        write_cameras(below, cameras)
        size = random.uniform(0.85, 1.1) * np.array([random.uniform(0.9, 1.1), 1.0, random.uniform(0.9, 1.3)])
        for frame in range(1, FRAMES + 1):
            vertices = posed(template * size, {name: place * size for name, place in joints().items()}, weights, random)
            place = below / f"{frame:08d}"
            for part in ("image", "reconstruction"):
                (place / part).mkdir(parents=True)
            np.savetxt(place / "reconstruction" / "smpl_vertex.txt", vertices, fmt="%.6f")
            for camera, where in cameras.items():
                picture = painted(vertices, faces, weights.argmax(axis=1), where, random)
                picture.save(place / "image" / f"image{camera:07d}.jpg", quality=90)


def figure() -> tuple[Points, NDArray[np.int64]]:
    """Vertices (V, 3) in metres, standing on the ground, and squares (F, 4): the surface of the blocks, rounded."""
    fine = {(2 * x + i, 2 * y + j, k) for x, y in FIGURE for i, j, k in product((0, 1), repeat=3)}
    numbers: dict[tuple[int, ...], int] = {}
    faces = []
    for block in sorted(fine):
        for axis, side in product(range(3), (0, 1)):
            beside = list(block)
            beside[axis] += 2 * side - 1
            if tuple(beside) in fine:
                continue
            first, second = (axis + 1) % 3, (axis + 2) % 3
            turns = ((0, 0), (1, 0), (1, 1), (0, 1)) if side else ((0, 0), (0, 1), (1, 1), (1, 0))
            corners = []
            for one, other in turns:
                corner = list(block)
                corner[axis] += side
                corner[first] += one
                corner[second] += other
                corners.append(numbers.setdefault(tuple(corner), len(numbers)))
            faces.append(corners)
    squares = np.array(faces)
    points = (np.array(list(numbers), float) / 2 - np.array([0.5, 0.0, 0.5])) * BLOCK
    edges = np.concatenate([squares[:, [corner, (corner + 1) % 4]] for corner in range(4)])
    for _ in range(2):
        total, count = np.zeros_like(points), np.zeros((len(points), 1))
        np.add.at(total, edges[:, 0], points[edges[:, 1]])
        np.add.at(count, edges[:, 0], 1)
        points = 0.5 * points + 0.5 * total / count
    return points, squares


def joints() -> dict[str, Points]:
    """Places (3,) of the joints in the figure, in metres."""
    return {name: np.array([x * BLOCK, (y + 0.5) * BLOCK, 0.0]) for name, (x, y) in PLACES.items()}


def write_template(path: Path, vertices: Points, faces: NDArray[np.int64]) -> None:
    """An .obj file with the body, and a small tetrahedron around each joint in the group of its name."""
    points, lines = [*vertices], ["g body", *("f " + " ".join(str(corner + 1) for corner in face) for face in faces)]
    for name, place in joints().items():
        first = len(points) + 1
        points += [place + 0.01 * np.array(way) for way in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))]
        lines += [
            f"g {JOINTS[name]}",
            *(f"f {first + a} {first + b} {first + c}" for a, b, c in ((0, 1, 2), (0, 2, 3))),
        ]
    path.write_text("\n".join([*(f"v {x:.6f} {y:.6f} {z:.6f}" for x, y, z in points), *lines]) + "\n")


def skin(template: Points) -> Points:
    """(V, bones): how much each bone moves each vertex, by its distance; rows sum to one."""
    places = joints()
    distances: list[Points] = []
    for start, end, _ in BONES:
        a, b = places[start], places[end]
        if not distances:  # the trunk stands in the middle
            a = a * np.array([0.0, 1.0, 1.0])
        share = np.clip((template - a) @ (b - a) / ((b - a) @ (b - a)), 0, 1)
        near = np.linalg.norm(template - a - share[:, None] * (b - a), axis=1)
        distances.append(near * (0.4 if not distances else 1.0))
    nearness: Points = np.exp(-np.square(np.stack(distances, axis=1) / 0.05))
    nearness += 1e-12 * np.eye(len(BONES))[0]
    shares: Points = nearness / nearness.sum(axis=1, keepdims=True)
    return shares


def posed(template: Points, places: dict[str, Points], weights: Points, random: np.random.RandomState) -> Points:
    """A body (V, 3) that has moved each of its limbs, around its pelvis (linear blend skinning)."""
    motion: dict[str, tuple[Points, Points]] = {}
    moved = np.zeros_like(template)
    for number, (start, _, parent) in enumerate(BONES):
        if not number:
            turn, shift, start = (
                Rotation.from_euler("yx", random.uniform(-0.3, 0.3, 2)).as_matrix(),
                np.zeros(3),
                "trunk",
            )
        else:
            above, below = motion[parent]
            own = Rotation.from_euler("zyx", random.uniform(-0.5, 0.5, 3)).as_matrix()
            turn, shift = above @ own, above @ (places[start] - own @ places[start]) + below
        motion[start] = (turn, shift)
        moved += weights[:, number, None] * (template @ turn.T + shift)
    return moved


def around(number: int, random: np.random.RandomState) -> Camera:
    """A camera before the body, to its left or right, that looks at it: y points down in its image."""
    angle = np.radians(-60 + 40 * number + random.uniform(-10, 10))
    middle = np.array([0.0, 0.9, 0.0])
    centre = middle + DISTANCE * np.array([np.sin(angle), random.uniform(-0.1, 0.2), np.cos(angle)])
    forward = (middle - centre) / np.linalg.norm(middle - centre)
    right = np.cross(forward, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    intrinsic = np.array([[FOCAL, 0, WIDTH / 2], [0, FOCAL, HEIGHT / 2], [0, 0, 1]])
    return Camera(intrinsic, np.stack([right, np.cross(forward, right), forward]), centre)


def write_cameras(folder: Path, cameras: dict[int, Camera]) -> None:
    """``intrinsic.txt`` and ``extrinsic.txt`` as HUMBI has them."""

    def written(rows: Points) -> list[str]:
        return [" ".join(f"{value:.9f}" for value in row) for row in rows]

    head = [f"Numcam: {len(cameras)}", f"numframes: {FRAMES}", f"numP: {len(cameras)}"]
    inner, outer = list(head), list(head)
    for number, camera in cameras.items():
        inner += [f"0 {number}", *written(camera.intrinsic)]
        outer += [f"0 {number}", *written(np.stack([camera.centre, *camera.rotation]))]
    (folder / "intrinsic.txt").write_text("\n".join(inner) + "\n")
    (folder / "extrinsic.txt").write_text("\n".join(outer) + "\n")


def painted(
    vertices: Points, faces: NDArray[np.int64], bones: NDArray[np.int64], camera: Camera, random: np.random.RandomState
) -> Image.Image:
    """The body as a camera sees it: each limb in its colour, lit from the camera, far faces first."""
    picture = Image.new("RGB", (WIDTH, HEIGHT), tuple(random.randint(0, 90, 3).tolist()))
    draw = ImageDraw.Draw(picture)
    seen = camera.seen(vertices)
    places = camera.pixels(seen)
    corners = seen[faces]
    normals = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    centres = corners.mean(axis=1)
    facing = -(normals * centres).sum(axis=1) / np.linalg.norm(normals, axis=1) / np.linalg.norm(centres, axis=1)
    shown = np.flatnonzero(facing > 0)
    shown = shown[np.argsort(-centres[shown, 2])]
    colours = (np.array(COLOURS)[bones[faces[shown, 0]]] * (0.4 + 0.6 * facing[shown, None])).astype(int).tolist()
    for corner, colour in zip(places[faces[shown]].reshape(-1, 8).tolist(), colours, strict=True):
        draw.polygon(corner, fill=tuple(colour))
    return picture
