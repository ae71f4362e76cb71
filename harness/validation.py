"""Pydantic's findings as one line for the user."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

from harness.errors import InputError, unknown_name


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
