"""Read a run directory as rows. Collecting and rebuilding both use `read_run_record`, so they give the same rows."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from db.schema.tables import FINAL
from harness.errors import InputError
from harness.runs.run_directory import RunDirectory
from harness.trials.metric import RENAMED, current_name
from harness.trials.trial import Trial, TrialState

AttemptState = Literal[
    "running", "succeeded", "failed", "cancelled", "preempted", "timeout", "out_of_memory", "node_failure", "lost",
    "interrupted",
]  # fmt: skip

NEXT_STATE: dict[str, TrialState] = {"failed": "failed", "cancelled": "cancelled"}
"""State of the last attempt → state of the trial; "queued" for all others, including "succeeded" without a result."""


@dataclass(frozen=True)
class RunRecord:
    """The content of a run directory.

    Attributes:
        trial: the trial.
        state: its state; never "submitted" or "skipped", which only the queue knows.
        reason: why it failed, was cancelled, or is queued again.
        suites: the suites that contain the trial.
        attempts: the columns of the table `attempts` except `trial_id`, in order.
        metrics: (name, step, value); step `FINAL` for final values, value None if it is not a finite number.
        created_at: start of the first attempt, else when the directory was created.
        updated_at: end or start of the last attempt, else when the directory was created.
    """

    trial: Trial
    state: TrialState
    reason: str | None = None
    suites: list[str] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[tuple[str, int, float | None]] = field(default_factory=list)
    created_at: str | None = None
    updated_at: str | None = None


class _Attempt(BaseModel):
    """An attempt file; keys of newer versions are ignored."""

    model_config = ConfigDict(extra="ignore")

    number: int = Field(ge=1)
    state: AttemptState
    cause: str | None = None
    executor: str | None = None
    job_id: str | None = None
    host: str | None = None
    pid: int | None = None
    started_at: str | None = Field(default=None, max_length=32)
    ended_at: str | None = Field(default=None, max_length=32)
    device: str | None = None
    cpu_seconds: float | None = None
    gpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    steps_done: int | None = None
    message: str | None = None
    submission_id: str | None = Field(default=None, alias="submission", max_length=32)
    waited_seconds: float | None = None
    cpus: int | None = None
    gpus: int | None = None
    # "pieces" up to version 0.1
    micro_batch_splits: int | None = Field(None, validation_alias=AliasChoices("micro_batch_splits", "pieces"))


_ATTEMPTS = TypeAdapter(list[_Attempt])


def read_run_record(directory: RunDirectory) -> RunRecord:
    """Read a run directory. Raise InputError if one of its files is damaged; the message names the file."""
    trial = directory.trial()
    result = directory.result()
    attempts = _attempts(directory)
    metrics = _curves(directory)
    if result is not None:
        metrics |= _finals(directory, result["metrics"]) | _analyses(directory)
    state, reason = _state(directory, result is not None, attempts)
    times = [time for attempt in attempts for time in (attempt["started_at"], attempt["ended_at"]) if time]
    created = datetime.fromtimestamp((directory.path / "trial.json").stat().st_mtime, UTC)
    created_at = created.isoformat(timespec="milliseconds")
    return RunRecord(
        trial=trial,
        state=state,
        reason=reason,
        suites=sorted(set(directory.suites())),
        attempts=attempts,
        metrics=[(name, step, value) for (name, step), value in metrics.items()],
        created_at=times[0] if times else created_at,
        updated_at=times[-1] if times else created_at,
    )


def _state(directory: RunDirectory, done: bool, attempts: list[dict[str, Any]]) -> tuple[TrialState, str | None]:
    if done:
        return "succeeded", None
    if directory.locked():
        return "running", None
    last = attempts[-1] if attempts else None
    if last is not None and last["state"] == "running":
        return "queued", "its worker was killed"
    if (reason := directory.cancelled()) is not None:
        return "cancelled", reason
    if last is None:
        return "queued", None
    return NEXT_STATE.get(last["state"], "queued"), last["cause"]


def _attempts(directory: RunDirectory) -> list[dict[str, Any]]:
    folder = directory.path / "attempts"
    try:
        return [attempt.model_dump() for attempt in _ATTEMPTS.validate_python(directory.attempts())]
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{folder}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None
    except ValueError:
        raise InputError(f"{folder}: expected files 1.json, 2.json, …") from None


def _curves(directory: RunDirectory) -> dict[tuple[str, int], float | None]:
    """Return the points of all curves by name and step. If a step was measured twice, the later value counts."""
    points: dict[tuple[str, int], float | None] = {}
    for event in directory.events():
        step = event.get("step")
        if not isinstance(step, int) or step < 0:
            continue
        if event.get("event") == "train":
            values = {f"train/{key}": event[key] for key in ("loss", "lr") if key in event}
        elif event.get("event") == "evaluate" and isinstance(event.get("metrics"), dict):
            split = event.get("split")
            values = {f"{split}/{RENAMED.get(key, key)}": value for key, value in event["metrics"].items()}
        else:
            continue
        for name, value in values.items():
            if isinstance(value, int | float):
                points[name, step] = float(value) if math.isfinite(value) else None
    return points


def _analyses(directory: RunDirectory) -> dict[tuple[str, int], float | None]:
    """Return the measurements of `dropbench analyze` as final values ``<kind>/<name>``.

    A damaged file is ignored and does not affect the trial's result; running the analysis again replaces it.
    """
    values: dict[tuple[str, int], float | None] = {}
    for file in sorted(directory.analyses.glob("*.json")):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, InputError):
            scalars = json.loads(file.read_bytes())["scalars"]
            values |= _finals(directory, {f"{file.stem}/{name}": value for name, value in scalars.items()})
    return values


def _finals(directory: RunDirectory, metrics: Mapping[str, Any]) -> dict[tuple[str, int], float | None]:
    values: dict[tuple[str, int], float | None] = {}
    for name, value in metrics.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise InputError(f"{directory.path / 'result.json'}: {name}: expected a number, got {value!r}")
        values[current_name(name), FINAL] = float(value) if value is not None and math.isfinite(value) else None
    return values
