"""Experiment trackers, through accelerate: a copy of a run's events for TensorBoard, Weights & Biases or MLflow.

The run directory stays the only source of results. A tracker that fails (no network, no account) is reported once and
disabled; the trial continues.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.files import write_json
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.trial import Trial

if TYPE_CHECKING:
    from accelerate import Accelerator

TRACKERS = ("tensorboard", "wandb", "mlflow")
"""Trackers; each needs the package of its name."""
PROJECT = "dropbench"


def checked_trackers(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names without duplicates; raise InputError if one is unknown, or its package is not installed."""
    for name in names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
        if importlib.util.find_spec(name) is None:
            raise InputError(f"tracker '{name}' needs the package {name}: `pip install {name}`")
    return tuple(dict.fromkeys(names))


def options(names: Sequence[str], directory: RunDirectory) -> dict[str, Any]:
    """Return the arguments of `Accelerator` for these trackers."""
    if not names:
        return {}
    from accelerate.utils import ProjectConfiguration

    return {"log_with": list(names), "project_config": ProjectConfiguration(logging_dir=str(directory.path))}


class Tracking:
    """Copies the events of a run to its trackers; does nothing without trackers.

    The accelerator was created with `options`. TensorBoard's files are in the run directory's folder ``dropbench/``.
    `log` prints a line to the log.
    """

    def __init__(
        self, accelerator: Accelerator, trial: Trial, directory: RunDirectory, log: Callable[[str], None]
    ) -> None:
        self.accelerator, self.trial, self.log = accelerator, trial, log
        self.ids = directory.path / "trackers.json"

    def event(self, event: str, fields: dict[str, Any]) -> None:
        """Copy an event of ``events.jsonl`` as named values at its step."""
        if not self.accelerator.log_with:
            return
        values = {}
        if event == "resume":
            self.guarded(lambda: self.start(first=fields["step"] == 0))
        elif event == "train":
            values = {"train/loss": fields["loss"], "train/lr": fields["lr"]}
        elif event in ("evaluate", "end"):
            prefix = fields["split"] if event == "evaluate" else "final"
            values = {f"{prefix}/{name}": value for name, value in fields["metrics"].items()}
        if values:
            self.guarded(lambda: self.accelerator.log(values, step=fields["step"]))

    def start(self, *, first: bool) -> None:
        """Start or resume the run of each tracker."""
        ids = json.loads(self.ids.read_text()) if self.ids.exists() else {}
        id = self.trial.id
        self.accelerator.init_trackers(
            PROJECT,
            config=_flat(self.trial.config() | {"seed": self.trial.seed}) if first else None,
            init_kwargs={
                "wandb": {"id": id, "name": id, "resume": "allow", "dir": str(self.ids.parent)},
                "mlflow": {"run_name": id, "run_id": ids.get("mlflow")},
            },
        )
        for tracker in self.accelerator.trackers:
            if tracker.name == "mlflow" and "mlflow" not in ids:
                write_json(self.ids, {"mlflow": tracker.tracker.info.run_id})

    def close(self) -> None:
        """End the trackers' runs. `Accelerator.end_training` would also end the process group."""
        for tracker in getattr(self.accelerator, "trackers", []):
            self.guarded(tracker.finish)

    def guarded(self, work: Callable[[], Any]) -> None:
        """Do some work; if a tracker fails, log the error and stop tracking, but not the trial."""
        try:
            work()
        except Exception as error:
            self.log(f"tracking disabled: {type(error).__name__}: {' '.join(str(error).split())}")
            self.accelerator.log_with = []
            self.accelerator.trackers = []


def _flat(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Return nested values as ``recipe.lr``; values that are not plain as JSON."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{key}.")
        elif value is not None:
            flat[before + key] = value if isinstance(value, str | int | float | bool) else json.dumps(value)
    return flat
