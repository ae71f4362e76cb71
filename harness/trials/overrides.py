"""Overrides of a recipe: which of them a trial reads, and their types. What trains the same weights has the same id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.optimization.options import split_key, text_of
from dropbench.harness.regularizers.spec import Scalar, class_of
from dropbench.harness.trials.alignment import FINETUNE, FINETUNE_KEYS
from dropbench.harness.trials.recipe import MODEL_PREFIX, NESTED, Recipe
from dropbench.harness.validation import as_field

Overrides = Mapping[str, Scalar]


def unused_keys(align: str, regularizers: Iterable[str]) -> frozenset[str]:
    """Return recipe keys that a trial never reads: without fine-tuning, or if its regularizers act on no site.

    A suite may set them for all of its rows.
    """
    acts = any(name != "none" and class_of(name).sites for name in regularizers)
    return (frozenset() if align == FINETUNE else FINETUNE_KEYS) | (frozenset() if acts else {"kinds"})


def with_typed_options(overrides: Overrides, model: str) -> dict[str, Scalar]:
    """Return overrides with the options of a model in their types; one that declares none has integers where it can."""
    kind: Any = MODELS.get(model, "options") if "options" in MODELS.entry(model).facts else None

    def typed(option: str, value: Scalar) -> Any:
        if kind is not None:
            return as_field(kind, option, value)
        return int(value) if isinstance(value, float) and value.is_integer() else value

    return {
        key: typed(key.removeprefix(MODEL_PREFIX), value) if key.startswith(MODEL_PREFIX) else value
        for key, value in overrides.items()
    }


def checked_overrides(overrides: Overrides, kind: type[Recipe], recipe: Mapping[str, Any], model: str) -> Overrides:
    """Return overrides with the values that a recipe made of them, so that 2 and 2.0 steps are one trial.

    Args:
        overrides: by recipe key.
        kind: the class of the recipe.
        recipe: the recipe with the overrides, as in `Trial.recipe`.
        model: name of the model; a task may build models that are not registered.

    Raises:
        InputError: a key is not read.
    """
    if not overrides:
        return overrides
    unread = kind.model_validate(recipe).unread(MODELS.entry(model).facts if model in MODELS else {})
    for key, value in overrides.items():
        if (reason := unread.get(key) or unread.get(split_key(key, NESTED)[0])) is not None:
            raise InputError(f"recipe: {key}={value}: {reason}: remove it")
    return {key: _value(recipe, key, value) for key, value in overrides.items()}


def _value(recipe: Mapping[str, Any], key: str, given: Scalar) -> Any:
    """Return the value of a key in a recipe, as on the command line; a recipe leaves out what is None."""
    holder, inner = split_key(key, NESTED)
    return text_of((recipe.get(holder, {}) if holder else recipe).get(inner, given))
