"""Specs of regularizers: names with parameters, on the command line, in suites and in trials."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers import BASELINES, REGULARIZERS
from dropbench.harness.regularizers.base import Regularizer
from dropbench.harness.regularizers.composition import SEPARATOR, Composition, Part
from dropbench.harness.regularizers.schedules import SCHEDULES
from dropbench.harness.validation import StrictModel, input_error

CONSTANT = {"over": "constant"}
"""Parameters that a spec leaves out at these values: every regularizer has them, and few specs set them."""

_NUMBER = re.compile(r"[+-]?(\d+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)", re.ASCII)
"""A number as texts spell it; the group is all digits if it is an integer."""


def _scalar(value: Any) -> Any:
    is_number = (isinstance(value, int) and abs(value) < 2**63) or (isinstance(value, float) and math.isfinite(value))
    if not is_number and not isinstance(value, str):
        raise ValueError("expected text, true, false, or a finite number below 2^63")
    if isinstance(value, str) and _NUMBER.fullmatch(value) is None and _is_python_number(value):
        raise ValueError("expected a finite number in plain digits, such as 20 or 1e-3")
    return value


def _is_python_number(text: str) -> bool:
    """Return whether Python, and with it pydantic, reads a text as a number: also 2_0, inf, or digits of any script."""
    try:
        float(text)
    except ValueError:
        return False
    return True


Scalar = Annotated[bool | int | float | str, BeforeValidator(_scalar)]


class RegularizerSpec(StrictModel):
    """A registered name with all of its parameters, defaults filled in.

    In a composition, also a registered one, the name joins those of the parts by ``+``, in the order in which they are
    applied, and each parameter has the name of its part before it: ``dropkey.ratio``. A part's schedule over layers is
    one of them.
    """

    name: str
    params: dict[str, Scalar] = Field(default_factory=dict)

    def build(self) -> Regularizer:
        """Return the regularizer; raise InputError as `build_regularizer`."""
        return build_regularizer(self.name, **self.params)

    def label(self) -> str:
        """Return the spec as on the command line: ``dropkey:ratio=0.3,window=1 + r-drop:alpha=1``."""
        return spec_label(self.name, self.params)


def spec_label(name: str, params: Mapping[str, Any]) -> str:
    """Return a regularizer as on the command line: ``dropkey:ratio=0.3,window=1 + r-drop:alpha=1``.

    Unlike `split_params` it accepts any parameters, such as those of a plug-in that is not loaded.
    """
    names = [REGULARIZERS.entry(part).name if part in REGULARIZERS else part for part in part_names(name)]
    values: dict[str, dict[str, Any]] = {part: {} for part in names}
    for key, value in params.items():
        part, _, parameter = key.partition(".") if len(names) > 1 else (names[0], "", key)
        values.setdefault(part, {})[parameter] = value
    texts = {part: ",".join(f"{key}={value}" for key, value in own.items()) for part, own in values.items()}
    return f" {SEPARATOR} ".join(f"{part}:{text}" if text else part for part, text in texts.items())


def part_names(name: str) -> list[str]:
    """Return the names of the regularizers that a name joins, or that a registered composition consists of."""
    names = [(part, _composition(part)) for part in _written_names(name)]
    return [each for part, text in names for each in (part_names(parse_spec(text).name) if text else [part])]


def strengths(name: str) -> set[str]:
    """Return the parameters that say how strong a regularizer or each part of a composition is, if it has one."""
    names = part_names(name)
    keys = {part: class_of(part).strength for part in names}
    own = {f"{part}.{key}" if len(names) > 1 else key for part, key in keys.items()}
    return own & {*parameters(name)}


def same_regularizer(first: str, second: str) -> bool:
    """Return whether two names are those of the same regularizer, or join the same parts."""
    return first == second or sorted(part_names(first)) == sorted(part_names(second))


def split_params(name: str, params: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the parameters of each part by its name; raise InputError for a parameter of none, or a repeated part."""
    names = _written_names(name)
    if len(names) == 1:
        return {name: dict(params)}
    values: dict[str, dict[str, Any]] = {part: {} for part in names}
    if len(values) < len(names):
        raise InputError(f"regularizer {name}: '{next(n for n in names if names.count(n) > 1)}' is given twice")
    for key, value in params.items():
        part, _, parameter = key.partition(".")
        if part not in values or not parameter:
            raise InputError(f"regularizer {name}: parameter {key}: expected PART.PARAMETER, such as {names[0]}.ratio")
        values[part][parameter] = value
    return values


def _written_names(name: str) -> list[str]:
    return [part.strip() for part in name.split(SEPARATOR)]


def _composition(name: str) -> str | None:
    """Return the parts of a registered composition, with their parameters as on the command line; None for others."""
    return REGULARIZERS.entry(name).facts.get("parts") if name in REGULARIZERS else None


def expand(name: str, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Replace registered compositions, such as ``hiddenkey``, by their parts; raise as `split_params`."""
    if not any(map(_composition, _written_names(name))):
        return name, dict(params)
    names: list[str] = []
    joined: dict[str, Any] = {}
    for part, values in split_params(name, params).items():
        if text := _composition(part):
            spec = parse_spec(text)
            names.append(spec.name)
            joined |= {**spec.params, **values}
        else:
            names.append(part)
            joined |= {f"{part}.{key}": value for key, value in values.items()}
    return SEPARATOR.join(names), joined


def build_regularizer(name: str, /, **params: Any) -> Regularizer:
    """Build a registered regularizer or a composition.

    Raises:
        InputError: a name or parameter is unknown, a value is impossible, or parts do not go together.
    """
    name, params = expand(name, params)
    if SEPARATOR in name:
        parts = []
        for part, values in split_params(name, params).items():
            schedule = SCHEDULES.entry(str(values.pop("schedule", "constant"))).name
            parts.append(Part(REGULARIZERS.entry(part).name, build_regularizer(part, **values), schedule))
        return Composition(parts)
    kind = class_of(name)
    try:
        return REGULARIZERS.get(name)(**params)
    except ValidationError as error:
        raise input_error(error, f"regularizer {name}", f"parameter of {name}", kind.model_fields) from None


def parameters(name: str) -> tuple[str, ...]:
    """Return the names of a regularizer's parameters; raises InputError if the regularizer is unknown."""
    return tuple(fields(name))


def fields(name: str) -> dict[str, FieldInfo]:
    """Return the parameters of a regularizer with their types; raises InputError if the regularizer is unknown."""
    if len(names := part_names(name)) > 1:
        return {f"{part}.{key}": field for part in names for key, field in fields(part).items()}
    return {} if REGULARIZERS.entry(name).name in BASELINES else dict(class_of(name).model_fields)


def describe_parameters(name: str) -> dict[str, dict[str, Any]]:
    """Return each parameter's default, and what it is in words; raises InputError if the regularizer is unknown."""
    if REGULARIZERS.entry(name).name in BASELINES:
        return {}
    built = build_regularizer(name)
    defaults = built.model_dump(mode="json")
    if isinstance(built, Composition):
        parts = [(part.name, part.regularizer.model_dump(mode="json")) for part in built.parts]
        defaults = {f"{part}.{key}": value for part, values in parts for key, value in values.items()}
    own = fields(name)
    return {key: {"default": value, "help": own[key].description or ""} for key, value in defaults.items()}


def class_of(name: str) -> type[Regularizer]:
    """Return the class of a single regularizer, registered or a preset; raise InputError if it is none."""
    factory = REGULARIZERS.get(name)
    # A preset is a `partial` of its class.
    kind = factory.func if isinstance(factory, partial) else factory
    if not (isinstance(kind, type) and issubclass(kind, Regularizer)):
        raise InputError(f"regularizer {name}: expected a subclass of harness.Regularizer, got {kind!r}")
    return kind


def complete_spec(name: str, params: Mapping[str, Any] | None = None) -> RegularizerSpec:
    """Return the spec with all defaults, so that equal regularizers have equal specs; raise as `build_regularizer`."""
    built = build_regularizer(name, **(params or {}))
    if isinstance(built, Composition):
        values: dict[str, Scalar] = {}
        for part in built.parts:
            if part.name == "none":
                raise InputError(f"regularizer {name}: 'none' is no part of a composition: remove it")
            scheduled = {} if part.schedule == "constant" else {"schedule": part.schedule}
            for key, value in {**_all_params(part.regularizer), **scheduled}.items():
                values[f"{part.name}.{key}"] = value
        return RegularizerSpec(name=SEPARATOR.join(part.name for part in built.parts), params=values)
    name = REGULARIZERS.entry(name).name
    return RegularizerSpec(name=name, params={} if name in BASELINES else _all_params(built))


def _all_params(built: Regularizer) -> dict[str, Any]:
    params = built.model_dump(mode="json")
    return {key: value for key, value in params.items() if CONSTANT.get(key) != value}


_PLUS = re.compile(r"\s*\+\s*(?=[A-Za-z])")  # not the sign of an exponent: 1e+5


class ParsedSpec(NamedTuple):
    """A regularizer as a user writes it, not yet validated; `schedule` and `align` belong to the trial."""

    name: str
    params: dict[str, Scalar]
    schedule: str | None = None
    align: str | None = None


def parse_spec(text: str) -> ParsedSpec:
    """Parse ``name:key=value,…``, or several joined by ``+``; raise InputError if the text is not of that form."""
    texts = _PLUS.split(text)
    if len(texts) > 1:
        parts = [parse_spec(each) for each in texts]
        names, joined = [part.name for part in parts], dict[str, Scalar]()
        for part in parts:
            if part.align:
                raise InputError(f"regularizer '{text}': align={part.align}: a composition is not aligned: remove it")
            if names.count(part.name) > 1:
                raise InputError(f"regularizer '{text}': '{part.name}' is given twice")
            own = {**part.params, **({"schedule": part.schedule} if part.schedule else {})}
            joined.update({f"{part.name}.{key}": value for key, value in own.items()})
        return ParsedSpec(SEPARATOR.join(names), joined)
    name, _, rest = text.partition(":")
    params: dict[str, Scalar] = {}
    for item in filter(None, rest.split(",")):
        key, separator, value = (piece.strip() for piece in item.partition("="))
        if not (separator and key and value):
            raise InputError(f"regularizer '{text}': '{item}' is not of the form key=value")
        if key in params:
            raise InputError(f"regularizer '{text}': '{key}' is given twice")
        params[key] = parse_scalar(value)
    bound = {key: str(params.pop(key)) for key in ("schedule", "align") if key in params}
    return ParsedSpec(name.strip(), params, **bound)


def parse_scalar(text: str) -> Scalar:
    """Return the number or boolean that `text` spells, else the text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = _NUMBER.fullmatch(text)
    if number is None:
        return text
    return int(text) if number[1].isdigit() and len(text) <= 18 else float(text)  # more digits do not fit into 64 bits
