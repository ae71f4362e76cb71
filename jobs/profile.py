"""Cluster profiles: what a table ``[profiles.NAME]`` of ``dropbench.toml`` asks a cluster for, checked beforehand."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from harness.errors import InputError, unknown_name
from harness.validation import input_error

FILE = Path("dropbench.toml")


class Profile(BaseModel):
    """What a job asks a cluster for."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    nodes: int = Field(default=1, ge=1, description="nodes a job")
    tasks: int = Field(default=1, ge=1, description="processes a node, which share the samples of each micro-batch")
    gpus: int = Field(default=0, ge=0, description="GPUs a node")
    cpus: int = Field(default=1, ge=1, description="CPU cores a process")
    memory: float | None = Field(default=None, gt=0, description="GB a node")
    time: int = Field(default=60, ge=1, description="minutes a job")
    signal_delay: int = Field(default=90, ge=1, description="seconds between the signal to checkpoint and the end")
    setup: list[str] = Field(default_factory=list, description="shell lines before the job")
    environment: dict[str, str] = Field(default_factory=dict, description="variables of the job")
    trials: str | None = Field(default=None, description="filter of the trials that it is for, where none is named")

    def parameters(self) -> dict[str, Any]:
        """As Submitit's SlurmExecutor takes them."""
        variables = [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]
        given = {
            "time": self.time,
            "nodes": self.nodes,
            "ntasks_per_node": self.tasks,
            "cpus_per_task": self.cpus,
            "gpus_per_node": self.gpus or None,
            "mem": f"{self.memory * 1024:.0f}MB" if self.memory else None,
            "partition": self.partition,
            "account": self.account,
            "qos": self.qos,
            "constraint": self.constraint,
            "signal_delay_s": self.signal_delay,
            "setup": [*variables, *self.setup] or None,
        }
        return {key: value for key, value in given.items() if value is not None}

    @property
    def gpu_hours(self) -> float:
        """Of a job, at most."""
        return self.nodes * self.gpus * self.time / 60


def load_profile(name: str, file: Path = FILE) -> Profile:
    """The table ``[profiles.NAME]`` of a file.

    Raises:
        InputError: there is no such file or table, a key is unknown or a value impossible.
    """
    profiles = _tables(file, name)
    if name not in profiles:
        raise unknown_name(f"profile of {file}", name, profiles)
    return _profile(name, profiles[name], file)


def profiles_for_trials(file: Path = FILE) -> dict[str, Profile]:
    """The profiles of a file that say which trials they are for, in its order.

    Raises:
        InputError: as `load_profile`.
    """
    found = {name: _profile(name, table, file) for name, table in _tables(file, "default").items()}
    return {name: profile for name, profile in found.items() if profile.trials is not None}


def _tables(file: Path, example: str) -> dict[str, Any]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{file}: not found: expected a table [profiles.{example}] in it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: no valid TOML: {error}") from None
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict):
        raise InputError(f"{file}: profiles: expected tables such as [profiles.{example}]")
    return profiles


def _profile(name: str, table: Any, file: Path) -> Profile:
    if not isinstance(table, dict):
        raise InputError(f"{file}: profiles.{name}: expected a table [profiles.{name}]")
    try:
        return Profile(**table)
    except ValidationError as error:
        raise input_error(
            error, f"{file}: profiles.{name}", f"key of [profiles.{name}]", Profile.model_fields
        ) from None
