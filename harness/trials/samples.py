"""Samples as a person sees them, and what figures draw over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class SampleView:
    """A sample as a person sees it, for figures.

    Attributes:
        label: what it is, in a few words.
        image: as the model gets it but for its normalisation, (H, W, 1 or 3) uint8; None where it is no image.
        words: one a token; None where it is no text.
    """

    label: str
    image: NDArray[np.uint8] | None = None
    words: tuple[str, ...] | None = None


@dataclass(frozen=True, eq=False)
class Overlay:
    """Something in an image that figures draw over it, such as a box or a mesh.

    Attributes:
        label: what it is, in a few words; "" where that goes without saying.
        line: its outline (N, 2), right and down in pixels of the image; it is broken off at rows of NaN.
        score: how sure the model is of it, 0 to 1; None of what is true.
    """

    label: str
    line: NDArray[np.float64]
    score: float | None = None


class Overlays(NamedTuple):
    """What is in an image, and what a model finds in it."""

    true: list[Overlay]
    found: list[Overlay]


@dataclass(frozen=True, eq=False)
class BodyTokens:
    """A model's tokens that are points of a body: first its joints, then vertices; T of them.

    Attributes:
        joints: names of the first.
        rest: (T, 3), where they are at rest, in millimetres.
        places: (T, 2), where the model finds them in an image, right and down in its pixels.
    """

    joints: tuple[str, ...]
    rest: NDArray[np.float64]
    places: NDArray[np.float64]
