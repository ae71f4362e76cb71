"""Read a run directory as rows. Collecting and rebuilding both use `read_run_record`, so they give the same rows."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dropbench.db.schema.tables import FINAL
from dropbench.harness.errors import InputError
from dropbench.harness.runs.attempt_record import AttemptRecord
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.trials.trial import Trial, TrialState

NEXT_STATE: dict[str, TrialState] = {"failed": "failed", "cancelled": "cancelled"}
"""State of the last attempt → state of the trial; "queued" for all others, including "succeeded" without a result."""
MODEL_LIBRARIES = {"image-classification": "timm", "mesh-recovery": "timm", "object-detection": "mmdet",
                   "interaction-detection": "mmdet", "translation": "fairseq"}  # fmt: skip
"""The library that most models of a task are from; of texts, transformers."""


@dataclass(frozen=True)
class RunRecord:
    """The content of a run directory.

    Attributes:
        trial: the trial.
        state: its state; never "submitted" or "skipped", which only the queue knows.
        reason: why it failed, was cancelled, or is queued again.
        attempts: the columns of the table `attempts` except `trial_id`, in order.
        metrics: (name, step, value); step `FINAL` for final values, value None if it is not a finite number.
        created_at: start of the first attempt, else when the directory was created.
        updated_at: end or start of the last attempt, else when the directory was created.
        libraries: versions of Python, torch and the task's model library in the last attempt, None if unknown.
        damaged: an error line per damaged file that does not affect the trial's result.
    """

    trial: Trial
    state: TrialState
    reason: str | None = None
    attempts: list[dict[str, Any]] = field(default_factory=list)
    metrics: list[tuple[str, int, float | None]] = field(default_factory=list)
    created_at: str | None = None
    updated_at: str | None = None
    libraries: str | None = None
    damaged: tuple[str, ...] = ()


def read_run_record(directory: RunDirectory) -> RunRecord:
    """Read a run directory. Raise InputError if one of its files is damaged; the message names the file."""
    trial = directory.trial()
    result = directory.result()
    attempts = [AttemptRecord.model_validate(attempt).model_dump() for attempt in directory.attempts()]
    metrics = _curves(directory)
    damaged: list[str] = []
    if result is not None:
        metrics |= _finals(directory, result["metrics"]) | _analyses(directory, damaged)
    state, reason = _state(directory, result is not None, attempts)
    times = [time for attempt in attempts for time in (attempt["started_at"], attempt["ended_at"]) if time]
    created = datetime.fromtimestamp((directory.path / "trial.json").stat().st_mtime, UTC)
    created_at = created.isoformat(timespec="milliseconds")
    return RunRecord(
        trial=trial,
        state=state,
        reason=reason,
        attempts=attempts,
        metrics=[(name, step, value) for (name, step), value in metrics.items()],
        created_at=times[0] if times else created_at,
        updated_at=times[-1] if times else created_at,
        libraries=_libraries(directory, trial.task, attempts),
        damaged=tuple(damaged),
    )


def find_damage(runs: Path, ids: Iterable[str]) -> list[str]:
    """Return an error line per trial that succeeded, but whose result in `runs` is damaged, missing or another trial's.

    Trials whose run directories are elsewhere are left out.
    """
    lines = []
    for directory in (Runs(runs)[id] for id in ids if id in Runs(runs)):
        try:
            directory.trial()
            if directory.result() is None:
                lines.append(f"{directory.path}: no result.json, though trial {directory.id} succeeded")
        except InputError as error:
            lines.append(str(error))
    return lines


def _libraries(directory: RunDirectory, task: str, attempts: Sequence[Mapping[str, Any]]) -> str | None:
    """Return Python, torch and the task's model library: ``Python 3.12, timm 1.0, torch 2.12``; None if unknown.

    What else changes the computed function, and not only the order of its sums, follows torch's version: ``torch 2.12
    compiled tf32``.
    """
    with contextlib.suppress(LookupError, TypeError, ValueError, FileNotFoundError):
        content = directory.read("environment.json")
        installed = {**content["libraries"], "Python": content.get("python")}
        names = sorted({"Python", "torch", MODEL_LIBRARIES.get(task, "transformers")} & installed.keys())
        versions = [(name, re.match(r"\d+\.\d+", str(installed[name]))) for name in names]
        suffix = {"torch": "".join(f" {word}" for word in _computed(content, attempts))}
        texts = (f"{name} {version[0]}{suffix.get(name, '')}" for name, version in versions if version)
        return ", ".join(texts) or None
    return None


def _computed(environment: Mapping[str, Any], attempts: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield what makes torch compute another function: compilation, precision, other draws for a seed, mixed code."""
    splits = max((attempt["micro_batch_splits"] or 1 for attempt in attempts), default=1)
    processes = int(environment.get("processes") or 1)
    yield from ("compiled",) if environment.get("compile") else ()
    yield from ("tf32",) if environment.get("tf32") else ()
    yield from ("float32-for-fp16",) if environment.get("float32_for_fp16") else ()
    yield from (f"draws of {environment['device']}".replace(",", ""),) if environment.get("draws_on_device") else ()
    yield from (f"{processes}-processes",) if processes > 1 else ()
    yield from (f"{splits}-splits",) if splits > 1 else ()
    yield from ("mixed-code",) if len(environment.get("codes") or ()) > 1 else ()


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
            values = {f"{split}/{key}": value for key, value in event["metrics"].items()}
        else:
            continue
        for name, value in values.items():
            if isinstance(value, int | float) and name.isprintable():
                points[name, step] = _finite(value)
    return points


def _analyses(directory: RunDirectory, damaged: list[str]) -> dict[tuple[str, int], float | None]:
    """Return the measurements of `dropbench analyze` as final values ``<kind>/<name>``.

    A damaged file does not affect the trial's result: it is added to `damaged`. Running the analysis again replaces it.
    """
    values: dict[tuple[str, int], float | None] = {}
    for file in sorted(directory.analyses.glob("*.json")):
        try:
            scalars = directory.read(f"analysis/{file.name}")["scalars"]
            values |= _finals(directory, {f"{file.stem}/{name}": value for name, value in scalars.items()})
        except InputError as error:
            damaged.append(str(error))
        except (OSError, LookupError, TypeError, AttributeError):
            damaged.append(f"{file}: not an analysis")
    return values


def _finals(directory: RunDirectory, metrics: Mapping[str, Any]) -> dict[tuple[str, int], float | None]:
    values: dict[tuple[str, int], float | None] = {}
    for name, value in metrics.items():
        valid = isinstance(value, int | float | None) and not isinstance(value, bool) and name.isprintable()
        if not valid:
            raise InputError(f"{directory.path / 'result.json'}: {name!a}: expected a number, got {value!a:.60}")
        values[name, FINAL] = None if value is None else _finite(value)
    return values


def _finite(value: float) -> float | None:
    return float(value) if abs(value) <= sys.float_info.max else None
