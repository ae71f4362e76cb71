"""Mesh recovery data: images of bodies with the true mesh of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dropbench.harness.errors import InputError
from dropbench.tasks.data.images.image_arrays import FileImages
from dropbench.tasks.data.lines import read_file
from dropbench.tasks.data.meshes.body_model import BodyModel, Points
from dropbench.tasks.data.read import ThreeSplits


class Camera(NamedTuple):
    """A calibrated camera: a world point X is projected to K · R · (X − C), before division by depth.

    Attributes:
        intrinsic: K, (3, 3), in pixels.
        rotation: R, (3, 3).
        center: C, (3,), in meters.
    """

    intrinsic: Points
    rotation: Points
    center: Points

    def to_camera(self, points: Points) -> Points:
        """Transform world points (N, 3) to camera coordinates: x to the right, y down, z into the image."""
        return (points - self.center) @ self.rotation.T

    def project(self, points: Points) -> Points:
        """Project points (N, 3) in camera coordinates, with positive depth, to pixels (N, 2)."""
        homogeneous = points @ self.intrinsic.T
        return homogeneous[:, :2] / homogeneous[:, 2:]


@dataclass(frozen=True, eq=False, slots=True)
class Frame:
    """One image of one body.

    Attributes:
        image: image file, relative to the folder of the set.
        mesh: file with the true vertices, relative to the folder of the set.
        camera: the camera of the image.
        subject: number of the person.
    """

    image: str
    mesh: str
    camera: Camera
    subject: int


@dataclass(frozen=True, eq=False)
class BodyData(ThreeSplits[tuple[Frame, ...]]):
    """A mesh recovery set: dev for model selection, test for the score.

    Attributes:
        folder: the folder of the files.
        body: the template whose topology all meshes share.
    """

    kind: ClassVar[str] = "mesh-recovery"
    folder: Path = field(kw_only=True)
    body: BodyModel = field(kw_only=True)

    def vertices(self, frame: Frame) -> Points:
        """Return the true mesh (V, 3) in camera coordinates, in meters.

        Raises:
            InputError: the file is damaged or of another topology, or the body is not in front of the camera.
        """
        path = self.folder / frame.mesh
        vertices = frame.camera.to_camera(read_points(path, len(self.body.template)))
        if vertices[:, 2].min() <= 0:
            raise InputError(f"{path}: the body is not in front of the camera of {frame.image}")
        return vertices

    def pixels(self, frame: Frame) -> NDArray[np.uint8]:
        """Return the image, (H, W, 3)."""
        return FileImages.from_names(self.folder, [frame.image])[0]

    def verify(self, progress: Callable[[], None]) -> None:
        """Decode every image and read every mesh; raise InputError if no vertex is inside the image."""
        for frames in self.splits().values():
            for frame in frames:
                height, width, _ = self.pixels(frame).shape
                pixels = frame.camera.project(self.vertices(frame))
                if not ((pixels >= 0) & (pixels < (width, height))).all(axis=1).any():
                    raise InputError(f"{self.folder / frame.image}: no vertex of {frame.mesh} is inside the image")
                progress()


def read_points(path: Path, count: int) -> Points:
    """Read lines of X Y Z, (count, 3); raise InputError if the file has anything else or another number of points."""
    content = read_file(path)
    try:
        values = np.array(content.split(), dtype=np.float64)
    except ValueError:
        raise InputError(f"{path}: expected {count} lines of three numbers") from None
    if values.size != 3 * count:
        size = f"{values.size // 3} vertices" if values.size % 3 == 0 else f"{values.size} numbers"
        raise InputError(f"{path}: {size}: expected {count} vertices, as the body model has")
    if not np.isfinite(values).all():
        raise InputError(f"{path}: vertices that are not finite: expected finite numbers")
    return values.reshape(-1, 3)
