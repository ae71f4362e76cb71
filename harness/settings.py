"""Where things lie, and what does not change a result: from the environment, the command line, or a job's payload."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import InputError, unknown_name

BACKENDS = ("auto", "eager", "cpu", "triton")
"""What computes attention with dropped keys; see `harness.attention.backends`."""


@dataclass(frozen=True)
class Settings:
    """Places and switches that are no part of a trial.

    Attributes:
        data: the root of the data folders (`DROPBENCH_DATA`).
        runs: the root of the run directories (`DROPBENCH_RUNS`).
        database: SQLAlchemy URL of the database (`DROPBENCH_DB`); workers never open it.
        folders: data name → folder, where it is not ``data/<folder>`` (``--data NAME=PATH``).
        plugins: plug-in files to load first (`DROPBENCH_PLUGINS`, separated like PATH).
        device: "auto", "cpu" or "cuda".
        backend: what computes attention with dropped keys (`DROPBENCH_BACKEND`, `harness.attention.backends`).
        compile: whether models are compiled by torch (`torch.compile`): minutes once, for quicker steps.
        threads: CPU threads a trial; 0: torch's own choice.
        num_workers: processes that make the batches of a trial (`DROPBENCH_NUM_WORKERS`); None: `data_loading.prefetch`
            decides.
        checkpoint_seconds: time between two checkpoints.
        micro_batch_splits: parts that each micro-batch and each batch of evaluation is split into; more after a trial
            ran out of memory. An optimizer step stays the mean over the same samples; its random numbers are drawn per
            part.
        trackers: experiment trackers that get a copy of the events (`DROPBENCH_TRACKERS`, `harness.training.tracking`).
    """

    data: Path = Path("data")
    runs: Path = Path("runs")
    database: str = "sqlite:///dropbench.db"
    folders: dict[str, Path] = field(default_factory=dict)
    plugins: tuple[Path, ...] = ()
    device: str = "auto"
    backend: str = "auto"
    compile: bool = False
    threads: int = 0
    num_workers: int | None = None
    checkpoint_seconds: float = 300.0
    micro_batch_splits: int = 1
    trackers: tuple[str, ...] = ()

    @classmethod
    def from_environment(cls, **changes: Any) -> Settings:
        """Settings of this process; `changes` win over the environment."""
        found: dict[str, Any] = {}
        if value := os.environ.get("DROPBENCH_DATA"):
            found["data"] = Path(value)
        if value := os.environ.get("DROPBENCH_RUNS"):
            found["runs"] = Path(value)
        if value := os.environ.get("DROPBENCH_DB"):
            found["database"] = value
        if value := os.environ.get("DROPBENCH_PLUGINS"):
            found["plugins"] = tuple(Path(part) for part in value.split(os.pathsep) if part)
        for name in ("DROPBENCH_LOADERS", "DROPBENCH_NUM_WORKERS"):  # the first is the name up to 0.1
            if value := os.environ.get(name):
                if not value.isdecimal():
                    raise InputError(f"{name}={value}: expected a number of processes")
                found["num_workers"] = int(value)
        if value := os.environ.get("DROPBENCH_BACKEND"):
            found["backend"] = value
        if value := os.environ.get("DROPBENCH_TRACKERS"):
            found["trackers"] = tuple(filter(None, value.split(",")))
        found.update(changes)
        backend = found.get("backend", "auto")
        if backend not in BACKENDS:
            raise unknown_name("backend", backend, BACKENDS)
        return cls(**found)

    def uses_cuda(self) -> bool:
        """Whether trials run on GPUs: where there are some, unless the CPU is asked for."""
        import torch

        return self.device != "cpu" and torch.cuda.is_available()

    def to_payload(self) -> dict[str, Any]:
        """Plain values with absolute paths, for a worker in another folder."""
        payload = asdict(self)
        payload["data"] = str(self.data.absolute())
        payload["runs"] = str(self.runs.absolute())
        payload["folders"] = {name: str(path.absolute()) for name, path in self.folders.items()}
        payload["plugins"] = [str(path.absolute()) for path in self.plugins]
        return payload

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Settings:
        """The inverse of `to_payload`."""
        for old, new in (("loaders", "num_workers"), ("pieces", "micro_batch_splits")):  # payloads of 0.1
            if old in payload:
                payload = {**payload, new: payload[old]}
                del payload[old]
        return cls(
            **{
                **payload,
                "data": Path(payload["data"]),
                "runs": Path(payload["runs"]),
                "folders": {name: Path(path) for name, path in payload["folders"].items()},
                "plugins": tuple(Path(path) for path in payload["plugins"]),
                "trackers": tuple(payload.get("trackers", ())),
            }
        )
