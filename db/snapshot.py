"""A run directory as rows. Collecting and rebuilding use this one function, so both give the same rows."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from db.models import FINAL
from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.trial import Trial, TrialState

AttemptState = Literal[
    "running", "succeeded", "failed", "cancelled", "preempted", "timeout", "out_of_memory", "node_failure", "lost",
    "interrupted",
]  # fmt: skip

AFTER: dict[str, TrialState] = {
    "failed": "failed", "out_of_memory": "queued", "cancelled": "cancelled",
    "preempted": "queued", "timeout": "queued", "node_failure": "queued", "lost": "queued", "interrupted": "queued",
}  # fmt: skip
"""State of the last attempt → state of the trial. One that said "succeeded" without a result runs again."""


@dataclass(frozen=True)
class Snapshot:
    """What a run directory says of its trial.

    Attributes:
        trial: the trial.
        state: its state; never "submitted" or "skipped", which only the queue knows.
        reason: why it failed, was cancelled, or waits again.
        suites: the suites that asked for it.
        attempts: the keys of the table `attempts` but `trial_id`, in order.
        metrics: (name, step, value); step -1 for final values, None for a value that is no finite number.
        created_at: start of the first attempt, else when the directory was made.
        updated_at: end or start of the last attempt, else the same.
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
    """An attempt file; keys of a newer version are left out."""

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
    pieces: int | None = None


_ATTEMPTS = TypeAdapter(list[_Attempt])


def snapshot(directory: RunDirectory) -> Snapshot:
    """Read a run directory.

    Raises:
        InputError: one of its files is damaged; the message names it.
    """
    trial = directory.trial()
    result = directory.result()
    attempts = _attempts(directory)
    metrics = _curves(directory)
    if result is not None:
        metrics |= {(name, FINAL): _number(directory, name, value) for name, value in result["metrics"].items()}
        metrics |= _analyses(directory)
    state, reason = _state(directory, result is not None, attempts)
    times = [time for attempt in attempts for time in (attempt["started_at"], attempt["ended_at"]) if time]
    made = _made(directory)
    return Snapshot(
        trial=trial,
        state=state,
        reason=reason,
        suites=sorted(set(directory.suites())),
        attempts=attempts,
        metrics=[(name, step, value) for (name, step), value in metrics.items()],
        created_at=times[0] if times else made,
        updated_at=times[-1] if times else made,
    )


def _state(directory: RunDirectory, done: bool, attempts: list[dict[str, Any]]) -> tuple[TrialState, str | None]:
    if done:
        return "succeeded", None
    if directory.locked():
        return "running", None
    last = attempts[-1] if attempts else None
    if last is not None and last["state"] == "running":
        return "queued", "its worker was killed"
    if (wish := directory.cancelled()) is not None:
        return "cancelled", wish
    if last is None:
        return "queued", None
    return AFTER.get(last["state"], "queued"), last["cause"]


def _attempts(directory: RunDirectory) -> list[dict[str, Any]]:
    where = directory.path / "attempts"
    try:
        return [attempt.model_dump() for attempt in _ATTEMPTS.validate_python(directory.attempts())]
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None
    except ValueError:
        raise InputError(f"{where}: expected files 1.json, 2.json, …") from None


def _curves(directory: RunDirectory) -> dict[tuple[str, int], float | None]:
    """The points of the curves; where a step was measured twice, the later value."""
    points: dict[tuple[str, int], float | None] = {}
    for event in directory.events():
        step = event.get("step")
        if not isinstance(step, int) or step < 0:
            continue
        if event.get("event") == "train":
            named = {f"train/{key}": event[key] for key in ("loss", "lr") if key in event}
        elif event.get("event") == "evaluate" and isinstance(event.get("metrics"), dict):
            named = {f"{event.get('split')}/{key}": value for key, value in event["metrics"].items()}
        else:
            continue
        for name, value in named.items():
            if isinstance(value, int | float):
                points[name, step] = float(value) if math.isfinite(value) else None
    return points


def _analyses(directory: RunDirectory) -> dict[tuple[str, int], float | None]:
    """What `dropbench analyze` has measured, as final values ``<kind>/<name>``.

    A damaged file is left out, and the trial's own result stands: analyzing it again makes the file anew.
    """
    found: dict[tuple[str, int], float | None] = {}
    for file in sorted(directory.analyses.glob("*.json")):
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, InputError):
            scalars = json.loads(file.read_bytes())["scalars"].items()
            found |= {(f"{file.stem}/{name}", FINAL): _number(directory, name, value) for name, value in scalars}
    return found


def _number(directory: RunDirectory, name: str, value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{directory.path / 'result.json'}: {name}: expected a number, got {value!r}")
    return float(value) if math.isfinite(value) else None


def _made(directory: RunDirectory) -> str:
    made = (directory.path / "trial.json").stat().st_mtime
    return datetime.fromtimestamp(made, UTC).isoformat(timespec="milliseconds")
