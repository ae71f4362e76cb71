"""Images with persons, objects, and what persons do with objects, whatever files they come from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from tasks.data.annotations import AnnotatedSplit

RARE_BELOW = 10
"""An interaction with fewer training instances is rare (HICO-DET)."""


@dataclass(frozen=True, eq=False, slots=True)
class PairedImage:
    """An image as its annotations describe it.

    Attributes:
        name: of its file, relative to the images' folder.
        boxes: (N, 4), float64: left, top, right, bottom in pixels.
        labels: (N,), class of what is in each box, from 0; 0 is a person.
        pairs: (P, 3): number of the subject's box, number of the object's box, verb, all from 0.
    """

    name: str
    boxes: NDArray[np.float64]
    labels: NDArray[np.int64]
    pairs: NDArray[np.int64]


InteractionSplit = AnnotatedSplit[PairedImage]


@dataclass(frozen=True, eq=False)
class Interactions:
    """The classes that are evaluated: a verb with an object.

    Attributes:
        verbs: names.
        objects: names, those of COCO's 80 classes.
        classes: (K, 2): verb and object of each class.
        rare: (K,), whether a class has fewer than `RARE_BELOW` training instances.
    """

    verbs: tuple[str, ...]
    objects: tuple[str, ...]
    classes: NDArray[np.int64]
    rare: NDArray[np.bool_]

    @cached_property
    def correct(self) -> NDArray[np.bool_]:
        """(verbs, objects): whether there is such an interaction."""
        return self.numbers >= 0

    @cached_property
    def numbers(self) -> NDArray[np.int64]:
        """(verbs, objects): the class, -1 where there is none."""
        found = np.full((len(self.verbs), len(self.objects)), -1, np.int64)
        found[self.classes[:, 0], self.classes[:, 1]] = np.arange(len(self.classes))
        return found

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Such as "ride bicycle"."""
        return tuple(f"{self.verbs[verb]} {self.objects[object]}" for verb, object in self.classes.tolist())

    def count(self, images: tuple[PairedImage, ...]) -> NDArray[np.int64]:
        """(K,): pairs of each class."""
        found = [self.numbers[image.pairs[:, 2], image.labels[image.pairs[:, 1]]] for image in images]
        return np.bincount(np.concatenate([np.zeros(0, np.int64), *found]), minlength=len(self.classes))


@dataclass(frozen=True, eq=False)
class InteractionData:
    """Persons, objects and verbs, for interaction detection.

    Attributes:
        train: empty, as is `dev`, where there is only what evaluation needs.
    """

    kind: ClassVar[str] = "interaction-detection"
    name: str
    interactions: Interactions
    train: InteractionSplit
    dev: InteractionSplit
    test: InteractionSplit
    notes: tuple[str, ...] = ()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the interactions."""
        return self.interactions.names

    def splits(self) -> dict[str, InteractionSplit]:
        """The three splits by name."""
        return {"train": self.train, "dev": self.dev, "test": self.test}

    def rows(self) -> dict[str, int]:
        """Number of images of each split."""
        return {name: len(split) for name, split in self.splits().items()}

    def class_rows(self) -> Mapping[str, Mapping[str, int]]:
        """Number of pairs of each interaction of each split."""
        return {
            name: dict(zip(self.classes, self.interactions.count(split.images).tolist(), strict=True))
            for name, split in self.splits().items()
        }

    def verify(self, progress: Callable[[], None]) -> None:
        """Decode every image that is there."""
        for split in self.splits().values():
            files = split.files() if split.folder is not None else None
            for index in range(len(split)):
                if files is not None:
                    files[index]
                progress()
