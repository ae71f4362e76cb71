"""What a cell of a table chooses from: values of parameters, how many of them are tried, and in which order."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from harness.errors import InputError, unknown_name
from harness.regularizers.spec import Scalar, parameters, parse_scalar
from harness.validation import input_error

Params = Mapping[str, Scalar]
T = TypeVar("T")

RECIPE = "set."
"""What stands before a key of the recipe, where others are parameters of the regularizer."""
BOUND = ("schedule", "align")
"""Written among the parameters of a regularizer, and the trial's."""
MOST = 10_000
"""Candidates of a cell."""


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Range(_Strict):
    """All numbers from `low` to `high`; whole ones where both are and nothing else is said.

    Attributes:
        step: between two of them; None: any number, or every whole one.
        log: draw their logarithm evenly; not with `step`.
    """

    low: int | float
    high: int | float
    step: Annotated[int | float, Field(gt=0)] | None = None
    log: bool = False

    @property
    def whole(self) -> bool:
        """Whether its numbers are whole."""
        return all(isinstance(one, int) for one in (self.low, self.high, self.step or 1))

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"expected low below high, got {self.low} and {self.high}")
        if self.log and (self.step is not None or self.low <= 0):
            raise ValueError("expected low above 0 and no step with log")
        return self

    def values(self) -> list[int | float] | None:
        """Its numbers; None where they are too many to be counted."""
        step = self.step or (1 if self.whole else None)
        if step is None:
            return None
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        if self.whole:
            return [self.low + number * step for number in range(count)]
        return [float(f"{self.low + number * step:.10g}") for number in range(count)]

    def __str__(self) -> str:
        return f"{self.low} to {self.high}" + (f" by {self.step}" if self.step else "")


def _kind(value: Any) -> str:
    return "range" if isinstance(value, Mapping | Range) else "list"


def _listed(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("expected a list of values, or a range such as {low: 0.1, high: 0.5}")
    # YAML takes 1e-4 for a text.
    return tuple(parse_scalar(one) if isinstance(one, str) else one for one in value)


def _different(values: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    if len({(isinstance(value, bool), value) for value in values}) < len(values):
        raise ValueError("a value is given twice")
    return values


_List = Annotated[tuple[Scalar, ...], BeforeValidator(_listed), AfterValidator(_different)]
Values = Annotated[Annotated[_List, Tag("list")] | Annotated[Range, Tag("range")], Discriminator(_kind)]
_VALUES: TypeAdapter[tuple[Scalar, ...] | Range] = TypeAdapter(Values)
Space = dict[str, Values]
"""By parameter of the regularizer (`schedule` and `align` among them), or ``set.KEY`` of the recipe: its values."""


class Search(_Strict):
    """How candidates are taken from a space.

    Attributes:
        sampler: ``grid`` takes every combination; ``random`` and ``tpe`` are Optuna's.
        candidates: how many Optuna asks for.
        pruner: Optuna's, which gives up a candidate whose dev curve lies behind those of others.
        seed: of sampler and pruner.
        batch: candidates that are asked for at a time; those of the next batch are asked for when all of these are
            done, so that what is asked for depends on results alone, and not on the machine or on its pace.
    """

    sampler: Literal["grid", "random", "tpe"] = "grid"
    candidates: int | None = Field(default=None, ge=1, le=MOST)
    pruner: Literal["none", "median", "hyperband"] = "none"
    seed: int = Field(default=0, ge=0, lt=2**31)
    batch: int = Field(default=4, ge=1)

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if (self.sampler == "grid") != (self.candidates is None):
            raise ValueError("expected candidates=N with the samplers random and tpe, and only there")
        return self


class Sweep(_Strict):
    """A space, and how it is searched."""

    space: Space
    search: Search = Search()

    @model_validator(mode="after")
    def _is_countable(self) -> Self:
        if self.search.sampler == "grid":
            count = 1
            for key, values in self.space.items():
                found = values.values() if isinstance(values, Range) else values
                if found is None:
                    raise ValueError(f"{key}: a grid needs a list of values, or a step: expected search sampler=tpe")
                count *= len(found)
            if count > MOST:
                raise ValueError(f"{count:,} combinations: expected {MOST:,} at most, or search sampler=tpe")
        return self

    @property
    def is_grid(self) -> bool:
        """Whether its candidates are known before any has run, and all of them run to their end."""
        return self.search.sampler == "grid" and self.search.pruner == "none"

    def grid(self) -> Iterator[dict[str, Scalar]]:
        """Every combination, the last parameter changing fastest."""
        lists = [values.values() or () if isinstance(values, Range) else values for values in self.space.values()]
        for found in itertools.product(*lists):
            yield dict(zip(self.space, found, strict=True))

    def __str__(self) -> str:
        """``ratio 0.1, 0.2 × window 1, 2``."""
        return " × ".join(
            f"{short(key)} {values if isinstance(values, Range) else ', '.join(map(str, values))}"
            for key, values in self.space.items()
        )


def sweepable(regularizer: str) -> tuple[str, ...]:
    """The keys that a sweep may name for a regularizer, beside those of the recipe."""
    own = parameters(regularizer)
    return (*own, *BOUND) if own else ()


def fitted(space: Space, search: Search, regularizer: str, where: str, *, whole: bool) -> Sweep | None:
    """What of a space is for a regularizer, as a sweep; None where nothing is.

    Args:
        space: the space.
        search: how it is searched.
        regularizer: its name.
        where: what an error names.
        whole: every key is for it.

    Raises:
        InputError: a key is not, where all are; a grid that cannot be counted.
    """
    if not space:
        return None
    known = sweepable(regularizer)
    fitting = {key: values for key, values in space.items() if key in known or key.startswith(RECIPE)}
    if whole and len(fitting) < len(space):
        raise unknown_name(f"parameter in {where}", next(key for key in space if key not in fitting), known)
    if not fitting:
        return None
    try:
        return Sweep(space=fitting, search=search)
    except ValidationError as error:
        raise input_error(error, where, f"key of {where}", Sweep.model_fields) from None


def nearest(*layers: T | None) -> T | None:
    """The first that is there, of what command line, row, preset and suite say."""
    return next((layer for layer in layers if layer is not None), None)


def parse_space(items: Sequence[str]) -> Space:
    """Read ``--sweep KEY=VALUES``: values with commas between, or ``0.1..0.5``, behind it ``:0.1`` or ``:log``.

    Raises:
        InputError: an item is not of that form, or a key is given twice.
    """
    space: Space = {}
    for item in items:
        key, separator, text = (part.strip() for part in item.partition("="))
        if not (separator and key and text) or not all(part.strip() for part in text.split(",")):
            raise InputError(f"--sweep {item}: expected key=values, such as ratio=0.1,0.2,0.3 or ratio=0.1..0.5")
        if key in space:
            raise InputError(f"--sweep {item}: {key} is given twice")
        try:
            space[key] = _VALUES.validate_python(_written(item, text))
        except ValidationError as error:
            raise InputError(f"--sweep {item}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    return space


def _written(item: str, text: str) -> Any:
    low, dots, rest = text.partition("..")
    if not dots:
        return tuple(parse_scalar(part.strip()) for part in text.split(","))
    high, _, way = rest.partition(":")
    found: dict[str, Any] = {"low": parse_scalar(low), "high": parse_scalar(high)}
    if way == "log":
        found["log"] = True
    elif way:
        found["step"] = parse_scalar(way)
    if any(isinstance(value, str | bool) for key, value in found.items() if key != "log"):
        raise InputError(
            f"--sweep {item}: expected numbers, such as ratio=0.1..0.5, window=1..5 or set.lr=1e-4..1e-2:log"
        )
    return found


def parse_search(text: str) -> Search:
    """Read ``--search sampler=tpe,candidates=20``; raises InputError for what is unknown or impossible."""
    found: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        if not (separator and key and value):
            raise InputError(f"--search {text}: '{part}' is not of the form key=value, such as sampler=tpe")
        found[key] = parse_scalar(value)
    try:
        return Search(**found)
    except ValidationError as error:
        raise input_error(error, f"--search {text}", "key of --search", Search.model_fields) from None


def short(key: str) -> str:
    """A key as tables show it: a recipe's without what stands before it."""
    return key.removeprefix(RECIPE)
