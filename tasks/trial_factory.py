"""Make a trial from a request: resolve the recipe, fingerprint the data, and check that the parts fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.errors import InputError, unknown_name
from harness.files import read_yaml
from harness.models.catalog import MODELS
from harness.regularizers import REGULARIZERS
from harness.regularizers.base import Site
from harness.regularizers.schedules import SCHEDULES
from harness.regularizers.spec import complete_spec
from harness.settings import Settings
from harness.trials.alignment import FINETUNE, FINETUNE_KEYS, validate_alignment
from harness.trials.plugins import plugin_digests
from harness.trials.recipe import Recipe, ResolvedRecipe, complete_recipe
from harness.trials.task import TASKS, Task
from harness.trials.trial import DataRef, Trial, TrialRequest
from tasks.data import DATASETS, Source, locate, read
from tasks.data.check import subset_notes
from tasks.data.read import Data
from tasks.weights import weights_ref

if TYPE_CHECKING:
    from torch import nn

RECIPES = Path(__file__).parent / "recipes"
D = TypeVar("D", bound=Data)
ModelFactory = Callable[[Recipe, int], "nn.Module"]
"""(recipe, number of classes) → the model of a trial."""


def make_trial(task: type[Task], request: TrialRequest, settings: Settings) -> Trial:
    """Return the trial that a request resolves to.

    Args:
        task: the task of the request.
        request: the requested fields, before recipe and data are resolved.
        settings: the data root and the mapped data folders.

    Raises:
        InputError: a name or key is unknown, a value is impossible, or the data are missing or belong to another task.
    """
    entry = MODELS.entry(request.model)
    if task.name not in entry.facts["tasks"]:
        supported = [name for name in MODELS if task.name in MODELS.entry(name).facts["tasks"]]
        raise InputError(f"model '{entry.name}' does not support task '{task.name}': expected {', '.join(supported)}")
    if request.weights is not None and not entry.facts.get("weights"):
        raise InputError(f"model '{entry.name}' starts from random weights: remove `--weights {request.weights}`")
    schedule = SCHEDULES.entry(request.schedule).name
    regularizer = complete_spec(request.regularizer, request.params)
    align = validate_alignment(request.align, regularizer)
    source = cached_source(request.data, settings)
    if source.dataset.kind != task.name:
        raise InputError(f"data '{request.data}' belong to task '{source.dataset.kind}', not '{task.name}'")
    recipe = _recipe(task, request, source.dataset.name, entry.name, align)
    return Trial(
        task=task.name,
        data=DataRef(name=request.data, fingerprint=cached_fingerprint(source)),
        model=entry.name,
        weights=weights_ref(Path(request.weights)) if request.weights is not None else None,
        regularizer=regularizer,
        # Without a regularizer all schedules are the same trial.
        schedule="constant" if regularizer.name == "none" else schedule,
        align=align,
        preset=request.preset,
        overrides={key: value for key, value in request.overrides.items() if key not in _unused_keys(align)},
        recipe=recipe,
        plugins=plugin_digests((TASKS, task.name), (MODELS, entry.name), (REGULARIZERS, regularizer.name)),
        seed=request.seed,
    )


def recipe_layers(task: str, preset: str, data: str, model: str) -> list[Mapping[str, Any]]:
    """Return the layers of ``recipes/<task>.yaml``, from general to specific: preset, model, data, model on data.

    Raises:
        InputError: the task has no such preset.
    """
    content = read_recipes(task)
    if preset not in content["presets"]:
        raise unknown_name(f"preset of {task}", preset, content["presets"])
    groups = _group_keys(model, data)
    return [content["presets"][preset], *(content.get(group, {}).get(key, {}).get(preset, {}) for group, key in groups)]


def _group_keys(model: str, data: str) -> tuple[tuple[str, str], ...]:
    """Return the groups of a recipe file with the key of this model and data set in each, from general to specific."""
    return ("models", model), ("data", data), ("pairs", f"{model} on {data}")


class PresetTask(Task):
    """A task with presets in ``recipes/<task>.yaml`` and data sets from the catalog."""

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        return make_trial(cls, request, settings)

    @classmethod
    def resolved(cls, request: TrialRequest) -> ResolvedRecipe:
        """See `Task.resolved`."""
        data, model = DATASETS.entry(request.data).name, MODELS.entry(request.model).name
        recipe = _recipe(cls, request, data, model, request.align)
        deviations = read_recipes(cls.name).get("deviations", {})
        groups = (deviations.get(group, {}).get(key, []) for group, key in _group_keys(model, data))
        return ResolvedRecipe(recipe, tuple(chain(deviations.get("all", []), *groups)))


def _recipe(task: type[Task], request: TrialRequest, data: str, model: str, align: str) -> dict[str, Any]:
    layers = recipe_layers(task.name, request.preset, data, model)
    complete = complete_recipe(task.recipe_type, [*layers, request.overrides])
    return complete.model_dump(mode="json", exclude_none=True, exclude=_unused_keys(align))


def _unused_keys(align: str) -> set[str]:
    """Return the recipe keys that a trial without fine-tuning never reads.

    They are not part of such a trial, so that a suite may set them for all of its rows.
    """
    return set() if align == FINETUNE else set(FINETUNE_KEYS)


@lru_cache
def read_recipes(task: str) -> dict[str, Any]:
    """Return the content of a task's recipe file."""
    content: dict[str, Any] = read_yaml(RECIPES / f"{task}.yaml")
    return content


def cached_source(name: str, settings: Settings) -> Source:
    """Return the source of a data set, cached because a suite requests the same set for many cells."""
    return _source(name, settings.data, tuple(settings.folders.items()))


@lru_cache
def _source(name: str, root: Path, folders: tuple[tuple[str, Path], ...]) -> Source:
    return locate(name, root, dict(folders))


@lru_cache
def _fingerprint(source: Source, stamps: tuple[tuple[int, int], ...]) -> str:
    return source.fingerprint()


def cached_fingerprint(source: Source) -> str:
    """Return the fingerprint of a source, recomputed only if the modification time or size of a file changed."""
    stats = [file.stat() for file in source.files]
    return _fingerprint(source, tuple((stat.st_mtime_ns, stat.st_size) for stat in stats))


def resolve_data(trial: Trial, settings: Settings) -> Source:
    """Return the source of a trial's data after checking their fingerprint.

    Raises:
        InputError: the data are missing, or have changed since the trial was made.
    """
    source = locate(trial.data.name, settings.data, settings.folders)
    fingerprint = source.fingerprint()
    if fingerprint != trial.data.fingerprint:
        raise InputError(
            f"data '{trial.data.name}' in {source.folder} have changed since the trial was made: "
            f"fingerprint {fingerprint}, expected {trial.data.fingerprint}"
        )
    return source


def read_with_notes(task: Task, kind: type[D], source: Source | None = None) -> D:
    """Read a task's data, and append the notes on them to the notes of the task.

    Args:
        task: the task of a trial that is about to run.
        kind: the expected type of the data.
        source: the source of the data; None: `resolve_data` finds it.

    Raises:
        InputError: see `resolve_data` and `tasks.data.read.read`.
    """
    source = source or resolve_data(task.trial, task.settings)
    data = read(source, kind)
    task.notes += [*data.notes, *subset_notes(source, data)]
    return data


def check_model(task: type[Task], trial: Trial, build: ModelFactory) -> None:
    """Build and regularize a trial's model on torch's meta device, to report errors before the trial is queued.

    Args:
        task: the task of the trial.
        trial: the trial to check.
        build: makes the model from the recipe and the number of classes; the meta device computes and stores nothing.

    Raises:
        InputError: an option is unknown or impossible, the regularizer fits no site, or its window exceeds the keys.
    """
    if trial.config_id in _checked_configs:
        return
    import torch

    from harness.training.monte_carlo import bind_trial

    recipe = task.recipe_type.model_validate(trial.recipe)
    with torch.device("meta"):
        model = build(recipe, DATASETS.get(trial.data.name).classes)
    report = bind_trial(model, trial)
    window, unit = int(trial.regularizer.params.get("window", 1)), trial.regularizer.params.get("unit")
    for site in report.bound:
        max_window = _max_window(site, recipe, square=unit in ("block", "cross"))
        if max_window is not None and window > max_window:
            name = trial.regularizer.name
            raise InputError(f"regularizer {name}: window={window}: longer than the {max_window} keys of {trial.model}")
    _checked_configs.add(trial.config_id)


_checked_configs: set[str] = set()


def _max_window(site: Site, recipe: Recipe, square: bool) -> int | None:
    """Return the largest window at a site; None if it is unknown before the data are read."""
    if site.grid is None:
        return getattr(recipe, "max_length", None) or getattr(recipe, "context", None)
    return min(site.grid) if square else site.grid[0] * site.grid[1] + site.num_prefix_tokens
