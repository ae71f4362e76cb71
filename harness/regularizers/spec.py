"""Specs of regularizers: names with parameters, on the command line, in suites and in trials."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from harness.errors import InputError
from harness.regularizers import REGULARIZERS
from harness.regularizers.base import Regularizer
from harness.validation import StrictModel, input_error


def _scalar(value: Any) -> Any:
    is_number = (isinstance(value, int) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value))
    if not is_number and not isinstance(value, str):
        raise ValueError("expected text, true, false, or a finite number below 2^63")
    return value


Scalar = Annotated[bool | int | float | str, BeforeValidator(_scalar)]


class RegularizerSpec(StrictModel):
    """A registered name with all of its parameters, defaults filled in."""

    name: str
    params: dict[str, Scalar] = Field(default_factory=dict)

    def build(self) -> Regularizer:
        """Return the regularizer; raise InputError as `build_regularizer`."""
        return build_regularizer(self.name, **self.params)

    def label(self) -> str:
        """Return the spec as on the command line: ``dropkey:ratio=0.3,window=1``."""
        params = ",".join(f"{key}={value}" for key, value in self.params.items())
        return f"{self.name}:{params}" if params else self.name


def build_regularizer(name: str, /, **params: Any) -> Regularizer:
    """Build a registered regularizer; raise InputError for an unknown name or parameter, or an impossible value."""
    kind = _class(name)
    try:
        return REGULARIZERS.get(name)(**params)
    except ValidationError as error:
        raise input_error(error, f"regularizer {name}", f"parameter of {name}", kind.model_fields) from None


def parameters(name: str) -> tuple[str, ...]:
    """Return the names of a regularizer's parameters; raises InputError if the regularizer is unknown."""
    return tuple(fields(name))


def fields(name: str) -> dict[str, FieldInfo]:
    """Return the parameters of a regularizer with their types; raises InputError if the regularizer is unknown."""
    return {} if REGULARIZERS.entry(name).name == "none" else dict(_class(name).model_fields)


def _class(name: str) -> type[Regularizer]:
    factory = REGULARIZERS.get(name)
    # A preset is a `partial` of its class.
    kind = factory.func if isinstance(factory, partial) else factory
    if not (isinstance(kind, type) and issubclass(kind, Regularizer)):
        raise InputError(f"regularizer {name}: expected a subclass of harness.Regularizer, got {kind!r}")
    return kind


def complete_spec(name: str, params: Mapping[str, Any] | None = None) -> RegularizerSpec:
    """Return the spec with all defaults, so that equal regularizers have equal specs; raise as `build_regularizer`."""
    name = REGULARIZERS.entry(name).name
    built = build_regularizer(name, **(params or {}))
    return RegularizerSpec(name=name, params={} if name == "none" else built.model_dump(mode="json"))


class ParsedSpec(NamedTuple):
    """A regularizer as a user writes it, not yet validated; `schedule` and `align` belong to the trial."""

    name: str
    params: dict[str, Scalar]
    schedule: str | None = None
    align: str | None = None


def parse_spec(text: str) -> ParsedSpec:
    """Parse ``name:key=value,…``; raise InputError if the text is not of that form."""
    name, _, rest = text.partition(":")
    params: dict[str, Scalar] = {}
    for part in filter(None, rest.split(",")):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not (separator and key and value):
            raise InputError(f"regularizer '{text}': '{part}' is not of the form key=value")
        if key in params:
            raise InputError(f"regularizer '{text}': '{key}' is given twice")
        params[key] = parse_scalar(value)
    bound = {key: str(params.pop(key)) for key in ("schedule", "align") if key in params}
    return ParsedSpec(name.strip(), params, **bound)


def parse_scalar(text: str) -> Scalar:
    """Return the number or boolean that `text` spells, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float)[len(text) > 18 :]:  # more digits do not fit into 64 bits
        try:
            return kind(text)
        except ValueError:
            continue
    return text
