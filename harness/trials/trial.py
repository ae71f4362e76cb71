"""A trial: everything that determines a number."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, Field, ValidationError

from dropbench.harness.files import canonical_json
from dropbench.harness.regularizers.spec import RegularizerSpec, Scalar
from dropbench.harness.validation import FiniteModel, StrictModel, input_error

TrialState = Literal["queued", "submitted", "running", "succeeded", "failed", "cancelled", "skipped"]
TRIAL_STATES: tuple[TrialState, ...] = get_args(TrialState)
FINAL_STATES = frozenset({"succeeded", "failed", "cancelled", "skipped"})

VERSION_LENGTH = 8
"""Characters of the digest of a plug-in's entry that stand for its version."""
SYNTHETIC = "-synthetic"
"""The suffix of the names of generated data that replace a data set."""

Seed = Annotated[int, Field(ge=0, lt=2**31)]
Id = Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
"""The id of a trial, a configuration or a request, which is a name of folders and files."""


def _not_one(version: int) -> int:
    if version == 1:
        raise ValueError("version 1 is not stored")
    return version


OtherVersion = Annotated[int, Field(ge=0, lt=2**31), AfterValidator(_not_one)]
"""A result version that is not 1."""


class DataRef(StrictModel):
    """A data set by name, and a fingerprint of its files, so that different data are never mixed.

    The path is the folder of ``--data NAME=PATH``, None for the default one. It is not part of the trial's identity.
    """

    name: str
    fingerprint: str
    path: str | None = Field(default=None, exclude_if=lambda path: path is None)


class WeightsRef(StrictModel):
    """Initial weights: a file, folder or name on the hub with its commit, and the SHA-256 of its files' content.

    The path is not part of the trial's identity.
    """

    path: str
    digest: str


class Trial(FiniteModel):
    """Everything that determines a number. Frozen; equal trials have equal ids.

    `recipe` holds the resolved hyper-parameters (preset, then changes for data and model, then overrides), so a run
    directory is self-contained and a changed recipe is another trial. `preset` and `overrides` record their origin.
    `plugins` holds the SHA-256 of the source of the entries of plug-ins, by kind and name: ``regularizer mine``.
    `result_versions` holds the versions of its items (`dropbench.harness.trials.result_versions`) that are not 1.
    Without any, it is in no JSON.
    """

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
    result_versions: dict[str, OtherVersion] = Field(default_factory=dict)
    seed: Seed

    def config(self) -> dict[str, Any]:
        """Return everything that identifies the trial except its seed."""
        config = self._to_dict(exclude={"seed": True, "data": {"path"}})
        if config["weights"]:
            del config["weights"]["path"]
        return config

    def _to_dict(self, **options: Any) -> dict[str, Any]:
        content = self.model_dump(mode="json", **options)
        if not self.result_versions:
            del content["result_versions"]
        return content

    @property
    def result_versions_text(self) -> str | None:
        """The versions that are not 1, such as ``engine 2, regularizer dropkey 3``; None if all are.

        That of a plug-in's entry is the beginning of its digest: ``regularizer mine 3fa9c01b``.
        """
        digests = {item: digest[:VERSION_LENGTH] for item, digest in self.plugins.items()}
        versions = {**self.result_versions, **digests}
        return ", ".join(f"{item} {version}" for item, version in sorted(versions.items())) or None

    @cached_property
    def id(self) -> str:
        """First 12 hex digits of the SHA-256 of the canonical JSON."""
        before, after = self.config_json
        return _digest(f'{before},"seed":{self.seed},{after}')

    @cached_property
    def config_id(self) -> str:
        """The same without the seed; results are averaged over trials that share it."""
        return _digest(",".join(self.config_json))

    @cached_property
    def config_json(self) -> tuple[str, str]:
        """The canonical JSON of `config` in two parts, between which `id` inserts the seed."""
        config = self.config()
        before = {key: value for key, value in config.items() if key < "seed"}
        after = {key: value for key, value in config.items() if key > "seed"}
        return canonical_json(before)[:-1], canonical_json(after)[1:]

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy as pydantic does, without the cached ids; a copy with another seed only keeps those without the seed."""
        seed_only = update is not None and update.keys() == {"seed"} and not deep
        if seed_only:
            _ = self.config_id  # computed once for all copies
        copy = super().model_copy(update=update, deep=deep)
        for cached in ("id",) if seed_only else ("id", "config_id", "config_json"):
            copy.__dict__.pop(cached, None)
        return copy

    def to_json(self) -> str:
        """Return canonical JSON, which `from_json` reads."""
        return canonical_json(self._to_dict())

    @classmethod
    def from_json(cls, text: str | bytes, where: Path | str = "trial") -> Trial:
        """Read a trial; raise InputError if the text is not one."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise input_error(error, str(where), f"field in {where}", cls.model_fields) from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


class TrialRequest(FiniteModel):
    """A requested trial, before its task fills in the recipe and the data's fingerprint."""

    task: str
    data: str
    model: str
    regularizer: str = "none"
    params: dict[str, Scalar] = Field(default_factory=dict)
    schedule: str = "constant"
    align: str = "none"
    preset: str = "mini"
    overrides: dict[str, Scalar] = Field(default_factory=dict)
    weights: str | None = None
    seed: int = 0
