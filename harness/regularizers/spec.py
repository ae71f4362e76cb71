"""A regularizer as it is written down: on the command line, in a suite, in a trial."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import InputError
from harness.regularizers import REGULARIZERS
from harness.regularizers.base import Regularizer
from harness.validation import input_error

Scalar = bool | int | float | str


class RegularizerSpec(BaseModel):
    """A registered name with all of its parameters, defaults filled in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    params: dict[str, Scalar] = {}

    def build(self) -> Regularizer:
        """The regularizer itself.

        Raises:
            InputError: the name or a parameter is unknown, or a value impossible.
        """
        return build_regularizer(self.name, **self.params)

    def label(self) -> str:
        """As on the command line: ``dropkey:ratio=0.3,window=1``."""
        shown = ",".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.name}:{shown}" if shown else self.name


def build_regularizer(name: str, /, **params: Any) -> Regularizer:
    """Make a registered regularizer.

    Raises:
        InputError: the name or a parameter is unknown, a value is impossible, or what is registered is no regularizer.
    """
    kind = _class(name)
    try:
        return REGULARIZERS.get(name)(**params)
    except ValidationError as error:
        raise input_error(error, f"regularizer {name}", f"parameter of {name}", kind.model_fields) from None


def parameters(name: str) -> tuple[str, ...]:
    """Names of a regularizer's parameters, none of `none`; raises InputError where there is no such regularizer."""
    return () if REGULARIZERS.entry(name).name == "none" else tuple(_class(name).model_fields)


def _class(name: str) -> type[Regularizer]:
    factory = REGULARIZERS.get(name)
    # A named point of a space of parameters is a `partial` of its class.
    kind = factory.func if isinstance(factory, partial) else factory
    if not (isinstance(kind, type) and issubclass(kind, Regularizer)):
        raise InputError(f"regularizer {name}: expected a subclass of harness.Regularizer, got {kind!r}")
    return kind


def complete_spec(name: str, params: Mapping[str, Any] | None = None) -> RegularizerSpec:
    """The spec with every default written out, so that equal regularizers have equal specs.

    Raises:
        InputError: see `build_regularizer`.
    """
    name = REGULARIZERS.entry(name).name
    built = build_regularizer(name, **(params or {}))
    return RegularizerSpec(name=name, params={} if name == "none" else built.model_dump(mode="json"))


def parse_spec(text: str) -> tuple[str, dict[str, Scalar]]:
    """``name:key=value,…`` → (name, parameters), not yet validated; `schedule` and `align` may be among them.

    Raises:
        InputError: the text is not of that form.
    """
    name, _, rest = text.partition(":")
    params: dict[str, Scalar] = {}
    for part in filter(None, rest.split(",")):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not (separator and key and value):
            raise InputError(f"regularizer '{text}': '{part}' is not of the form key=value")
        if key in params:
            raise InputError(f"regularizer '{text}': '{key}' is given twice")
        params[key] = parse_scalar(value)
    return name.strip(), params


def parse_scalar(text: str) -> Scalar:
    """The number or truth value that `text` reads as, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
