"""Square crops around a person in an image, scaled and rotated for augmentation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dropbench.tasks.data.meshes.body_model import Points

MARGIN = 1.2
"""Side of the crop over the larger of the body's width and height."""


@dataclass(frozen=True)
class PersonCrop:
    """A square crop of an image.

    Attributes:
        center: of the crop in the image, in pixels.
        side: of the crop in the image, in pixels.
        size: side of the resized crop, in pixels.
        angle: clockwise rotation of the content, in degrees.
    """

    center: tuple[float, float]
    side: float
    size: int
    angle: float = 0.0

    @classmethod
    def around(cls, points: Points, size: int) -> PersonCrop:
        """Return the crop around points (N, 2) in pixels."""
        low, high = points.min(axis=0), points.max(axis=0)
        center = (low + high) / 2
        return cls((float(center[0]), float(center[1])), max(1.0, MARGIN * float((high - low).max())), size)

    def augmented(self, angle: float, factor: float) -> PersonCrop:
        """Return the crop rotated by an angle in degrees, with its side scaled by a factor."""
        return replace(self, angle=self.angle + angle, side=self.side * factor)

    def apply(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Crop an image (H, W, 3) to (size, size, 3), interpolated bilinearly, black outside of the image."""
        source, (x, y) = Image.fromarray(image), self.center
        step = self.side / self.size
        # Pixels are averaged before strong downsampling, because bilinear interpolation would skip some.
        reduction = max(1, int(step))
        if reduction > 1:
            source = source.reduce(reduction)
            x, y, step = x / reduction, y / reduction, step / reduction
        matrix = _rotation(-self.angle) * step
        shift = np.array([x, y]) - matrix @ np.full(2, self.size / 2)
        rows = np.column_stack([matrix, shift]).flatten().tolist()
        crop = source.transform((self.size, self.size), Image.Transform.AFFINE, rows, Image.Resampling.BILINEAR)
        return np.array(crop)

    def to_crop(self, points: Points) -> Points:
        """Return points (N, 2) in pixels of the image in coordinates of the crop, −1 to 1 from edge to edge."""
        cropped: Points = (points - self.center) @ _rotation(self.angle).T * (2 / self.side)
        return cropped


def rotate_body(points: Points, angle: float) -> Points:
    """Rotate points (N, 3) in a camera's axes about its optical axis, like the content of a crop."""
    rotated = points.copy()
    rotated[:, :2] = points[:, :2] @ _rotation(angle).T
    return rotated


def _rotation(angle: float) -> Points:
    radians = np.radians(angle)
    return np.array([[np.cos(radians), -np.sin(radians)], [np.sin(radians), np.cos(radians)]])
