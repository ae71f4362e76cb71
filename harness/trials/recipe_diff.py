"""How recipes differ from the published ones: in words, and key by key. It is told of a trial, and no part of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.trials.trial import Trial, TrialRequest

if TYPE_CHECKING:
    from harness.trials.task import Task

FILLED_IN = "_fingerprint"
"""How the names of keys end that are no choice, but filled in from the user's files."""
PAPER = "paper"
"""The preset that has the published recipe."""


@dataclass(frozen=True)
class Change:
    """A key of a recipe with the value that it has, and the published one; None where it has none."""

    key: str
    value: Any
    published: Any


def changes(recipe: Mapping[str, Any], published: Mapping[str, Any]) -> list[Change]:
    """The keys that differ, in the order of `published`, then of `recipe`; options of the model as ``model.depth``."""
    here, there = _flat(recipe), _flat(published)
    keys = [key for key in dict.fromkeys([*there, *here]) if not key.endswith(FILLED_IN)]
    return [Change(key, here.get(key), there.get(key)) for key in keys if here.get(key) != there.get(key)]


def summarize_changes(found: Iterable[Change]) -> list[str]:
    """Changes of one recipe or of several as ``epochs 15 (310)``: what is set here, and in brackets what is published.

    Changes of the same key are told together: ``lr 0.001 (0.0005/0.0016)``. What the published recipe does not set,
    such as options of a model, has no brackets.
    """
    keys: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for change in found:
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
    """What a reader of a trial's results should know of its recipe, beside what the source says."""
    request = TrialRequest(
        task=trial.task, data=trial.data.name, model=trial.model, align=trial.align, preset=PAPER, seed=trial.seed
    )
    published = task.resolved(request)
    if published is None:
        return []
    return [*published.notes, *summarize_changes(changes(trial.recipe, published.recipe))]


def _flat(recipe: Mapping[str, Any]) -> dict[str, Any]:
    options = {f"model.{key}": value for key, value in recipe.get("model", {}).items()}
    return {**{key: value for key, value in recipe.items() if key != "model"}, **options}


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return "+".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
