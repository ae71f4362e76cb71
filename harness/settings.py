"""Paths and runtime settings that do not affect results: from the environment, the command line, or a job's payload."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from dropbench.harness.errors import InputError, check_text, unknown_name

BACKENDS = ("auto", "eager", "cpu", "triton")
"""Implementations of attention with dropped keys; see `dropbench.harness.attention.backends`."""
DEVICES = ("auto", "cpu", "cuda")
MAX_SEEDS = 10_000  # of a configuration


def check_working_folder() -> None:
    """Raise InputError if the working folder was deleted, or if its path is not UTF-8."""
    try:
        check_text(os.getcwd(), "working folder")  # noqa: PTH109 - a Path takes longer
    except OSError:
        raise InputError("the working folder was deleted: change to another one") from None


def _split_paths(text: str) -> tuple[Path, ...]:
    """Split paths at colons, as in PATH, except those within a path that exists."""
    parts, paths = text.split(os.pathsep), list[Path]()
    while parts:
        counts = range(1, len(parts) + 1)
        count = next((n for n in counts if os.path.exists(os.pathsep.join(parts[:n]))), 1)  # noqa: PTH110 - takes names of any length
        paths += [Path(path)] if (path := os.pathsep.join(parts[:count])) else []
        del parts[:count]
    return tuple(paths)


_VARIABLES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "DROPBENCH_DATA": ("data", Path),
    "DROPBENCH_RUNS": ("runs", Path),
    "DROPBENCH_DB": ("database", str),
    "DROPBENCH_PLUGINS": ("plugins", _split_paths),
    "DROPBENCH_NUM_WORKERS": ("num_workers", int),
    "DROPBENCH_BACKEND": ("backend", str),
    "DROPBENCH_TRACKERS": ("trackers", lambda text: tuple(filter(None, text.split(",")))),
    "DROPBENCH_TRUST_CACHE": ("trust_cache", lambda text: text == "1"),
}
NODE_VARIABLES = ("DROPBENCH_DATA", "DROPBENCH_NUM_WORKERS")
"""Variables that a job may have for itself; all others must be those of the submission."""


def _parsed(variables: Mapping[str, str]) -> dict[str, Any]:
    """Return fields of `Settings` by name; raise InputError for a text that is no value."""
    fields: dict[str, Any] = {}
    for variable, (name, parse) in _VARIABLES.items():
        if text := variables.get(variable):
            check_text(text, variable, quotes=name != "database")  # a URL may have a password
            if parse is int and not (text.isdecimal() and len(text) < 5):
                raise InputError(f"{variable}={text}: expected a number of processes, at most 9999")
            fields[name] = parse(text)
    return fields


@dataclass(frozen=True)
class Settings:
    """Paths and switches that are not part of a trial.

    Attributes:
        data: the root of the data folders (`DROPBENCH_DATA`).
        runs: the root of the run directories (`DROPBENCH_RUNS`).
        database: SQLAlchemy URL of the database (`DROPBENCH_DB`); workers never open it.
        folders: data name → folder, if it is not ``data/<folder>`` (``--data NAME=PATH``).
        plugins: plug-ins to load, files or folders (`DROPBENCH_PLUGINS`, separated like PATH).
        device: "auto", "cpu" or "cuda".
        backend: the implementation of attention with dropped keys (`DROPBENCH_BACKEND`,
            `dropbench.harness.attention.backends`).
        compile: whether `torch.compile` compiles models, which takes minutes once and makes steps faster.
        threads: CPU threads per process of a trial; 0: torch's default.
        gpu_share: the share of a GPU's memory that a trial may allocate, if several trials run on it side by side.
        num_workers: data-loading processes per trial (`DROPBENCH_NUM_WORKERS`); None: `data_loading.prefetch` chooses.
        checkpoint_seconds: time between two checkpoints.
        micro_batch_splits: parts that each micro-batch and each evaluation batch is split into; more after a trial ran
            out of memory. An optimizer step stays the mean over the same samples; random numbers are drawn per part.
        trackers: experiment trackers that get a copy of the events (`DROPBENCH_TRACKERS`,
            `dropbench.harness.training.tracking`).
        trust_cache: a cached fingerprint is used without examining the files of the data (`DROPBENCH_TRUST_CACHE`=1).
        keep_weights: of the fine-tuned trials that are queued, the best one of each cell keeps its weights.
        probe: workers stop each trial after some steps, which measures its speed (`dropbench submit --probe`).
    """

    data: Path = Path("data")
    runs: Path = Path("runs")
    database: str = field(default="sqlite:///dropbench.db", repr=False)
    folders: dict[str, Path] = field(default_factory=dict)
    plugins: tuple[Path, ...] = ()
    device: str = "auto"
    backend: str = "auto"
    compile: bool = False
    threads: int = 0
    gpu_share: float = 1.0
    num_workers: int | None = None
    checkpoint_seconds: float = 300.0
    micro_batch_splits: int = 1
    trackers: tuple[str, ...] = ()
    trust_cache: bool = False
    keep_weights: bool = False
    probe: bool = False

    @classmethod
    def from_environment(cls, **changes: Any) -> Settings:
        """Return the settings of this process; `changes` take precedence over the environment.

        Raises:
            InputError: a value is not text, not a number of processes, or not the name of a backend or device; or the
                working folder was deleted, or its path is not UTF-8.
        """
        check_working_folder()
        settings = cls(**(_parsed(os.environ) | changes))
        for kind, name, known in (("backend", settings.backend, BACKENDS), ("device", settings.device, DEVICES)):
            if name not in known:
                raise unknown_name(kind, name, known)
        return settings

    def on_node(self, variables: Mapping[str, str]) -> Settings:
        """Return these settings for a job with environment variables of its own.

        Raises:
            InputError: a variable of DropBench is not one of `NODE_VARIABLES`, or its value is invalid.
        """
        fields = _parsed(variables)
        for variable in variables.keys() & _VARIABLES.keys() - set(NODE_VARIABLES):
            raise InputError(f"{variable}: known for a node: {', '.join(NODE_VARIABLES)}: set others where you submit")
        if "data" in fields and not fields["data"].is_absolute():
            raise InputError(f"DROPBENCH_DATA={fields['data']}: expected an absolute path on the node")
        return replace(self, **fields)

    def uses_cuda(self) -> bool:
        """Return whether trials run on GPUs; raise InputError if one is required, but none is available."""
        import torch

        available = torch.cuda.is_available()
        if self.device == "cuda" and not available:
            raise InputError("device cuda: torch sees no GPU: install torch for its driver, or use `--device cpu`")
        return self.device != "cpu" and available

    def to_payload(self) -> dict[str, Any]:
        """Return plain values with absolute paths, for a worker in another folder.

        Without the database, which workers do not open: its URL may have a password, and the values are in a file. And
        without plug-ins, whose copies in the folder of runs they load.
        """
        payload = asdict(self)
        del payload["database"], payload["plugins"]
        payload["data"] = str(self.data.absolute())
        payload["runs"] = str(self.runs.absolute())
        payload["folders"] = {name: str(path.absolute()) for name, path in self.folders.items()}
        return payload

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> Settings:
        """Read what `to_payload` returned."""
        from pydantic import TypeAdapter  # which only workers need

        return TypeAdapter(cls).validate_python(payload)
