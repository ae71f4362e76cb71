"""A trial: everything that determines a number."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.files import canonical_json
from harness.regularizers.spec import RegularizerSpec, Scalar
from harness.validation import input_error

TrialState = Literal["queued", "submitted", "running", "succeeded", "failed", "cancelled", "skipped"]
TRIAL_STATES: tuple[TrialState, ...] = (
    "queued", "submitted", "running", "succeeded", "failed", "cancelled", "skipped",
)  # fmt: skip
FINAL_STATES = frozenset({"succeeded", "failed", "cancelled", "skipped"})

Seed = Annotated[int, Field(ge=0, lt=2**31)]


class DataRef(BaseModel):
    """A data set by name, and a fingerprint of its files, so that a subset is never mixed with the full set."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    fingerprint: str


class WeightsRef(BaseModel):
    """Initial weights: a file, and the SHA-256 of its content. The path is not part of the trial's identity."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    digest: str


class Trial(BaseModel):
    """Everything that determines a number. Frozen; equal trials have equal ids.

    `recipe` holds the resolved hyper-parameters (preset, then what data and model change, then overrides), so that a
    run directory is complete in itself and a changed recipe is another trial. `preset` and `overrides` say where they
    came from. `plugins` holds the SHA-256 of the plug-in files that define the task, model or regularizer.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    task: str
    data: DataRef
    model: str
    weights: WeightsRef | None = None
    regularizer: RegularizerSpec
    schedule: str = "constant"
    align: str = "none"
    preset: str
    overrides: dict[str, Scalar] = Field(default_factory=dict)
    recipe: dict[str, Any]
    plugins: dict[str, str] = Field(default_factory=dict)
    seed: Seed

    def config(self) -> dict[str, Any]:
        """All that identifies the trial but its seed."""
        config = self.model_dump(mode="json", exclude={"seed"})
        if config["weights"]:
            del config["weights"]["path"]
        return config

    @cached_property
    def id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON."""
        before, after = self.config_json
        return _digest(f'{before},"seed":{self.seed},{after}')

    @cached_property
    def config_id(self) -> str:
        """The same without the seed: what is averaged over seeds."""
        return _digest(",".join(self.config_json))

    @cached_property
    def config_json(self) -> tuple[str, str]:
        """The canonical JSON of `config`: what stands before the place of the seed, and what after it."""
        config = self.config()
        before = {key: value for key, value in config.items() if key < "seed"}
        after = {key: value for key, value in config.items() if key > "seed"}
        return canonical_json(before)[:-1], canonical_json(after)[1:]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """As pydantic's, but the copy works out its own ids; one that differs in its seed alone shares the rest."""
        of_seed = update is not None and update.keys() == {"seed"} and not deep
        if of_seed:
            _ = self.config_id  # once for all copies
        copy = super().model_copy(update=update, deep=deep)
        for cached in ("id",) if of_seed else ("id", "config_id", "config_json"):
            copy.__dict__.pop(cached, None)
        return copy

    def to_json(self) -> str:
        """Canonical JSON, which `from_json` reads."""
        return canonical_json(self.model_dump(mode="json"))

    @classmethod
    def from_json(cls, text: str | bytes, where: Path | str = "trial") -> Trial:
        """Read a trial.

        Raises:
            InputError: it is no trial, or one of a newer version.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise input_error(error, str(where), f"field in {where}", cls.model_fields) from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class TrialRequest(BaseModel):
    """A trial as it is asked for, before its task fills in the recipe and the data's fingerprint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str
    data: str
    model: str
    regularizer: str = "none"
    params: dict[str, Scalar] = Field(default_factory=dict)
    schedule: str = "constant"
    align: str = "none"
    preset: str = "mini"
    overrides: dict[str, Any] = Field(default_factory=dict)
    weights: str | None = None
    seed: int = 0
