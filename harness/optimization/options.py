"""Recipe keys with keys of their own, and their forms on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dropbench.harness.validation import FiniteModel


def listed(value: Any) -> Any:
    """Return a text of names separated by commas, as on the command line, as a tuple; any other value as it is."""
    return tuple(value.split(",")) if isinstance(value, str) else value


Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(listed), Field(min_length=1)]
"""Names; on the command line separated by commas."""


class Lora(FiniteModel):
    """Low-rank adapters of linear maps (Hu et al. 2022), by peft's `LoraConfig`."""

    r: int = Field(default=8, ge=1, description="rank of the adapters")
    alpha: float = Field(default=16.0, gt=0, description="the sum of an adapter is scaled by alpha / r")
    dropout: float = Field(default=0.0, ge=0, lt=1, description="dropout rate of the adapters' inputs")
    targets: Names | None = Field(
        default=None, description="ends of the names of adapted linear maps, as query,value; default: those of peft"
    )


def _weights(value: Any) -> Any:
    """Return weights by class, or in the order of the classes, of a text as on the command line."""
    if not isinstance(value, str) or value == "balanced":
        return value
    parts = value.split(",")
    return dict(part.rsplit(":", 1) for part in parts) if all(":" in part for part in parts) else parts


Weight = Annotated[float, Field(gt=0)]
ClassWeights = Annotated[
    Literal["balanced"] | tuple[Weight, ...] | dict[str, Weight] | None,
    BeforeValidator(_weights),
    "balanced, positive numbers in the order of the classes as 1,2.5, or by class as yes:2,no:1",
]


def text_of(value: Any) -> Any:
    """Return a list or mapping as the command line spells it; any other value as it is."""
    if isinstance(value, Mapping):
        return ",".join(f"{key}:{each}" for key, each in value.items())
    return (",".join(map(str, value)) or "none") if isinstance(value, list | tuple) else value


def split_key(key: str, nested: Iterable[str]) -> tuple[str, str]:
    """Return the key of a recipe that holds a key, and the key in it: ``lora.r`` is ``r`` of ``lora``."""
    holder, _, inner = key.partition(".")
    return (holder, inner) if inner and holder in nested else ("", key)
