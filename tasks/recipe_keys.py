"""The keys of a task's recipes, with their types, defaults, units and meaning, for `list recipe` and the docs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.optimization.options import Lora, text_of
from dropbench.harness.trials.recipe import FILLED_IN, complete_recipe
from dropbench.harness.trials.task import spec_of
from dropbench.tasks.preset_task import PresetTask, read_recipes

UNIT = re.compile(r",? in ([a-z-]+)(?=$|[;,])")
"""The unit in the description of a key."""
MAX_CHOICES = 7
"""Values that are listed as the type of a key; those of one with more follow its meaning."""
NAMES: dict[Any, str] = {bool: "true or false", int: "integer", float: "number", str: "text"}


def recipe_keys(task: str, model: str = "") -> list[dict[str, Any]]:
    """Return the keys of a task's recipes: `key`, `type`, `default` by preset, `unit` and `meaning`.

    With a model, the defaults are those of its recipes, keys that it always refuses are left out, and its own options
    follow.

    Raises:
        InputError: a name is unknown, or the task has no presets.
    """
    kind = spec_of(task)
    if not issubclass(kind, PresetTask):
        raise InputError(f"task '{kind.name}' has no presets: its class defines its recipe")
    recipes = kind.recipes or read_recipes(kind.kind)
    own = recipes.get("models", {}).get(MODELS.entry(model).name, {}) if model else {}
    layers = {preset: [keys, own.get(preset, {})] for preset, keys in recipes["presets"].items()}
    typed = {preset: complete_recipe(kind.recipe_type, each) for preset, each in layers.items()}
    complete = {preset: recipe.model_dump() for preset, recipe in typed.items()}
    rows = [_row(key, field, complete) for key, field in _fields(kind.recipe_type)]
    if not model:
        return rows
    facts = MODELS.entry(model).facts
    options: Any = MODELS.get(model, "options") if "options" in facts else BaseModel
    given = {preset: recipe["model"] for preset, recipe in complete.items()}
    rows += [_row(f"model.{key}", field, given) for key, field in options.model_fields.items()]
    refused = set.intersection(*(recipe.refused_by(facts) for recipe in typed.values()))
    return [row for row in rows if row["key"] not in refused]


def _fields(kind: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the keys that a user may set; those of `lora` as ``lora.r``, and none of a model."""
    for key, field in kind.model_fields.items():
        if key != "model" and not key.endswith(FILLED_IN):
            yield key, field
        if key == "lora":
            yield from ((f"{key}.{name}", inner) for name, inner in Lora.model_fields.items())


def _row(key: str, field: FieldInfo, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    name = key.removeprefix("model.")
    meaning = field.description or ""
    unit = UNIT.search(meaning)
    types = [*dict.fromkeys(_types(field.annotation))]
    if len(types) > MAX_CHOICES:
        types, meaning = ["name"], f"{meaning}: {', '.join(types)}"
    return {
        "key": key,
        "type": ", ".join(types),
        "default": {preset: text_of(each.get(name, field.get_default())) for preset, each in values.items()},
        "unit": unit[1] if unit else "",
        "meaning": UNIT.sub("", meaning, count=1),
    }


def _types(annotation: Any) -> Iterator[str]:
    """Yield the types of a value, as users write them."""
    origin = get_origin(annotation)
    if origin is Literal:
        yield from (str(choice).lower() if choice is True else str(choice) for choice in get_args(annotation))
    elif origin is tuple:
        yield "names with commas"
    elif origin is dict or annotation is Lora:
        yield "keys of its own"
    elif annotation in NAMES:
        yield NAMES[annotation]
    elif annotation is not type(None):
        yield from (name for argument in get_args(annotation) for name in _types(argument))
