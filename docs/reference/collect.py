"""Finished trials of run directories that may become reference results, and why the others may not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dropbench.db.reference.predictions import COLUMNS
from dropbench.db.report.view.requests import grouped
from dropbench.db.schema.tables import FINAL
from dropbench.db.store.run_record import RunRecord, read_run_record
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.schema import Predictions, Row, content_id
from dropbench.harness.runs.predictions import load_predictions
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.suites.request import Request, read_request, request_files
from dropbench.harness.trials.result_versions import version_note
from dropbench.harness.trials.trial import SYNTHETIC

ENVIRONMENT = ("python", "libraries", "device", "threads", "cores", "backend", "backends", "compile")
"""Keys of ``environment.json`` that are kept: those that matter for equal results."""
ATTEMPT = (
    *("number", "state", "executor", "started_at", "ended_at", "device", "cpu_seconds", "gpu_seconds"),
    *("peak_memory_bytes", "steps_done", "cpus", "gpus", "micro_batch_splits"),
)
"""Fields of an attempt that are kept: its cost, but nothing about the machine and its users."""
SPLITS = ("dev", "test")
"""Splits whose predictions are kept."""


@dataclass(frozen=True)
class Candidate:
    """A finished trial as a reference may have it.

    Attributes:
        record: the trial with its attempts and final metrics.
        details: its row of `dropbench.db.schema.reference.Details`.
        predictions: rows of `compact`.
    """

    record: RunRecord
    details: dict[str, Any]
    predictions: list[tuple[Row, Row]]


@dataclass
class Collected:
    """Candidates by id, and the number of trials that were refused by reason."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)


def requests_of(runs: Iterable[Path], suites: Collection[str]) -> list[Request]:
    """Return the requests of some suites that a reference may have, the newest first.

    These are the requests of a suite and preset that train like the newest one without options.

    Raises:
        InputError: the file of a request is damaged.
    """
    requests = [read_request(file) for folder in runs for file in request_files(folder)]
    by_suite: dict[tuple[str, str], list[Request]] = {}
    for request in sorted(requests, key=lambda request: request.created_at, reverse=True):
        options = request.conditions.get("option", {}).values()
        if request.suite.name in suites and not any(options) and not request.options.regularizers:
            by_suite.setdefault((request.suite.name, request.preset), []).append(request)
    return [request for own in by_suite.values() for request in grouped(own)[0].requests]


def collect(
    runs: Iterable[Path], suites: Collection[str], requests: Sequence[Request], commit: str, *, plugins: bool
) -> Collected:
    """Read the finished trials of some suites.

    Args:
        runs: folders of run directories.
        suites: names of suites.
        requests: the requests whose trials are taken; those of the suites' others are refused.
        commit: the commit of the code, for runs that did not record it.
        plugins: whether trials of plug-ins may be kept.

    Raises:
        InputError: a folder does not exist.
    """
    named, collected = {id for request in requests for id in request.trials}, Collected()
    for folder in runs:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder: expected run directories")
        own = (read_request(file) for file in request_files(folder))
        wanted = {id for request in own if request.suite.name in suites for id in request.trials}
        for directory in (directory for directory in Runs(folder) if directory.id in wanted):
            try:
                content = directory.result()
                if content is None:
                    continue
                candidate = _candidate(directory, content, commit)
            except (InputError, KeyError, TypeError, ValueError):
                collected.refused["damaged run directory"] += 1
                continue
            reason = _deviation(candidate, plugins=plugins)
            if reason is None and directory.id not in named:
                reason = "overridden settings, or a recipe that has changed since"
            if reason is not None:
                collected.refused[reason] += 1
            else:
                collected.candidates[candidate.record.trial.id] = candidate
    return collected


def _candidate(directory: RunDirectory, content: dict[str, Any], commit: str) -> Candidate:
    record = read_run_record(directory)
    environment = directory.read("environment.json")
    # Paths are of this machine, and no part of the id.
    trial = record.trial.model_copy(update={"data": record.trial.data.model_copy(update={"path": None})})
    if trial.weights is not None:
        weights = trial.weights.model_copy(update={"path": Path(trial.weights.path).name})
        trial = trial.model_copy(update={"weights": weights})
    details = {
        "trial_id": trial.id,
        "steps": int(content["steps"]),
        "selected_step": int(content["selected_step"]),
        "commit": environment.get("commit") or commit,
        "environment": json.dumps({key: environment[key] for key in ENVIRONMENT if key in environment}, sort_keys=True),
        "notes": json.dumps([str(note) for note in content.get("notes", ())], ensure_ascii=False),
    }
    attempts = [
        {key: value if key in ATTEMPT else None for key, value in attempt.items()} for attempt in record.attempts
    ]
    finals = [(name, step, value) for name, step, value in record.metrics if step == FINAL]
    kept = replace(record, trial=trial, attempts=attempts, metrics=finals)
    stored = [load_predictions(directory, split) for split in SPLITS]
    rows = [compact(predictions) for predictions in stored if predictions is not None]
    return Candidate(kept, details, [row for row in rows if row is not None])


def _deviation(candidate: Candidate, *, plugins: bool) -> str | None:
    """Return why a trial is no reference result, whatever suite requests it."""
    trial, environment = candidate.record.trial, json.loads(candidate.details["environment"])
    if trial.data.name.endswith(SYNTHETIC):
        return "synthetic data"
    if trial.plugins and not plugins:
        return "of a plug-in"
    if environment.get("compile"):
        return "compiled"
    if any((attempt["micro_batch_splits"] or 1) > 1 for attempt in candidate.record.attempts):
        return "batches split after it ran out of memory"
    return version_note(trial)


def compact(predictions: Predictions) -> tuple[Row, Row] | None:
    """Return the rows of `Examples` and `Predicted`; None unless the task predicts one class for each example."""
    header, rows = predictions.header, predictions.rows
    if not COLUMNS.items() <= header.columns.items():
        return None
    complete = [row["index"] for row in rows] == list(range(len(rows)))
    if not complete or any(row["correct"] != (row["target"] == row["prediction"]) for row in rows):
        return None
    metrics = {name: ratio for name, ratio in header.metrics.items() if {ratio.sum, *ratio.over} <= COLUMNS.keys()}
    kept = header.model_copy(update={"columns": COLUMNS, "metrics": metrics, "corpus": {}})
    examples = {
        "header": _json(kept.model_dump(mode="json", exclude={"trial"})),
        "ids": " ".join(row["id"] for row in rows),
        "targets": _json([row["target"] for row in rows]),
    }
    id = content_id(*examples.values())
    classes = _json([row["prediction"] for row in rows])
    predicted = {"trial_id": header.trial, "split": header.split, "examples_id": id, "classes": classes}
    return {"examples_id": id, **examples}, predicted


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
