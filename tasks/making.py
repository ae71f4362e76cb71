"""From a request to a trial: the recipe of the preset, the data's fingerprint, and whether all of it fits together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from harness.errors import InputError, unknown_name
from harness.files import canonical_json
from harness.plugins import plugin_digests
from harness.recipe import Recipe, complete_recipe
from harness.regularizers import REGULARIZERS
from harness.regularizers.spec import RegularizerSpec, complete_spec
from harness.schedules import SCHEDULES
from harness.settings import Settings
from harness.task import MODELS, TASKS, Task
from harness.trial import DataRef, Trial, TrialRequest
from tasks.data import SYNTHETIC, Source, locate

if TYPE_CHECKING:
    from torch import nn

RECIPES = Path(__file__).parent / "recipes"
ModelFactory = Callable[[Recipe, Source], "nn.Module"]
"""Builds a trial's model without reading its data, to see whether the options fit."""


def make_trial(task: type[Task], request: TrialRequest, settings: Settings, model: ModelFactory) -> Trial:
    """The trial that a request stands for.

    Args:
        task: the task of the request.
        request: what was asked for.
        settings: where the data lie.
        model: how to build the model; called on torch's meta device, where nothing is computed or stored.

    Raises:
        InputError: an unknown name or key, an impossible value, data that are missing or of another kind of task.
    """
    entry = MODELS.entry(request.model)
    if task.name not in entry.facts["tasks"]:
        served = [name for name in MODELS if task.name in MODELS.entry(name).facts["tasks"]]
        raise InputError(f"model '{entry.name}' does not serve task '{task.name}': expected {', '.join(served)}")
    if request.align != "none":
        raise unknown_name("alignment", request.align, ["none"])
    schedule = SCHEDULES.entry(request.schedule).name
    regularizer = complete_spec(request.regularizer, request.params)
    source = cached_source(request.data, settings)
    if source.dataset.kind != task.name:
        raise InputError(f"data '{request.data}' are for task '{source.dataset.kind}', not '{task.name}'")
    layers = recipe_layers(task.name, request.preset, source.dataset.name, entry.name)
    recipe = complete_recipe(task.recipe_type, [*layers, request.overrides])
    _check_fit(task, entry.name, regularizer, recipe, source, model, request.overrides)
    return Trial(
        task=task.name,
        data=DataRef(name=request.data, fingerprint=cached_fingerprint(source)),
        model=entry.name,
        regularizer=regularizer,
        # Nothing dropped is the same under every schedule.
        schedule="constant" if regularizer.name == "none" else schedule,
        preset=request.preset,
        overrides=request.overrides,
        recipe=recipe.model_dump(mode="json", exclude_none=True),
        plugins=plugin_digests((TASKS, task.name), (MODELS, entry.name), (REGULARIZERS, regularizer.name)),
        seed=request.seed,
    )


def recipe_layers(task: str, preset: str, data: str, model: str) -> list[Mapping[str, Any]]:
    """What ``recipes/<task>.yaml`` says, from the general to the special: preset, model, data, model on data.

    Raises:
        InputError: the task has no such preset.
    """
    content = read_recipes(task)
    if preset not in content["presets"]:
        raise unknown_name(f"preset of {task}", preset, content["presets"])
    layers = [content["presets"][preset]]
    for group, name in (("models", model), ("data", data), ("pairs", f"{model} on {data}")):
        layers.append(content.get(group, {}).get(name, {}).get(preset, {}))
    return layers


@lru_cache
def read_recipes(task: str) -> dict[str, Any]:
    """The content of a task's recipe file."""
    content: dict[str, Any] = yaml.safe_load((RECIPES / f"{task}.yaml").read_text(encoding="utf-8"))
    return content


def cached_source(name: str, settings: Settings) -> Source:
    """Where a trial's data lie; a suite asks for the same set many times."""
    return _source(name, settings.data, tuple(settings.folders.items()))


@lru_cache
def _source(name: str, root: Path, folders: tuple[tuple[str, Path], ...]) -> Source:
    return locate(name, root, dict(folders))


@lru_cache
def _fingerprint(source: Source, stamps: tuple[tuple[int, int], ...]) -> str:
    return source.fingerprint()


def cached_fingerprint(source: Source) -> str:
    """The fingerprint of a source's files, taken again only when they were touched."""
    stats = [file.stat() for file in source.files]
    return _fingerprint(source, tuple((stat.st_mtime_ns, stat.st_size) for stat in stats))


def located(trial: Trial, settings: Settings) -> Source:
    """The data of a trial that is about to run.

    Raises:
        InputError: they are missing, or not those that the trial was made for.
    """
    source = locate(trial.data.name, settings.data, settings.folders)
    found = source.fingerprint()
    if found != trial.data.fingerprint:
        raise InputError(
            f"data '{trial.data.name}' in {source.folder} have changed since the trial was made: "
            f"fingerprint {found}, expected {trial.data.fingerprint}"
        )
    return source


def _check_fit(
    task: type[Task],
    name: str,
    regularizer: RegularizerSpec,
    recipe: Recipe,
    source: Source,
    model: ModelFactory,
    overrides: Mapping[str, Any],
) -> None:
    """Build the model on the meta device where the user's choice may not fit it: that needs its library's import."""
    structured = regularizer.params.get("window", 1) != 1 or regularizer.params.get("unit", "element") != "element"
    if not structured and not any(key == "model" or key.startswith("model.") for key in overrides):
        return
    key = canonical_json([task.name, name, source.name, recipe.model_dump(mode="json"), regularizer.model_dump()])
    if key in _fitting:
        return
    import torch

    from harness.binding import bind

    with torch.device("meta"):
        built = model(recipe, source)
    report = bind(built, regularizer.build())
    window = int(regularizer.params.get("window", 1))
    for site in report.bound:
        unit = regularizer.params.get("unit")
        longest = min(site.grid) if unit in ("block", "cross") and site.grid else site_length(site, recipe)
        if longest is not None and window > longest:
            raise InputError(
                f"regularizer {regularizer.name}: window={window}: longer than the {longest} keys of {name}"
            )
    _fitting.add(key)


_fitting: set[str] = set()


def site_length(site: Any, recipe: Recipe) -> int | None:
    """The most keys that a site can see, where that is known before the data are read."""
    if site.grid is not None:
        return int(site.grid[0] * site.grid[1] + site.prefix)
    return getattr(recipe, "max_length", None)


def is_synthetic(trial: Trial) -> bool:
    """Whether a trial runs on generated data."""
    return trial.data.name.endswith(SYNTHETIC)
