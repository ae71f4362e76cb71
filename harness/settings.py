"""Where things lie, and what does not change a result: from the environment, the command line, or a job's payload."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.errors import InputError, unknown_name

BACKENDS = ("auto", "eager", "cpu", "triton")
"""What computes attention with dropped keys; see `harness.backends`."""


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
        backend: what computes attention with dropped keys (`DROPBENCH_BACKEND`, `harness.backends`).
        compile: whether models are compiled by torch (`torch.compile`): minutes once, for quicker steps.
        threads: CPU threads a trial; 0: torch's own choice.
        loaders: processes that make the batches of a trial (`DROPBENCH_LOADERS`); None: see `harness.feed.ahead`.
        checkpoint_seconds: time between two checkpoints.
        pieces: that each micro-batch is cut into, and each batch of evaluation: more where memory was short before. An
            optimizer step stays the mean over the same samples; what is random in it is drawn for each piece.
        trackers: experiment trackers that get a copy of the events (`DROPBENCH_TRACKERS`, `harness.tracking`).
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
    loaders: int | None = None
    checkpoint_seconds: float = 300.0
    pieces: int = 1
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
        if value := os.environ.get("DROPBENCH_LOADERS"):
            if not value.isdecimal():
                raise InputError(f"DROPBENCH_LOADERS={value}: expected a number of processes")
            found["loaders"] = int(value)
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
