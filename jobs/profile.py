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
    gpus: int = Field(default=0, ge=0, description="GPUs a job")
    cpus: int = Field(default=1, ge=1, description="CPU cores a job")
    memory: float | None = Field(default=None, gt=0, description="GB a job")
    time: int = Field(default=60, ge=1, description="minutes a job")
    signal_delay: int = Field(default=90, ge=1, description="seconds between the signal to checkpoint and the end")
    setup: list[str] = Field(default_factory=list, description="shell lines before the job")
    environment: dict[str, str] = Field(default_factory=dict, description="variables of the job")

    def parameters(self) -> dict[str, Any]:
        """As Submitit's SlurmExecutor takes them."""
        variables = [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]
        given = {
            "time": self.time,
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


def load_profile(name: str, file: Path = FILE) -> Profile:
    """The table ``[profiles.NAME]`` of a file.

    Raises:
        InputError: there is no such file or table, a key is unknown or a value impossible.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{file}: not found: expected a table [profiles.{name}] in it") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: no valid TOML: {error}") from None
    profiles = content.get("profiles", {})
    if not isinstance(profiles, dict):
        raise InputError(f"{file}: profiles: expected tables such as [profiles.{name}]")
    if name not in profiles:
        raise unknown_name(f"profile of {file}", name, profiles)
    if not isinstance(profiles[name], dict):
        raise InputError(f"{file}: profiles.{name}: expected a table [profiles.{name}]")
    try:
        return Profile(**profiles[name])
    except ValidationError as error:
        raise input_error(
            error, f"{file}: profiles.{name}", f"key of [profiles.{name}]", Profile.model_fields
        ) from None
