"""Every data set by name. A module of this package lists the sets of one kind in `SETS`; a new kind is a new module."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from harness.registry import Registry
from tasks.data.dataset import SYNTHETIC, Dataset

DATASETS: Registry[Dataset] = Registry("data")


def add(dataset: Dataset) -> None:
    """Register a set, and its synthetic twin as another name of the same entry.

    Raises:
        ValueError: the name is taken by another set.
    """
    twin = (dataset.name + SYNTHETIC,) if dataset.synthetic else ()
    DATASETS.add(dataset.name, dataset, *twin, help=dataset.help, kind=dataset.kind, classes=dataset.classes)


for _module in sorted(module.name for module in pkgutil.iter_modules(__path__)):
    for _dataset in import_module(f"{__name__}.{_module}").SETS:
        add(_dataset)
