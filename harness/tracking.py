"""Experiment trackers, through accelerate: a copy of a run's events for TensorBoard, Weights & Biases or MLflow.

The run directory stays the truth. A tracker that fails (no network, no account) is told of once and left out; the trial
goes on.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from harness.errors import InputError, unknown_name
from harness.files import write_json

if TYPE_CHECKING:
    from accelerate import Accelerator

    from harness.rundir import RunDirectory
    from harness.trial import Trial

TRACKERS = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
"""Name → the package that it needs."""
PROJECT = "dropbench"


def checked_trackers(names: Sequence[str]) -> tuple[str, ...]:
    """The names, each once.

    Raises:
        InputError: one is unknown, or its package is not installed.
    """
    for name in names:
        if name not in TRACKERS:
            raise unknown_name("tracker", name, TRACKERS)
        if importlib.util.find_spec(TRACKERS[name]) is None:
            raise InputError(f"tracker '{name}' needs the package {TRACKERS[name]}: pip install {TRACKERS[name]}")
    return tuple(dict.fromkeys(names))


def options(names: Sequence[str], directory: RunDirectory) -> dict[str, Any]:
    """What `Accelerator` has to be told of the trackers."""
    if not names:
        return {}
    from accelerate.utils import ProjectConfiguration

    return {"log_with": list(names), "project_config": ProjectConfiguration(logging_dir=str(directory.path))}


class Tracking:
    """Passes the events of a run on; with no trackers it does nothing.

    Args:
        accelerator: made with `options`.
        trial: what is run; its configuration goes to the trackers once.
        directory: of the run. TensorBoard's files lie there in ``dropbench/``.
        say: prints a line for the log.
    """

    def __init__(
        self, accelerator: Accelerator, trial: Trial, directory: RunDirectory, say: Callable[[str], None]
    ) -> None:
        self.accelerator, self.trial, self.say = accelerator, trial, say
        self.ids = directory.path / "trackers.json"

    def event(self, event: str, fields: dict[str, Any]) -> None:
        """Pass on an event of ``events.jsonl``, as values by name at its step."""
        if not self.accelerator.log_with:
            return
        if event == "resume":
            self.guarded(lambda: self.start(first=fields["step"] == 0))
        elif event == "train":
            self.log({"train/loss": fields["loss"], "train/lr": fields["lr"]}, fields["step"])
        elif event == "evaluate":
            self.log({f"{fields['split']}/{name}": value for name, value in fields["metrics"].items()}, fields["step"])
        elif event == "end":
            self.log({f"final/{name}": value for name, value in fields["metrics"].items()}, fields["step"])

    def start(self, *, first: bool) -> None:
        """Begin the run of each tracker, or go on with it."""
        kept = json.loads(self.ids.read_text()) if self.ids.exists() else {}
        id = self.trial.id
        self.accelerator.init_trackers(
            PROJECT,
            config=_flat(self.trial.config() | {"seed": self.trial.seed}) if first else None,
            init_kwargs={
                "wandb": {"id": id, "name": id, "resume": "allow", "dir": str(self.ids.parent)},
                "mlflow": {"run_name": id, "run_id": kept.get("mlflow")},
            },
        )
        for tracker in self.accelerator.trackers:
            if tracker.name == "mlflow" and "mlflow" not in kept:
                write_json(self.ids, {"mlflow": tracker.tracker.info.run_id})

    def log(self, values: dict[str, float], step: int) -> None:
        """Give the values to every tracker."""
        self.guarded(lambda: self.accelerator.log(values, step=step))

    def close(self) -> None:
        """End the runs of the trackers; not `Accelerator.end_training`, which would end a team of processes, too."""
        for tracker in getattr(self.accelerator, "trackers", []):
            self.guarded(tracker.finish)

    def guarded(self, work: Callable[[], Any]) -> None:
        """Do it; a tracker's failure is told, and ends tracking, but not the trial."""
        try:
            work()
        except Exception as error:
            self.say(f"tracking ends: {type(error).__name__}: {' '.join(str(error).split())}")
            self.accelerator.log_with = []
            self.accelerator.trackers = []


def _flat(config: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Nested values as ``recipe.lr``; what is no plain value as JSON."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{before}{key}.")
        elif value is not None:
            flat[before + key] = value if isinstance(value, str | int | float | bool) else json.dumps(value)
    return flat
