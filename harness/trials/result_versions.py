"""Result versions of the engine, tasks, models and regularizers: raised when a change of code changes their numbers.

An item's version is part of every trial that uses it, except for version 1. Version 0 of the engine is that of the
shipped reference trials, which an earlier state of the code trained. A task and a regularizer declare it as the
class attribute `result_version`, a model in ``catalog.yaml`` or where it is registered, and the engine here.
`tests/result_versions` fails when the numbers of an item change and its version does not.
"""

from __future__ import annotations

from contextlib import suppress

from dropbench.harness.errors import ENQUEUE_AGAIN, InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.regularizers.spec import class_of, part_names
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import Trial

ENGINE = 1
"""The result version of the engine: training loop, optimization, seeding, attention, data loading."""
AUGMENTATION = {"randaugment": 2, "erase": 2}
"""The result version of augmentation by the recipe's key; only trials that use it have it."""


def current_versions(trial: Trial) -> dict[str, int]:
    """Return the result version of every item that a trial uses, by item: ``engine``, ``regularizer dropkey``."""
    return {item: item_version(item) for item in _items(trial)}


def _items(trial: Trial) -> tuple[str, ...]:
    regularizers = (f"regularizer {name}" for name in part_names(trial.regularizer.name) if name != "none")
    augmentation = (f"augmentation {key}" for key in AUGMENTATION if trial.recipe.get(key))
    return ("engine", f"task {trial.task}", f"model {trial.model}", *augmentation, *regularizers)


def item_version(item: str) -> int:
    """Return the result version of ``engine``, or of a task, model, regularizer or augmentation; 1 for data sets.

    Raises:
        InputError: the task or regularizer is unknown or broken.
    """
    kind, _, name = item.partition(" ")
    if kind == "task":
        return spec_of(name).result_version
    if kind == "regularizer":
        return class_of(name).result_version
    if kind == "model" and name in MODELS:  # a task may build its models itself
        return int(MODELS.entry(name).facts.get("result_version", 1))
    if kind == "augmentation":
        return AUGMENTATION.get(name, 1)
    return ENGINE if kind == "engine" else 1


def with_current_versions(trial: Trial) -> Trial:
    """Return the trial with the versions of its items that are not 1."""
    versions = {item: version for item, version in current_versions(trial).items() if version != 1}
    return trial if versions == trial.result_versions else trial.model_copy(update={"result_versions": versions})


def check_versions(trial: Trial) -> None:
    """Raise InputError if a trial was requested with other result versions than the current ones."""
    if note := version_note(trial, "requested"):
        raise InputError(f"{note}: {ENQUEUE_AGAIN}")


def version_note(trial: Trial, verb: str = "trained") -> str | None:
    """Return ``trained with result version 1 of regularizer dropkey; version 2 is current``, or None if all agree."""
    return ", ".join(version_notes(trial, verb).values()) or None


def version_notes(trial: Trial, verb: str = "trained") -> dict[str, str]:
    """Return a note as of `version_note` for each item whose result version is not the current one.

    Items that are not registered here, such as those of a plug-in, are left out.
    """
    notes = {}
    for item in _items(trial):
        if item == f"model {trial.model}" and trial.model not in MODELS:
            continue
        with suppress(InputError):
            version, own = item_version(item), trial.result_versions.get(item, 1)
            if version != own:
                notes[item] = f"{verb} with result version {own} of {item}; version {version} is current"
    return notes
