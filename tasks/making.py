"""From a request to a trial: the recipe of the preset, the data's fingerprint, and whether all of it fits together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from harness.align import FINETUNE, FINETUNE_KEYS, checked_align
from harness.deviations import Resolved
from harness.errors import InputError, unknown_name
from harness.files import read_yaml
from harness.models import MODELS
from harness.plugins import plugin_digests
from harness.recipe import Recipe, complete_recipe
from harness.regularizers import REGULARIZERS
from harness.regularizers.spec import complete_spec
from harness.schedules import SCHEDULES
from harness.settings import Settings
from harness.site import Site
from harness.task import TASKS, Task
from harness.trial import DataRef, Trial, TrialRequest
from tasks.data import DATASETS, Source, locate, read
from tasks.data.check import subset_notes
from tasks.data.read import Data
from tasks.weights import weights_ref

if TYPE_CHECKING:
    from torch import nn

RECIPES = Path(__file__).parent / "recipes"
D = TypeVar("D", bound=Data)
ModelFactory = Callable[[Recipe, int], "nn.Module"]
"""(recipe, number of classes) → a trial's model."""


def make_trial(task: type[Task], request: TrialRequest, settings: Settings) -> Trial:
    """The trial that a request stands for.

    Args:
        task: the task of the request.
        request: what was asked for.
        settings: where the data lie.

    Raises:
        InputError: an unknown name or key, an impossible value, data that are missing or of another kind of task.
    """
    entry = MODELS.entry(request.model)
    if task.name not in entry.facts["tasks"]:
        served = [name for name in MODELS if task.name in MODELS.entry(name).facts["tasks"]]
        raise InputError(f"model '{entry.name}' does not serve task '{task.name}': expected {', '.join(served)}")
    if request.weights is not None and not entry.facts.get("weights"):
        raise InputError(f"--weights {request.weights}: model '{entry.name}' begins with random weights: expected none")
    schedule = SCHEDULES.entry(request.schedule).name
    regularizer = complete_spec(request.regularizer, request.params)
    align = checked_align(request.align, regularizer)
    source = cached_source(request.data, settings)
    if source.dataset.kind != task.name:
        raise InputError(f"data '{request.data}' are for task '{source.dataset.kind}', not '{task.name}'")
    recipe = _recipe(task, request, source.dataset.name, entry.name, align)
    return Trial(
        task=task.name,
        data=DataRef(name=request.data, fingerprint=cached_fingerprint(source)),
        model=entry.name,
        weights=weights_ref(Path(request.weights)) if request.weights is not None else None,
        regularizer=regularizer,
        # Nothing dropped is the same under every schedule.
        schedule="constant" if regularizer.name == "none" else schedule,
        align=align,
        preset=request.preset,
        overrides={key: value for key, value in request.overrides.items() if key not in _unread(align)},
        recipe=recipe,
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


def resolved(task: type[Task], request: TrialRequest) -> Resolved | None:
    """See `Task.resolved`.

    Raises:
        InputError: as `make_trial` does for what is wrong with a recipe.
    """
    if not _file(task.name).is_file():
        return None
    data, model = DATASETS.entry(request.data).name, MODELS.entry(request.model).name
    recipe = _recipe(task, request, data, model, request.align)
    words = read_recipes(task.name).get("deviations", {})
    said = [words.get("all", [])]
    for group, name in (("models", model), ("data", data), ("pairs", f"{model} on {data}")):
        said.append(words.get(group, {}).get(name, []))
    return Resolved(recipe, tuple(chain.from_iterable(said)))


def _recipe(task: type[Task], request: TrialRequest, data: str, model: str, align: str) -> dict[str, Any]:
    layers = recipe_layers(task.name, request.preset, data, model)
    complete = complete_recipe(task.recipe_type, [*layers, request.overrides])
    return complete.model_dump(mode="json", exclude_none=True, exclude=_unread(align))


def _unread(align: str) -> set[str]:
    """What only a second phase reads is no part of a trial that has none, so that a suite may set it for all rows."""
    return set() if align == FINETUNE else set(FINETUNE_KEYS)


@lru_cache
def read_recipes(task: str) -> dict[str, Any]:
    """The content of a task's recipe file."""
    content: dict[str, Any] = read_yaml(_file(task))
    return content


def _file(task: str) -> Path:
    return RECIPES / f"{task}.yaml"


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


def read_noted(task: Task, kind: type[D], source: Source | None = None) -> D:
    """A task's data, with what has to be known of them in its notes.

    Args:
        task: about to run.
        kind: what the data have to be.
        source: where they are, if that was found out before.

    Raises:
        InputError: see `located` and `tasks.data.read.read`.
    """
    source = source or located(task.trial, task.settings)
    data = read(source, kind)
    task.notes += [*data.notes, *subset_notes(source, data)]
    return data


def check_model(task: type[Task], trial: Trial, build: ModelFactory) -> None:
    """See whether the model can be built and regularised as the trial says, on torch's meta device.

    Args:
        task: the task of the trial.
        trial: about to be queued.
        build: makes the model from the recipe and the number of classes; nothing is computed or stored.

    Raises:
        InputError: an unknown or impossible option, a regularizer that fits no site, a window beyond the keys.
    """
    if trial.config_id in _fitting:
        return
    import torch

    from harness.binding import bind_trial

    recipe = task.recipe_type.model_validate(trial.recipe)
    with torch.device("meta"):
        model = build(recipe, DATASETS.get(trial.data.name).classes)
    report = bind_trial(model, trial)
    window, unit = int(trial.regularizer.params.get("window", 1)), trial.regularizer.params.get("unit")
    for site in report.bound:
        room = _room(site, recipe, square=unit in ("block", "cross"))
        if room is not None and window > room:
            name = trial.regularizer.name
            raise InputError(f"regularizer {name}: window={window}: longer than the {room} keys of {trial.model}")
    _fitting.add(trial.config_id)


_fitting: set[str] = set()


def _room(site: Site, recipe: Recipe, square: bool) -> int | None:
    """The largest window at a site, where that is known before the data are read."""
    if site.grid is None:
        return getattr(recipe, "max_length", None) or getattr(recipe, "context", None)
    return min(site.grid) if square else site.grid[0] * site.grid[1] + site.prefix
