"""Writer of synthetic bodies in HUMBI's format: a smoothed figure of blocks in many poses, seen by several cameras."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from scipy.spatial.transform import Rotation

from dropbench.tasks.data.dataset import Dataset
from dropbench.tasks.data.meshes.bodies import Camera
from dropbench.tasks.data.meshes.body_model import JOINTS, Points

SUBJECTS, FRAMES, CAMERAS = 30, 8, 4
WIDTH, HEIGHT, FOCAL, DISTANCE = 128, 128, 150.0, 2.8
BLOCK = 0.1
"""Side of a block in meters; a block has four squares on each surface side."""
FIGURE = {
    *product(range(-1, 2), range(9, 15)),  # trunk
    *product((-1, 1), range(9)),  # legs
    *product((*range(-7, -1), *range(2, 8)), (14,)),  # arms
    *product((0,), range(15, 18)),  # neck and head
}
"""Columns and rows of the blocks; positive columns are the person's left side, seen from the front."""
JOINT_BLOCKS = {
    "right ankle": (-1, 0.5), "right knee": (-1, 4.5), "right hip": (-1, 9), "left hip": (1, 9), "left knee": (1, 4.5),
    "left ankle": (1, 0.5), "right wrist": (-7, 14), "right elbow": (-4.5, 14), "right shoulder": (-2, 14),
    "left shoulder": (2, 14), "left elbow": (4.5, 14), "left wrist": (7, 14), "neck": (0, 15), "head": (0, 17),
}  # fmt: skip
"""Column and row of each joint."""
SHOULDER, HIP = (0.2, 1.45), (0.1, 0.95)
"""Turning points of the left limbs in the figure: meters to the left and above the ground."""
COLORS = ((200, 200, 200), (60, 60, 230), (230, 60, 60), (40, 150, 90), (230, 190, 60))
"""Colors of the trunk, the left and the right arm, the left and the right leg."""


def humbi(folder: Path, dataset: Dataset, seed: int) -> None:
    """Write thirty subjects in eight poses, seen by four cameras, and the template of all meshes."""
    template, faces = figure()
    (folder / "body_model").mkdir(parents=True)
    write_template(folder / "body_model" / "template.obj", template, faces)
    weights = limb_weights(template)
    for number in range(1, SUBJECTS + 1):
        random = np.random.RandomState([seed, number])
        body_folder = folder / f"subject_{number}" / "body"
        body_folder.mkdir(parents=True)
        cameras = [sample_camera(index, random) for index in range(CAMERAS)]
        write_cameras(body_folder, cameras)
        size = random.uniform(0.85, 1.1) * np.array([random.uniform(0.9, 1.1), 1.0, random.uniform(0.9, 1.3)])
        for frame in range(1, FRAMES + 1):
            vertices = pose(template * size, size, weights, random)
            frame_folder = body_folder / f"{frame:08d}"
            for part in ("image", "reconstruction"):
                (frame_folder / part).mkdir(parents=True)
            np.savetxt(frame_folder / "reconstruction" / "smpl_vertex.txt", vertices, fmt="%.6f")
            for index, camera in enumerate(cameras):
                image = render(vertices, faces, weights.argmax(axis=1), camera, random)
                image.save(frame_folder / "image" / f"image{index:07d}.jpg", quality=90)


def figure() -> tuple[Points, NDArray[np.int64]]:
    """Return the smoothed surface of the blocks: vertices (V, 3) in meters above the ground, and squares (F, 4)."""
    fine = {(2 * x + i, 2 * y + j, k) for x, y in FIGURE for i, j, k in product((0, 1), repeat=3)}
    numbers: dict[tuple[int, ...], int] = {}
    faces = []
    units = np.eye(3, dtype=int)
    for block in map(np.array, sorted(fine)):
        for axis, side in product(range(3), (0, 1)):
            if tuple(block + (2 * side - 1) * units[axis]) in fine:
                continue
            origin, first, second = block + side * units[axis], units[axis - 2], units[axis - 1]
            offsets = ((0, 0), (1, 0), (1, 1), (0, 1)) if side else ((0, 0), (0, 1), (1, 1), (1, 0))
            corners = [tuple((origin + i * first + j * second).tolist()) for i, j in offsets]
            faces.append([numbers.setdefault(corner, len(numbers)) for corner in corners])
    squares = np.array(faces)
    points = (np.array(list(numbers), float) / 2 - np.array([0.5, 0.0, 0.5])) * BLOCK
    edges = np.concatenate([squares[:, [corner, (corner + 1) % 4]] for corner in range(4)])
    for _ in range(2):
        total, count = np.zeros_like(points), np.zeros((len(points), 1))
        np.add.at(total, edges[:, 0], points[edges[:, 1]])
        np.add.at(count, edges[:, 0], 1)
        points = 0.5 * points + 0.5 * total / count
    return points, squares


def write_template(path: Path, vertices: Points, faces: NDArray[np.int64]) -> None:
    """Write an .obj file with the body, and a group with a small tetrahedron around each joint."""
    points, lines = [*vertices], ["g body", *("f " + " ".join(str(corner + 1) for corner in face) for face in faces)]
    for name, (x, y) in JOINT_BLOCKS.items():
        a = len(points) + 1
        center = np.array([x * BLOCK, (y + 0.5) * BLOCK, 0.0])
        points += [center + 0.01 * np.array(corner) for corner in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))]
        lines += [f"g {JOINTS[name]}", f"f {a} {a + 1} {a + 2}", f"f {a} {a + 2} {a + 3}"]
    path.write_text("\n".join([*(f"v {x:.6f} {y:.6f} {z:.6f}" for x, y, z in points), *lines]) + "\n")


def limb_weights(template: Points) -> Points:
    """Return how far each vertex follows the trunk, the arms and the legs, (V, 5), as in `COLORS`; rows sum to 1."""
    x, y, _ = template.T
    arm, leg = np.clip(10 * np.abs(x) - 1.5, 0, 1), np.clip(9.5 - 10 * y, 0, 1)
    limbs = [arm * (x > 0), arm * (x <= 0), leg * (x > 0), leg * (x <= 0)]
    return np.stack([1 - arm - leg, *limbs], axis=1)


def pose(template: Points, size: Points, weights: Points, random: np.random.RandomState) -> Points:
    """Return the body (V, 3) with its limbs turned at random around their anchors, and then as a whole."""
    posed = weights[:, :1] * template
    anchors = [(side * x, y, 0.0) for x, y in (SHOULDER, HIP) for side in (1, -1)]
    for weight, anchor in zip(weights.T[1:], np.array(anchors) * size, strict=True):
        rotation = Rotation.from_euler("zyx", random.uniform(-0.5, 0.5, 3)).as_matrix()
        posed += weight[:, None] * ((template - anchor) @ rotation.T + anchor)
    turned: Points = posed @ Rotation.from_euler("yx", random.uniform(-0.3, 0.3, 2)).as_matrix().T
    return turned


def sample_camera(number: int, random: np.random.RandomState) -> Camera:
    """Return a camera in front of the body, at an angle that depends on its number; y points down in its image."""
    angle = np.radians(-60 + 40 * number + random.uniform(-10, 10))
    body_center = np.array([0.0, 0.9, 0.0])
    center = body_center + DISTANCE * np.array([np.sin(angle), random.uniform(-0.1, 0.2), np.cos(angle)])
    forward = (body_center - center) / np.linalg.norm(body_center - center)
    right = np.cross(forward, [0.0, 1.0, 0.0])
    right /= np.linalg.norm(right)
    intrinsic = np.array([[FOCAL, 0, WIDTH / 2], [0, FOCAL, HEIGHT / 2], [0, 0, 1]])
    return Camera(intrinsic, np.stack([right, np.cross(forward, right), forward]), center)


def write_cameras(folder: Path, cameras: Sequence[Camera]) -> None:
    """Write ``intrinsic.txt`` and ``extrinsic.txt`` in HUMBI's format."""
    intrinsics = [camera.intrinsic for camera in cameras]
    extrinsics = [np.stack([camera.center, *camera.rotation]) for camera in cameras]
    for name, matrices in (("intrinsic.txt", intrinsics), ("extrinsic.txt", extrinsics)):
        lines = [f"Numcam: {len(cameras)}", f"numframes: {FRAMES}", f"numP: {len(cameras)}"]
        for number, rows in enumerate(matrices):
            lines += [f"0 {number}", *(" ".join(f"{value:.9f}" for value in row) for row in rows)]
        (folder / name).write_text("\n".join(lines) + "\n")


def render(
    vertices: Points, faces: NDArray[np.int64], limbs: NDArray[np.int64], camera: Camera, random: np.random.RandomState
) -> Image.Image:
    """Render the body: each limb in its color, lit from the camera, far faces first."""
    image = Image.new("RGB", (WIDTH, HEIGHT), tuple(random.randint(0, 90, 3).tolist()))
    draw = ImageDraw.Draw(image)
    in_camera = camera.to_camera(vertices)
    pixels = camera.project(in_camera)
    corners = in_camera[faces]
    normals = np.cross(corners[:, 2] - corners[:, 0], corners[:, 3] - corners[:, 1])
    centers = corners.mean(axis=1)
    facing = -(normals * centers).sum(axis=1) / np.linalg.norm(normals, axis=1) / np.linalg.norm(centers, axis=1)
    visible = np.flatnonzero(facing > 0)
    visible = visible[np.argsort(-centers[visible, 2])]
    colors = (np.array(COLORS)[limbs[faces[visible, 0]]] * (0.4 + 0.6 * facing[visible, None])).astype(int).tolist()
    for corner, color in zip(pixels[faces[visible]].reshape(-1, 8).tolist(), colors, strict=True):
        draw.polygon(corner, fill=tuple(color))
    return image
