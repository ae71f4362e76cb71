"""Cluster profiles: the resources that a table ``[profiles.NAME]`` of ``dropbench.toml`` requests, validated."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.files import read_bytes
from dropbench.harness.settings import Settings
from dropbench.harness.validation import validated

FILE = Path("dropbench.toml")
Count = Annotated[int, Field(ge=1, le=10**6)]
Line = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]*$")]
"""A text without control characters: a line break would add a command to the batch script, even in quotes."""
Variable = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$")]
Option = Annotated[str, Field(pattern="^[a-z][a-z0-9-]*$")]
OWN_OPTIONS = (
    "account", "array", "constraint", "cpus-per-task", "dependency", "error", "exclude", "gpus", "gpus-per-node",
    "gpus-per-task", "job-name", "kill-on-invalid-dep", "mem", "no-requeue", "nodes", "ntasks", "ntasks-per-node",
    "open-mode", "output", "parsable", "partition", "qos", "requeue", "signal", "test-only", "time", "wait", "wrap",
)  # fmt: skip
"""Options of sbatch that have a key of their own, or that an array of resumable jobs fixes."""


class Profile(BaseModel):
    """The resources that a job requests from a cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    constraint: Line | None = None
    nodes: Count = Field(default=1, description="nodes per job")
    tasks: Count = Field(default=1, description="processes per node, which share the samples of each micro-batch")
    gpus: int = Field(default=0, ge=0, le=10**6, description="GPUs per node")
    gpu_type: Line | None = Field(default=None, description="their type, by the cluster's name")
    cpus: Count = Field(default=1, description="CPU cores per process, and so per trial if K run side by side")
    memory: float | None = Field(default=None, ge=0.001, le=10**6, description="GB per node")
    time: Count = Field(default=60, description="time limit of a job in minutes")
    signal_delay: Count = Field(default=90, description="seconds between the checkpoint signal and the time limit")
    trials_per_job: Count = Field(default=1, description="trials per job, one after another")
    trials_at_a_time: Count = Field(default=1, description="trials of a job that run side by side, in a process each")
    setup: list[Line] = Field(default_factory=list, description="shell lines to run before the job")
    environment: dict[Variable, Line] = Field(default_factory=dict, description="environment variables of the job")
    sbatch: dict[Option, Line | int | Literal[True]] = Field(
        default_factory=dict, description="other options of sbatch by name; true: an option without a value"
    )
    srun: dict[Option, Line | int | Literal[True]] = Field(
        default_factory=dict, description="options of the srun that starts the processes, such as container-image"
    )
    python: Line | None = Field(
        default=None, description="command that runs Python in a job; default: the Python of this environment"
    )
    trials: str | None = Field(default=None, description="filter of the trials that use this profile by default")

    @model_validator(mode="after")
    def _check(self) -> Profile:
        if self.trials_at_a_time > 1 and self.nodes * self.tasks > 1:
            raise ValueError(f"trials_at_a_time={self.trials_at_a_time}: expected nodes=1 and tasks=1")
        if self.gpu_type is not None and not self.gpus:
            raise ValueError(f"gpu_type={self.gpu_type}: expected gpus of at least 1")
        for option in self.sbatch.keys() & set(OWN_OPTIONS):
            raise ValueError(f"sbatch.{option}: set by the keys of a profile, or by DropBench: expected another option")
        if image := next((option for option in self.sbatch if option.startswith("container-")), None):
            raise ValueError(f"sbatch.{image}: the script calls srun, which images lack: expected srun.{image}")
        if str(self.sbatch.get("gres")).startswith("gpu"):
            raise ValueError(f"sbatch.gres={self.sbatch['gres']}: expected GPUs as gpus and gpu_type")
        try:
            Settings().on_node(self.environment)
        except InputError as error:
            raise ValueError(f"environment: {error}") from None
        return self

    @property
    def idle_gpus(self) -> str | None:
        """The number of GPUs that no process uses, with what to do; None if all of them are used."""
        used = self.tasks * self.trials_at_a_time
        if used >= self.gpus:
            return None
        one_trial = f"`tasks = {self.gpus}` (one trial on all of them)"
        side_by_side = f" or `trials_at_a_time = {self.gpus}` (a trial on each)" if self.nodes * self.tasks == 1 else ""
        return f"{self.gpus - used} of {self.gpus} GPUs stay idle: set {one_trial}{side_by_side}"

    def to_submitit(self) -> dict[str, Any]:
        """Return the parameters of Submitit's SlurmExecutor."""
        exports = [f"export {name}={shlex.quote(value)}" for name, value in self.environment.items()]
        options = [f"--{option}" if value is True else f"--{option}={value}" for option, value in self.srun.items()]
        cpus = self.cpus * self.trials_at_a_time
        parameters = {
            **self.model_dump(include={"time", "nodes", "partition", "account", "qos", "constraint"}),
            "ntasks_per_node": self.tasks,
            "cpus_per_task": cpus,
            "gpus_per_node": f"{self.gpu_type}:{self.gpus}" if self.gpu_type else self.gpus or None,
            "mem": f"{self.memory * 1024:.0f}MB" if self.memory else None,
            "signal_delay_s": self.signal_delay,
            "setup": [*exports, *self.setup] or None,
            # When one process of a job dies, the others would wait for it until a timeout of NCCL. Since SLURM 22.05,
            # srun does not take the cores per process from the job, but binds each process to one.
            "srun_args": ["--kill-on-bad-exit=1", f"--cpus-per-task={cpus}", *options],
        }
        return {key: value for key, value in parameters.items() if value is not None}


def load_profile(name: str, file: Path = FILE) -> Profile:
    """Load the table ``[profiles.NAME]`` of a file; raise InputError if it is missing, or as `load_profiles`."""
    profiles = load_profiles(file, example=name)
    if name not in profiles:
        raise unknown_name(f"profile of {file}", name, profiles)
    return profiles[name]


def load_profiles(file: Path = FILE, example: str = "default") -> dict[str, Profile]:
    """Load the profiles of a file by name, in its order; errors name an `example`.

    Raises:
        InputError: the file is missing or no TOML, or a key or value is invalid.
    """
    try:
        content = tomllib.loads(read_bytes(file).decode())
    except FileNotFoundError:
        raise InputError(f"{file}: not found: create it with a table [profiles.{example}]") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: invalid TOML: {error}") from None
    tables = content.get("profiles", {})
    if not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise InputError(f"{file}: profiles: expected tables such as [profiles.{example}]")
    return {
        name: validated(Profile, table, f"{file}: profiles.{name}", f"key of [profiles.{name}]")
        for name, table in tables.items()
    }
