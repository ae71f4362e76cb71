"""Differences between recipes and the published ones. Reported with a trial, but not part of its identity."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dropbench.harness.optimization.options import text_of
from dropbench.harness.trials.recipe import FILLED_IN, NESTED
from dropbench.harness.trials.task import Task
from dropbench.harness.trials.trial import Trial, TrialRequest

PAPER = "paper"
"""The preset that has the published recipe."""


@dataclass(frozen=True)
class Change:
    """A key of a recipe with its value and the published value; None if there is none."""

    key: str
    value: Any
    published: Any


def changes(recipe: Mapping[str, Any], published: Mapping[str, Any]) -> list[Change]:
    """Return the keys that differ, in the order of `published`, then of `recipe`; model options as ``model.depth``."""
    new, old = _flat(recipe), _flat(published)
    keys = [key for key in dict.fromkeys([*old, *new]) if not key.endswith(FILLED_IN)]
    return [Change(key, new.get(key), old.get(key)) for key in keys if new.get(key) != old.get(key)]


def summarize_changes(changes: Iterable[Change]) -> list[str]:
    """Return changes of one or several recipes as ``epochs 15 (310)``: the value, and the published value in brackets.

    Changes of the same key are joined: ``lr 0.001 (0.0005/0.0016)``. Keys that the published recipe does not set, such
    as options of a model, have no brackets.
    """
    keys: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for change in changes:
        values, published = keys.setdefault(change.key, ({}, {}))
        values[_text(change.value)] = None
        if change.published is not None:
            published[_text(change.published)] = None
    if "steps" in keys and "epochs" in keys:  # one length instead of the other
        keys["steps"] = (keys["steps"][0], {f"{epochs} epochs": None for epochs in keys.pop("epochs")[1]})
    return [
        f"{key} {'/'.join(values)}" + (f" ({'/'.join(published)})" if published else "")
        for key, (values, published) in keys.items()
    ]


def recipe_diff(task: type[Task], trial: Trial) -> list[str]:
    """Return the differences between a trial's recipe and the source, for readers of its results."""
    request = TrialRequest(
        task=trial.task, data=trial.data.name, model=trial.model, align=trial.align, preset=PAPER, seed=trial.seed
    )
    published = task.resolved(request)
    return [*published.notes, *summarize_changes(changes(trial.recipe, published.recipe))] if published else []


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    flat = {key: value for key, value in recipe.items() if key not in NESTED}
    return flat | {f"{holder}.{key}": value for holder in NESTED for key, value in recipe.get(holder, {}).items()}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return str(text_of(value))
    if isinstance(value, list | tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
