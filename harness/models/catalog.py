"""The registry of models, filled from ``catalog.yaml``: their builders and the tasks that they serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dropbench.harness.files import read_yaml
from dropbench.harness.registry import Registry

if TYPE_CHECKING:
    from torch import nn

ModelBuilder = Callable[..., "nn.Module"]
"""(name as registered, options that differ from those of the named model, **properties of the task's data) -> the
model, with random weights. It raises InputError for an option that is unknown or does not fit."""

MODELS: Registry[ModelBuilder] = Registry("model", "a function", callable, "models")
"""Fact `tasks`: the tasks of a model, default all; `parameters`: its size for data with the properties `sample`;
`options`: the class of its options, so that their types are known without torch; `result_version`: raised when a change
of the model changes its numbers, default 1; `attention_dropout`: whether it may bring its own dropout of attention
weights along, for the legend of tables."""

_catalog = read_yaml(Path(__file__).with_suffix(".yaml"))
_samples: dict[str, dict[str, Any]] = {
    name: {key: tuple(value) if isinstance(value, list) else value for key, value in sample.items()}
    for name, sample in _catalog["samples"].items()
}
CIFAR, IMAGENET = _samples["cifar"], _samples["imagenet"]

for _family in _catalog["families"]:
    for _name, _facts in _family.pop("models").items():
        if "sample" in _facts:
            _facts["sample"] = _samples[_facts["sample"]]
        MODELS.add(_name, **{**_family, "tasks": tuple(_family["tasks"]), **_facts})
