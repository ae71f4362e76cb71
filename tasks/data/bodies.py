"""Images of bodies with the true mesh of each, whatever files they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from tasks.data.body_model import BodyModel, Points
from tasks.data.lines import read_file
from tasks.data.pixels import FileImages


class Camera(NamedTuple):
    """A calibrated camera: a point X of the world is K · R · (X − C) in its image, before division by depth.

    Attributes:
        intrinsic: K, (3, 3), in pixels.
        rotation: R, (3, 3).
        centre: C, (3,), in metres.
    """

    intrinsic: Points
    rotation: Points
    centre: Points

    def seen(self, points: Points) -> Points:
        """Points (N, 3) of the world in the camera's directions: to the right, down, into the image."""
        found: Points = (points - self.centre) @ self.rotation.T
        return found

    def pixels(self, seen: Points) -> Points:
        """Points (N, 3) as `seen` gives them → (N, 2) in pixels; they lie in front of the camera."""
        flat = seen @ self.intrinsic.T
        found: Points = flat[:, :2] / flat[:, 2:]
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Shot:
    """One image of one body.

    Attributes:
        image: the file, relative to the set's folder.
        mesh: the file with the true vertices, relative to the set's folder.
        camera: in whose image they are.
        subject: the number of the person.
    """

    image: str
    mesh: str
    camera: Camera
    subject: int


@dataclass(frozen=True, eq=False)
class BodyData:
    """Bodies in images.

    Attributes:
        folder: where the files lie.
        body: the template that all meshes have the topology of.
    """

    kind: ClassVar[str] = "mesh-recovery"
    name: str
    folder: Path
    body: BodyModel
    train: tuple[Shot, ...]
    dev: tuple[Shot, ...]
    test: tuple[Shot, ...]
    notes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()

    def splits(self) -> dict[str, tuple[Shot, ...]]:
        """The three splits by name."""
        return {"train": self.train, "dev": self.dev, "test": self.test}

    def rows(self) -> dict[str, int]:
        """Number of images of each split."""
        return {name: len(shots) for name, shots in self.splits().items()}

    def class_rows(self) -> Mapping[str, Mapping[str, int]]:
        """None: there are no classes."""
        return {}

    def vertices(self, shot: Shot) -> Points:
        """The true mesh (V, 3) in the camera's directions, in metres.

        Raises:
            InputError: the file is damaged or of another topology, or the body is not in front of the camera.
        """
        path = self.folder / shot.mesh
        seen = shot.camera.seen(read_points(path, len(self.body.template)))
        if seen[:, 2].min() <= 0:
            raise InputError(f"{path}: the body is not in front of the camera of {shot.image}")
        return seen

    def pixels(self, shot: Shot) -> NDArray[np.uint8]:
        """The image, (H, W, 3)."""
        return FileImages.of(self.folder, [shot.image])[0]

    def verify(self, progress: Callable[[], None]) -> None:
        """Decode every image, read every mesh, and see whether some of it is in its image."""
        for shots in self.splits().values():
            for shot in shots:
                height, width, _ = self.pixels(shot).shape
                places = shot.camera.pixels(self.vertices(shot))
                if not ((places >= 0) & (places < (width, height))).all(axis=1).any():
                    raise InputError(f"{self.folder / shot.image}: nothing of the body of {shot.mesh} is in the image")
                progress()


def read_points(path: Path, count: int) -> Points:
    """Lines of X Y Z → (count, 3).

    Raises:
        InputError: the file cannot be read, holds anything but numbers, or another number of points.
    """
    content = read_file(path)
    try:
        values = np.array(content.split(), dtype=np.float64)
    except ValueError:
        raise InputError(f"{path}: expected {count} lines of three numbers") from None
    if values.size != 3 * count:
        found = f"{values.size // 3} vertices" if values.size % 3 == 0 else f"{values.size} numbers"
        raise InputError(f"{path}: {found}: expected the {count} of the body model")
    if not np.isfinite(values).all():
        raise InputError(f"{path}: vertices that are no finite numbers")
    return values.reshape(-1, 3)
