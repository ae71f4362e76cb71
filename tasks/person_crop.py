"""The square around a person in an image, made larger or smaller, and turned."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from tasks.data.body_model import Points

MARGIN = 1.2
"""Side of the square, over the larger of the body's width and height."""


@dataclass(frozen=True)
class PersonCrop:
    """A square of an image that becomes an image of its own.

    Attributes:
        centre: its middle in the image, in pixels.
        side: its side in the image, in pixels.
        size: of what it becomes, in pixels.
        angle: by how much its content is turned, in degrees, from the right towards down.
    """

    centre: tuple[float, float]
    side: float
    size: int
    angle: float = 0.0

    @classmethod
    def around(cls, points: Points, size: int) -> PersonCrop:
        """The square around points (N, 2) in pixels."""
        low, high = points.min(axis=0), points.max(axis=0)
        middle = (low + high) / 2
        return cls((float(middle[0]), float(middle[1])), max(1.0, MARGIN * float((high - low).max())), size)

    def changed(self, angle: float, factor: float) -> PersonCrop:
        """Turned by an angle in degrees, with a side that is so many times as large."""
        return replace(self, angle=self.angle + angle, side=self.side * factor)

    def cut(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(H, W, 3) → (size, size, 3): interpolated between pixels, black outside of the image."""
        picture, (x, y) = Image.fromarray(image), self.centre
        step = self.side / self.size
        # Pixels are first averaged where several fall into one, which interpolation alone would skip.
        coarse = max(1, int(step))
        if coarse > 1:
            picture = picture.reduce(coarse)
            x, y, step = x / coarse, y / coarse, step / coarse
        way = _rotation(-self.angle) * step
        shift = np.array([x, y]) - way @ np.full(2, self.size / 2)
        rows = np.column_stack([way, shift]).flatten().tolist()
        made = picture.transform((self.size, self.size), Image.Transform.AFFINE, rows, Image.Resampling.BILINEAR)
        return np.array(made)

    def places(self, points: Points) -> Points:
        """Points (N, 2) in pixels of the image → the same in the square, −1 to 1 from edge to edge."""
        found: Points = (points - self.centre) @ _rotation(self.angle).T * (2 / self.side)
        return found


def turned(points: Points, angle: float) -> Points:
    """Points (N, 3) in a camera's directions, turned about its axis as the content of a crop is."""
    found = points.copy()
    found[:, :2] = points[:, :2] @ _rotation(angle).T
    return found


def _rotation(angle: float) -> Points:
    radians = np.radians(angle)
    return np.array([[np.cos(radians), -np.sin(radians)], [np.sin(radians), np.cos(radians)]])
