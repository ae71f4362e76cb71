"""Strict models, and pydantic's findings as one line for the user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.files import yaml_line

Model = TypeVar("Model", bound=BaseModel)


class StrictModel(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class FiniteModel(StrictModel):
    """A strict model that rejects infinite numbers and NaN."""

    model_config = ConfigDict(allow_inf_nan=False)


def input_error(
    error: ValidationError, where: str | Path, noun: str | None, known: Mapping[str, FieldInfo]
) -> InputError:
    """Return the first finding of `error`; `noun` names an unknown key, and `known` are the fields of the model.

    If it is a missing key, the error names the other missing keys, too. An unknown key comes before all other findings,
    since a misspelled key is missing under its right name, too.
    If `where` is the path of a YAML file, the message has the line. A text among the annotations of a field says which
    values the field accepts, and replaces pydantic's message.
    """
    first = min(error.errors(), key=lambda finding: finding["type"] not in ("extra_forbidden", "invalid_key"))
    where = located(where, first["loc"])
    noun = noun or f"key in {where}"
    missing = [finding["loc"] for finding in error.errors()[:20] if finding["type"] == first["type"] == "missing"]
    key = ", ".join(".".join(map(str, loc)) for loc in missing or [first["loc"]])
    if first["type"] == "extra_forbidden":
        *path, last = first["loc"]
        kind = f"{noun} at {'.'.join(map(str, path))}" if path else noun
        return unknown_name(kind, str(last), _fields_at(path, known))
    given = first["input"]
    is_short = abs(given) < 2**63 if isinstance(given, int) else isinstance(given, float | str)
    value = f"={given!s:.60}" if is_short else ""
    message = "fields required" if len(missing) > 1 else first["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    if not missing and (expected := _expected(first["loc"], known)) is not None:
        key, message = ".".join(map(str, expected[0])), f"expected {expected[1]}"
    return InputError(f"{where}: {key}{value}: {message}" if key else f"{where}: {message}")


def located(where: str | Path, keys: Iterable[int | str]) -> str:
    """Return `where`; the path of a YAML file is followed by the line of the value at `keys`."""
    return f"{where}:{yaml_line(where, keys)}" if isinstance(where, Path) else where


def _expected(path: Sequence[int | str], fields: Mapping[str, FieldInfo]) -> tuple[Sequence[int | str], str] | None:
    """Return the values that the innermost field of a path accepts, and the path without names of types after it."""
    text, end, kind = None, 0, None
    for number, part in enumerate(path, start=1):
        if part in fields:
            field = fields[str(part)]
            text, end = next((each for each in field.metadata if isinstance(each, str)), None), number
            kind, fields = field.annotation, _fields_at([part], fields)
    holds_keys = text is not None and any(get_origin(each) is dict for each in (kind, *get_args(kind)))
    rest = (part for part in path[end:] if holds_keys or isinstance(part, int))
    return None if text is None else ((*path[:end], *rest), text)


def _fields_at(path: Iterable[int | str], fields: Mapping[str, FieldInfo]) -> Mapping[str, FieldInfo]:
    """Return the fields of the model at `path`, below a model with `fields`."""
    for part in path:
        if isinstance(part, str) and part in fields:
            models = _models(fields[part].annotation)
            fields = {name: field for model in models for name, field in model.model_fields.items()}
    return fields


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation such as ``tuple[Layout, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def validated(kind: type[Model], fields: Mapping[Any, Any], where: str | Path, noun: str | None = None) -> Model:
    """Return a model with these fields; raises `input_error` for unknown keys and invalid values."""
    try:
        return kind.model_validate(dict(fields))
    except ValidationError as error:
        raise input_error(error, where, noun, kind.model_fields) from None


def model_options(kind: type[Model], name: str, options: Mapping[str, Any]) -> Model:
    """Return the options of the model `name`; raises InputError for unknown keys and invalid values."""
    return validated(kind, options, f"model {name}", f"option of model {name}")


def as_field(kind: type[BaseModel], name: str, value: Any) -> Any:
    """Return a value as the field `name` of a model holds it, so that 2 and 2.0 are one value.

    It is returned as it is if the model has no such field, or it does not fit: validation reports that.
    """
    if name not in kind.model_fields:
        return value
    try:
        return _adapter(kind, name).validate_python(value)
    except ValidationError:
        return value


@cache
def _adapter(kind: type[BaseModel], name: str) -> TypeAdapter[Any]:
    field = kind.model_fields[name]
    annotation: Any = Annotated[field.annotation, field]
    return TypeAdapter(annotation)
