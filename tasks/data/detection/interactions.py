"""Interaction detection data: images with persons, objects, and actions of persons on objects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from dropbench.tasks.data.detection.annotations import AnnotatedImage, AnnotatedSplit
from dropbench.tasks.data.read import ThreeSplits

RARE_BELOW = 10
"""An interaction with fewer training instances is rare (HICO-DET)."""


@dataclass(frozen=True, eq=False, slots=True)
class PairedImage(AnnotatedImage):
    """An image with pairs of boxes, (P, 3): index of the subject's box, index of the object's box, verb, all from 0.

    Label 0 is a person.
    """

    pairs: NDArray[np.int64]


InteractionSplit = AnnotatedSplit[PairedImage]


@dataclass(frozen=True, eq=False)
class Interactions:
    """The evaluated classes: pairs of a verb and an object.

    Attributes:
        verbs: names of the verbs.
        objects: names of the objects, COCO's 80 classes.
        classes: (K, 2): verb and object of each class.
        rare: (K,), True for a class with fewer than `RARE_BELOW` training instances.
    """

    verbs: tuple[str, ...]
    objects: tuple[str, ...]
    classes: NDArray[np.int64]
    rare: NDArray[np.bool_]

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """(verbs, objects): the class of the pair, else -1."""
        numbers = np.full((len(self.verbs), len(self.objects)), -1, np.int64)
        numbers[self.classes[:, 0], self.classes[:, 1]] = np.arange(len(self.classes))
        return numbers

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the classes, such as "ride bicycle"."""
        return tuple(f"{self.verbs[verb]} {self.objects[object]}" for verb, object in self.classes.tolist())

    def count(self, images: tuple[PairedImage, ...]) -> NDArray[np.int64]:
        """Return the number of pairs of each class, (K,)."""
        classes = [self.numbers[image.pairs[:, 2], image.labels[image.pairs[:, 1]]] for image in images]
        return np.bincount(np.concatenate([np.zeros(0, np.int64), *classes]), minlength=len(self.classes))


@dataclass(frozen=True, eq=False)
class InteractionData(ThreeSplits[InteractionSplit]):
    """An interaction detection set; train and dev are empty if the folder has test annotations only."""

    kind: ClassVar[str] = "interaction-detection"
    interactions: Interactions = field(kw_only=True)

    def __post_init__(self) -> None:
        """Accept empty splits."""

    def count_classes(self, split: InteractionSplit) -> list[int]:
        """Return the number of pairs of each interaction in a split."""
        return cast(list[int], self.interactions.count(split.images).tolist())

    def verify(self, progress: Callable[[], None]) -> None:
        """Decode every image that is present."""
        for split in self.splits().values():
            files = split.files() if split.folder is not None else None
            for index in range(len(split)):
                if files is not None:
                    files[index]
                progress()
