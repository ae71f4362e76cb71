"""Base class of the tasks: it makes trials from requests, checks that their parts fit together, and builds models."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dropbench.harness.checking.own_entries import blaming, own_entries
from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.files import read_yaml
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.predictions.schema import row_id
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.schedules import SCHEDULES
from dropbench.harness.regularizers.spec import complete_spec, part_names
from dropbench.harness.settings import Settings
from dropbench.harness.trials.alignment import validate_alignment
from dropbench.harness.trials.overrides import unused_keys, with_typed_options
from dropbench.harness.trials.plugins import plugin_digests, recipe_entries
from dropbench.harness.trials.recipe import Recipe, ResolvedRecipe, complete_recipe
from dropbench.harness.trials.result_versions import with_current_versions
from dropbench.harness.trials.task import TASKS, Split, Task
from dropbench.harness.trials.trial import DataRef, Trial, TrialRequest, WeightsRef
from dropbench.tasks.data import DATASETS, Source, locate, read
from dropbench.tasks.data.check import subset_notes
from dropbench.tasks.data.read import Data, ThreeSplits
from dropbench.tasks.data.resolve import has_seeded_split, resolve_data
from dropbench.tasks.weights import load_by_name, load_initial_weights, weights_argument, weights_path, weights_ref

if TYPE_CHECKING:
    from torch import nn

MAX_KEYS = 2048
"""Tokens per image above which a user is warned; ImageNet's models have 784 at most."""
RECIPES = Path(__file__).parent / "recipes"
D = TypeVar("D", bound=Data)


def recipe_layers(recipes: Mapping[str, Any], task: str, preset: str, data: str, model: str) -> list[Mapping[str, Any]]:
    """Return the layers of a task's recipes, from general to specific: preset, model, data, model on data.

    Raises:
        InputError: the task has no such preset.
    """
    if not recipes.get("presets"):
        with blaming(own_entries([("task", task)])):
            raise InputError(f'`recipes` has no presets: expected {{"presets": {{"{preset}": {{"epochs": 5, …}}}}}}')
    if preset not in recipes["presets"]:
        raise unknown_name(f"preset of {task}", preset, recipes["presets"])
    groups = _group_keys(model, data)
    return [recipes["presets"][preset], *(recipes.get(group, {}).get(key, {}).get(preset, {}) for group, key in groups)]


def _group_keys(model: str, data: str) -> tuple[tuple[str, str], ...]:
    """Return the groups of a recipe file with the key of this model and data set in each, from general to specific."""
    return ("models", model), ("data", data), ("pairs", f"{model} on {data}")


class _FirstName:
    """The name of the class of a task, or of its first base class that has one."""

    def __get__(self, task: object, owner: type[Task]) -> str:
        return str(next(vars(base)["name"] for base in reversed(owner.__mro__) if "name" in vars(base)))


class PresetTask(Task):
    """A task with presets in ``recipes/<task>.yaml`` and data sets from the catalog.

    Class attributes:
        kind: the task whose data sets, models and recipes it uses; default: the base class's, else its own name.
        recipes: the recipes of a user's task, with the keys of a recipe file; None: those of the file.
        load_weights: loads a checkpoint into one of DropBench's models, and returns a note on it.

    Attributes, after `setup`:
        classes: names of the labels; empty for data without classes.
        data_metrics: names of the metrics of the data set, if it has others than the task.
        splits: the samples of each split, unless the task overrides `size`.
    """

    kind: ClassVar[str] = _FirstName()  # type: ignore[assignment]
    recipes: ClassVar[Mapping[str, Any] | None] = None
    load_weights: ClassVar[staticmethod[[Any, Path], str]] = staticmethod(load_by_name)
    classes: tuple[str, ...] = ()
    data_metrics: tuple[str, ...] = ()
    splits: Mapping[str, Any]

    @classmethod
    def draft_for(cls, request: TrialRequest) -> Trial:
        entry = MODELS.entry(request.model)
        if cls.kind not in entry.facts.get("tasks", [cls.kind]):
            supported = ", ".join(name for name in MODELS if cls.kind in MODELS.entry(name).facts.get("tasks", ()))
            expected = f"expected {supported or 'one registered with this task'}"
            raise InputError(f"model '{entry.name}' does not support task '{cls.kind}': {expected}")
        if request.weights is not None and not entry.facts.get("weights", entry.plugin is not None):
            raise InputError(f"model '{entry.name}' starts from random weights: remove `--weights {request.weights}`")
        schedule = SCHEDULES.entry(request.schedule).name
        regularizer = complete_spec(request.regularizer, request.params)
        if regularizer.name == "none":  # without a regularizer all schedules are the same trial
            schedule = "constant"
        names = part_names(regularizer.name)
        if len(names) > 1 and schedule != "constant":
            raise InputError(f"schedule '{schedule}': each part has its own: `{names[0]}:schedule={schedule} + …`")
        align = validate_alignment(request.align, regularizer)
        unused = unused_keys(align, names)
        recipe = cls._recipe(request, DATASETS.entry(request.data).name, entry.name, unused)
        draft = Trial(
            task=cls.name,
            data=DataRef(name=request.data, fingerprint=""),
            model=entry.name,
            weights=None if request.weights is None else WeightsRef(path=weights_path(request.weights), digest=""),
            regularizer=regularizer,
            schedule=schedule,
            align=align,
            preset=request.preset,
            overrides={key: value for key, value in request.overrides.items() if key not in unused},
            recipe=recipe,
            plugins=plugin_digests(
                *((TASKS, cls.name), (MODELS, entry.name), (SCHEDULES, schedule), (DATASETS, request.data)),
                *((REGULARIZERS, name) for name in names),
                *recipe_entries(recipe),
            ),
            seed=request.seed,
        )
        return with_current_versions(draft)

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """Return the trial of a request; raise InputError for unknown names or keys, wrong values or missing data."""
        draft = cls.draft_for(request)
        source = locate(request.data, settings.data, settings.folders)
        source.require_kind(cls.kind)
        fingerprint = source.fingerprint(trust_cache=settings.trust_cache)
        if "seed_splits" in draft.recipe and not has_seeded_split(source, fingerprint):
            raise InputError(f"seed_splits: no split of '{source.name}' is made by a seed: remove seed_splits")
        folder = settings.folders.get(request.data)
        files = {
            "data": DataRef(name=request.data, fingerprint=fingerprint, path=folder and str(folder.absolute())),
            "weights": weights_ref(draft.weights.path) if draft.weights is not None else None,
            "recipe": {**draft.recipe, **cls.check_files(draft.recipe, source, settings)},
        }
        return draft.model_copy(update=files)

    @classmethod
    def check_files(cls, recipe: Mapping[str, Any], source: Source, settings: Settings) -> dict[str, str]:
        """Check the files that a trial needs, and return recipe keys to fill in: digests of those besides its data.

        Raises:
            InputError: a file is missing; the message says how to obtain it.
        """
        return {}

    @classmethod
    def resolved(cls, request: TrialRequest) -> ResolvedRecipe | None:
        if cls.recipes is not None:
            return None  # nothing was published
        data, model = DATASETS.entry(request.data).name, MODELS.entry(request.model).name
        recipe = cls._recipe(request, data, model, unused_keys(request.align, part_names(request.regularizer)))
        deviations = read_recipes(cls.kind).get("deviations", {})
        groups = (deviations.get(group, {}).get(key, []) for group, key in _group_keys(model, data))
        return ResolvedRecipe(recipe, tuple(chain(deviations.get("all", []), *groups)))

    @classmethod
    def recipe_parts(cls, request: TrialRequest) -> dict[str, Mapping[str, Any]]:
        data, model = DATASETS.entry(request.data).name, MODELS.entry(request.model).name
        layers = recipe_layers(cls.recipes or read_recipes(cls.kind), cls.kind, request.preset, data, model)
        names = (cls.name, *(f"{cls.name} {key}" for _, key in _group_keys(model, data)))
        return dict(zip(names, layers, strict=True))

    @classmethod
    def _recipe(cls, request: TrialRequest, data: str, model: str, unused: Set[str]) -> dict[str, Any]:
        layers = recipe_layers(cls.recipes or read_recipes(cls.kind), cls.kind, request.preset, data, model)
        try:
            complete = complete_recipe(cls.recipe_type, [*layers, with_typed_options(request.overrides, model)])
        except InputError:
            if cls.recipes is not None:
                with blaming(own_entries([("task", cls.name)])):
                    complete_recipe(cls.recipe_type, layers)
            raise
        return complete.model_dump(mode="json", exclude_none=True, exclude={*unused})

    @classmethod
    def check(cls, trial: Trial) -> None:
        """Build and regularize the model on torch's meta device, which computes and stores nothing.

        Raises:
            InputError: an option is unknown or impossible, or a window is too long.
            UnsuitableError: the regularizer fits no site, or needs class scores that the task does not give.
        """
        if trial.config_id in _checked_configs:
            return
        import torch

        from dropbench.harness.models.sites import sites
        from dropbench.harness.regularizers.composition import Composition, same_stage
        from dropbench.harness.training.regularization import bind_trial, check_objective
        from dropbench.harness.trials.optimization import check_rates

        recipe = cls.recipe_type.model_validate(trial.recipe)
        with torch.device("meta"):
            model = cls.make_model(trial, recipe, cls.sizes_for(recipe, DATASETS.get(trial.data.name).classes or 2))
        report = bind_trial(model, trial)
        check_rates(model, recipe, trial.overrides)
        check_objective(report.regularizer, cls, trial.regularizer.name)
        if isinstance(report.regularizer, Composition):
            for first, second in same_stage(report.regularizer.parts):
                _print_once(f"{first} + {second}: applied as written: the other order is another trial")
        window, unit = int(trial.regularizer.params.get("window", 1)), trial.regularizer.params.get("unit")
        for site in report.bound:
            max_window = _max_window(site, recipe, square=unit in ("block", "cross"))
            if max_window is not None and window > max_window:
                name, keys = trial.regularizer.name, f"the {max_window} keys of {trial.model}"
                raise InputError(f"regularizer {name}: window={window}: longer than {keys}")
        grids = [site.grid for site in sites(model) if site.kind == "encoder-self" and site.grid is not None]
        if (tokens := max((rows * columns for rows, columns in grids), default=0)) > MAX_KEYS:
            _print_once(f"{trial.model}: {tokens:,} tokens per image are slow: pass `--set image_size=64` or smaller")
        _checked_configs.add(trial.config_id)

    @classmethod
    def make_model(cls, trial: Trial, recipe: Any, sizes: Mapping[str, Any]) -> nn.Module:
        """Return the model of a trial, with random weights unless it is built from a folder; `sizes`: its arguments."""
        from torch import nn

        model = MODELS.get(trial.model)(trial.model, recipe.model, **sizes, **weights_argument(trial))
        if not isinstance(model, nn.Module):
            raise InputError(f"model '{trial.model}': its function returned {model!r:.60}: expected a torch.nn.Module")
        return model

    @classmethod
    def sizes_for(cls, recipe: Any, classes: int) -> dict[str, Any]:
        """Return the model's sizes for a number of classes, before any data are read; default: none.

        A size that the data determine is added by `model_sizes`; the model's function needs a default for it.
        """
        return {}

    def model_sizes(self) -> dict[str, Any]:
        """Return the model's sizes for the data that `setup` has read."""
        return self.sizes_for(self.recipe, len(self.classes))

    def build_model(self) -> nn.Module:
        self.load_initial_weights(model := self.make_model(self.trial, self.recipe, self.model_sizes()))
        return model

    def load_initial_weights(self, model: nn.Module) -> None:
        """Load the trial's initial weights unless `make_model` did, and append a note; InputError: they do not fit."""
        self.notes += load_initial_weights(self.trial, model, self.load_weights)

    def setup(self) -> None:
        """Read the data into `splits` and `classes`."""
        self.splits = self.read_data(ThreeSplits).splits()

    def size(self, split: Split) -> int:
        return len(self.splits[split])

    def batch(self, split: Split, indices: Sequence[int]) -> Any:
        """Return rows, such as pairs of tensors, as a batch of stacked tensors."""
        from torch.utils.data import default_collate

        return default_collate([self.splits[split][index] for index in indices])

    def example_id(self, split: Split, index: int) -> str | None:
        """Return an id by the content of a row of tensors, numbers and texts; None for other rows."""
        return row_id(self.splits[split][index])

    def read_data(self, kind: type[D]) -> D:
        """Read the trial's data, set `classes`, and append to `notes`; raise as `resolve_data` and `read`."""
        data = read(source := resolve_data(self.trial, self.settings), kind)
        self.classes, self.data_metrics = tuple(data.classes), source.dataset.metrics
        self.notes += [*data.notes, *subset_notes(source, data)]
        return data


_checked_configs: set[str] = set()


@lru_cache
def _print_once(line: str) -> None:
    print(line, file=sys.stderr)


def _max_window(site: Site, recipe: Recipe, square: bool) -> int | None:
    """Return the largest window at a site; None if it is unknown before the data are read."""
    if site.grid is None:
        return getattr(recipe, "max_length", None) or getattr(recipe, "context", None)
    return min(site.grid) if square else site.grid[0] * site.grid[1] + site.num_prefix_tokens


@lru_cache
def read_recipes(task: str) -> dict[str, Any]:
    """Return the content of a task's recipe file; raise InputError if there is none."""
    if not (file := RECIPES / f"{task}.yaml").is_file():
        raise InputError(f"task '{task}' has no recipes: set `recipes` of its class, or `kind` to a task that has some")
    return dict(read_yaml(file))
