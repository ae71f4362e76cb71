"""Search spaces of a cell: values of parameters, and how candidates are taken from them."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.regularizers.spec import Scalar, parameters, parse_scalar
from dropbench.harness.validation import FiniteModel, validated

Params = Mapping[str, Scalar]
T = TypeVar("T")

RECIPE_PREFIX = "set."
"""The prefix of recipe keys in a space; keys without it are parameters of the regularizer."""
TRIAL_KEYS = ("schedule", "align")
"""Keys that are written among the parameters of a regularizer, but are fields of the trial."""
MAX_CANDIDATES = 10_000
"""The maximum number of candidates of a cell."""
Bound = Annotated[int | float, Field(ge=-1e15, le=1e15)]


class Range(FiniteModel):
    """All numbers from `low` to `high`; integers if both are and `step` is not fractional.

    Attributes:
        step: the difference of adjacent numbers; None: any number, or every integer.
        log: sample uniformly in the logarithm; excludes `step`.
    """

    low: Bound
    high: Bound
    step: Annotated[Bound, Field(gt=0)] | None = None
    log: bool = False

    @property
    def is_integer(self) -> bool:
        """Return whether the numbers are integers."""
        return all(isinstance(number, int) for number in (self.low, self.high, self.step or 1))

    @model_validator(mode="after")
    def _has_valid_bounds(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"expected low below high, got {self.low} and {self.high}")
        if self.log and (self.step is not None or self.low <= 0):
            raise ValueError("expected low above 0 and no step with log")
        if (self.step or self.is_integer) and self.high - self.low > 10**6 * (self.step or 1):
            raise ValueError("more than 1,000,000 numbers: expected a larger step, or a decimal point")
        return self

    def values(self) -> list[int | float] | None:
        """Return all numbers; None if the range is continuous."""
        step = self.step or (1 if self.is_integer else None)
        if step is None:
            return None
        count = math.floor((self.high - self.low) / step + 1e-9) + 1
        if self.is_integer:
            return [self.low + index * step for index in range(count)]
        return [float(f"{self.low + index * step:.10g}") for index in range(count)]

    def __str__(self) -> str:
        return f"{self.low} to {self.high}" + (f" by {self.step}" if self.step else "")


def _kind(value: Any) -> str:
    return "range" if isinstance(value, Mapping | Range) else "list"


def _as_tuple(value: Any) -> Any:
    if not isinstance(value, list | tuple) or not value:
        raise ValueError("expected a list of values, or a range such as {low: 0.1, high: 0.5}")
    # YAML reads 1e-4 as a string.
    return tuple(parse_scalar(item) if isinstance(item, str) else item for item in value)


def _distinct(values: tuple[Scalar, ...]) -> tuple[Scalar, ...]:
    if len({(isinstance(value, bool), value) for value in values}) < len(values):
        raise ValueError("a value is given twice")
    return values


_List = Annotated[tuple[Scalar, ...], BeforeValidator(_as_tuple), AfterValidator(_distinct)]
Values = Annotated[Annotated[_List, Tag("list")] | Annotated[Range, Tag("range")], Discriminator(_kind)]
_VALUES: TypeAdapter[tuple[Scalar, ...] | Range] = TypeAdapter(Values)
Space = dict[str, Values]
"""Values by parameter of the regularizer (including `schedule` and `align`), or by ``set.KEY`` of the recipe."""


class Search(FiniteModel):
    """How candidates are taken from a space.

    Attributes:
        sampler: ``grid`` takes every combination; ``staged`` takes the values of one key after the other, each time
            with the best values so far of the keys before it; ``random`` and ``tpe`` are Optuna's.
        candidates: the number of candidates that Optuna proposes.
        pruner: Optuna's pruner, which stops a candidate whose dev curve is worse than those of others.
        seed: the seed of sampler and pruner.
        batch: the number of candidates proposed at a time. The next batch is proposed when all of these are done, so
            that proposals depend only on results, and not on the machine or its speed.
    """

    sampler: Literal["grid", "staged", "random", "tpe"] = "grid"
    candidates: int | None = Field(default=None, ge=1, le=MAX_CANDIDATES)
    pruner: Literal["none", "median", "hyperband"] = "none"
    seed: int = Field(default=0, ge=0, lt=2**31)
    batch: int = Field(default=4, ge=1)

    @model_validator(mode="after")
    def _has_a_count(self) -> Self:
        if (self.sampler in ("grid", "staged")) != (self.candidates is None):
            raise ValueError("expected candidates=N with the samplers random and tpe, and only there")
        if self.sampler == "staged" and self.pruner != "none":
            raise ValueError("expected no pruner with the sampler staged")
        return self


class Sweep(FiniteModel):
    """A search space, and how it is searched.

    Attributes:
        recipe: the values that the swept keys have without the sweep, where they are known. A candidate with such a
            value does not set the key, so that its trials are those without a sweep.
        seeds: the seeds of the candidates; empty: those of the cell. With seeds of their own, the chosen candidate is
            trained again with the seeds of the cell.
    """

    space: Space
    search: Search = Search()
    recipe: dict[str, Scalar] = Field(default_factory=dict)
    seeds: tuple[int, ...] = Field(default=(), exclude_if=operator.not_)

    @model_validator(mode="after")
    def _is_countable(self) -> Self:
        if self.search.candidates is None:
            for key, values in self.space.items():
                if isinstance(values, Range) and values.values() is None:
                    sampler = "a grid" if self.search.sampler == "grid" else "the sampler staged"
                    raise ValueError(f"{key}: {sampler} needs a list of values, or a step: use search sampler=tpe")
            if self.size > MAX_CANDIDATES:
                raise ValueError(f"{self.size:,} combinations, at most {MAX_CANDIDATES:,}: use search sampler=tpe")
        return self

    @property
    def size(self) -> int:
        """Return the number of candidates."""
        if self.search.sampler == "staged":  # a later stage has the best candidate of the one before it
            first, *others = self.values.items()
            return len(first[1]) + sum(len(values) - (self.recipe.get(key) in values) for key, values in others)
        return self.search.candidates or math.prod(map(len, self.values.values()))

    @property
    def values(self) -> dict[str, Sequence[Scalar]]:
        """Return the values of each key; () for a continuous range."""
        return {
            key: values.values() or () if isinstance(values, Range) else values for key, values in self.space.items()
        }

    @property
    def is_grid(self) -> bool:
        """Return whether all trials are known before any has run, and all of them run to the end."""
        return self.search.sampler == "grid" and self.search.pruner == "none" and not self.seeds

    def grid(self) -> Iterator[dict[str, Scalar]]:
        """Yield every combination; the last parameter changes fastest."""
        for point in itertools.product(*self.values.values()):
            yield dict(zip(self.space, point, strict=True))

    @property
    def stages(self) -> int:
        """Return the number of stages, each of which depends on the results of the one before; 0 for Optuna's."""
        if self.search.candidates is not None or self.search.pruner != "none":
            return 0
        return len(self.space) if self.search.sampler == "staged" else 1

    def stage(self, number: int, best: Params) -> list[dict[str, Scalar]]:
        """Return the candidates of a stage, some of which may have been in another, by the best values so far."""
        if self.search.sampler == "grid":
            return [*self.grid()]
        key, values = [*self.values.items()][number]
        points = [{**best, key: value} for value in values]
        return [{name: point[name] for name in self.space if name in point} for point in points]

    def __str__(self) -> str:
        """Return the space as in ``ratio 0.1, 0.2 × window 1, 2``."""
        return " × ".join(
            f"{short_key(key)} {values if isinstance(values, Range) else ', '.join(map(str, values))}"
            for key, values in self.space.items()
        )


def sweepable_keys(regularizer: str) -> tuple[str, ...]:
    """Return the keys that a sweep may have for a regularizer, in addition to those of the recipe."""
    names = parameters(regularizer)
    return (*names, *TRIAL_KEYS) if names else ()


def sweep_for(regularizer: str, space: Space, search: Search, where: str, *, strict: bool) -> Sweep | None:
    """Return the sweep of a regularizer over those keys of a space that it has; None if it has none.

    Raises:
        InputError: the regularizer does not have a key (if `strict`), or the grid is infinite or too large. The message
            begins with `where`.
    """
    if not space:
        return None
    names = sweepable_keys(regularizer)
    subspace = {key: values for key, values in space.items() if key in names or key.startswith(RECIPE_PREFIX)}
    if strict and len(subspace) < len(space):
        raise unknown_name(f"parameter in {where}", next(key for key in space if key not in subspace), names)
    if not subspace:
        return None
    return validated(Sweep, {"space": subspace, "search": search}, where, f"key of {where}")


def first_set(*layers: T | None) -> T | None:
    """Return the first value that is not None: of the command line, row, preset and suite, in this order."""
    return next((layer for layer in layers if layer is not None), None)


def parse_space(items: Sequence[str]) -> Space:
    """Parse ``--sweep KEY=VALUES``: comma-separated values, or ``0.1..0.5``, optionally with ``:0.1`` or ``:log``.

    ``--sweep none`` is the empty space: the suite's own values alone.

    Raises:
        InputError: an item does not have that form, or a key is given twice.
    """
    space: Space = {}
    for item in [] if list(items) == ["none"] else items:
        key, separator, text = (part.strip() for part in item.partition("="))
        if not (separator and key and text) or not all(part.strip() for part in text.split(",")):
            raise InputError(f"--sweep {item}: expected key=values, such as ratio=0.1,0.2,0.3 or ratio=0.1..0.5")
        if key in space:
            raise InputError(f"--sweep {item}: {key} is given twice")
        try:
            space[key] = _VALUES.validate_python(_parse_values(item, text))
        except ValidationError as error:
            raise InputError(f"--sweep {item}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    return space


def _parse_values(item: str, text: str) -> Any:
    low, dots, rest = text.partition("..")
    if not dots:
        return tuple(parse_scalar(part.strip()) for part in text.split(","))
    high, _, spacing = rest.partition(":")
    fields: dict[str, Any] = {"low": parse_scalar(low), "high": parse_scalar(high)}
    if spacing == "log":
        fields["log"] = True
    elif spacing:
        fields["step"] = parse_scalar(spacing)
    if any(isinstance(value, str | bool) for key, value in fields.items() if key != "log"):
        raise InputError(
            f"--sweep {item}: expected numbers, such as ratio=0.1..0.5, window=1..5 or set.lr=1e-4..1e-2:log"
        )
    return fields


def parse_search(text: str) -> Search:
    """Parse ``--search sampler=tpe,candidates=20``; raises InputError for unknown keys and invalid values."""
    fields: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        key, separator, value = (part.strip() for part in item.partition("="))
        if not (separator and key and value):
            raise InputError(f"--search {text}: '{item}' is not of the form key=value, such as sampler=tpe")
        fields[key] = parse_scalar(value)
    return validated(Search, fields, f"--search {text}", "key of --search")


def short_key(key: str) -> str:
    """Return a key as tables show it: recipe keys without their prefix."""
    return key.removeprefix(RECIPE_PREFIX)
