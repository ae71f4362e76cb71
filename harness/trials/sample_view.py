"""Samples, and overlays on them, as figures draw them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class SampleView:
    """A sample for figures.

    Attributes:
        label: a short description.
        image: the model's input before normalization, (H, W, 1 or 3) uint8; None for other samples.
        words: one per token; None if the sample is not a text.
    """

    label: str
    image: NDArray[np.uint8] | None = None
    words: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class Overlay:
    """An object in an image, such as a box or a mesh.

    Attributes:
        label: a short description; "" if none is needed.
        line: its outline (N, 2), right and down in pixels of the image; rows of NaN interrupt it.
        score: the model's confidence, 0 to 1; None for ground truth.
    """

    label: str
    line: NDArray[np.float64]
    score: float | None = None


class Overlays(NamedTuple):
    """The objects in an image: ground truth, and predictions."""

    true: list[Overlay]
    found: list[Overlay]


@dataclass(frozen=True, eq=False)
class BodyTokens:
    """A model's T tokens that are points of a body: its joints, then its vertices.

    Attributes:
        joints: names of the joints.
        rest: positions in the template, (T, 3) in millimeters.
        places: predicted positions in the image, (T, 2), right and down in pixels.
    """

    joints: tuple[str, ...]
    rest: NDArray[np.float64]
    places: NDArray[np.float64]
