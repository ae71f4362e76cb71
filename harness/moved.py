"""Modules that plug-ins of 0.1 import by their old names; importing one warns and hands on the new one's names."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MOVED: dict[str, tuple[str, ...]] = {
    "harness.adapter": ("harness.models.adapter",),
    "harness.backends": ("harness.attention.backends",),
    "harness.binding": ("harness.models.regularize",),
    "harness.feedforward": ("harness.regularizers.output",),
    "harness.masks": ("harness.attention.reference.drop_masks",),
    "harness.penalty": ("harness.regularizers.auxiliary_loss",),
    "harness.recipe": ("harness.trials.recipe",),
    "harness.schedules": ("harness.regularizers.schedules",),
    "harness.site": ("harness.regularizers.base",),
    "harness.task": ("harness.trials.task", "harness.trials.metric", "harness.trials.sample_view"),
    "harness.trial": ("harness.trials.trial",),
    "adapters.image_weights": ("adapters.vision.image_weights",),
    "adapters.torch_attention": ("adapters.libraries.torch_attention",),
    "adapters.volo": ("adapters.vision.volo",),
    "tasks.data.vectors": ("tasks.data.text.word_vectors",),
    "tasks.interaction_ap": ("tasks.detection.interaction_ap",),
}
RENAMED = {"Mark": "Overlay", "Marks": "Overlays", "OwnLoss": "AuxLoss", "Shown": "SampleView", "used": "used_backends"}
"""Names in these modules, up to 0.1."""


def names_of(*modules: str) -> Callable[[str], Any]:
    """Return a module's ``__getattr__`` that looks names up in other modules."""

    def look_up(name: str) -> Any:
        if not name.startswith("__"):
            for module in map(importlib.import_module, modules):
                for known_as in (name, RENAMED.get(name, name)):
                    if known_as in module.__dict__:
                        return module.__dict__[known_as]
        raise AttributeError(f"{' and '.join(modules)} have no '{name}'")

    return look_up


class _MovedModules:
    """Import finder and loader; asked last, so that it costs nothing unless a module is missing."""

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(name, self) if name in MOVED else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        new = MOVED[module.__name__]
        warnings.warn(f"{module.__name__} is now {' and '.join(new)}", DeprecationWarning, stacklevel=5)
        module.__dict__["__getattr__"] = names_of(*new)


def install() -> None:
    """Let the old names be imported."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
