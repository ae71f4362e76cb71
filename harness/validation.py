"""Pydantic's findings as one line for the user."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from harness.errors import InputError, unknown_name

Options = TypeVar("Options", bound=BaseModel)


def input_error(error: ValidationError, where: str, noun: str, known: Iterable[str]) -> InputError:
    """The first finding of `error`: `noun` is what an unknown key is called, `known` the keys that exist."""
    first = error.errors()[0]
    key = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return unknown_name(noun, key, known)
    message = first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    value = first["input"]
    if not key:
        return InputError(f"{where}: {message}")
    shown = f"={value}" if isinstance(value, bool | int | float | str) else ""
    return InputError(f"{where}: {key}{shown}: {message}")


def model_options(kind: type[Options], name: str, options: Mapping[str, Any]) -> Options:
    """The options of the model `name`; raises InputError for an unknown one, with the nearest, or an impossible one."""
    try:
        return kind(**options)
    except ValidationError as error:
        raise input_error(error, f"model {name}", f"option of model {name}", kind.model_fields) from None
