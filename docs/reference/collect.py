"""Finished trials of run directories that may become reference results, and why the others may not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from db.queries.recorded import RecordedTrials, trials_of
from db.reference.predictions import compact
from db.schema.tables import FINAL
from db.store.run_record import RunRecord, read_run_record
from db.store.store import Store
from db.tuning.select import select
from harness.errors import InputError
from harness.files import read_json
from harness.predictions.schema import Row
from harness.runs.predictions import load_predictions
from harness.runs.run_directory import RunDirectory, Runs
from harness.settings import Settings
from harness.suites.cell import Cell, SuiteOptions
from harness.suites.suite import SYNTHETIC, Suite
from harness.trials.result_versions import version_note

ENVIRONMENT = ("python", "libraries", "device", "threads", "cores", "backend", "backends", "compile", "sgemm")
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
        details: its row of `db.schema.reference.Details`.
        predictions: rows of `db.reference.predictions.compact`.
    """

    record: RunRecord
    details: dict[str, Any]
    predictions: list[tuple[Row, Row]]


@dataclass
class Collected:
    """Candidates by id, and the number of trials that were refused by reason."""

    candidates: dict[str, Candidate] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)


def collect(runs: Iterable[Path], suites: Iterable[str], commit: str, *, plugins: bool) -> Collected:
    """Read the finished trials of some suites.

    Args:
        runs: folders of run directories.
        suites: names of suites.
        commit: the commit of the code, for runs that did not record it.
        plugins: whether trials of plug-ins may be kept.

    Raises:
        InputError: a folder does not exist.
    """
    wanted, collected = set(suites), Collected()
    for folder in runs:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder: expected run directories")
        for directory in Runs(folder):
            try:
                content = directory.result()
                if content is None or not (own := sorted(wanted.intersection(directory.suites()))):
                    continue
                candidate = _candidate(directory, content, own, commit)
            except (InputError, KeyError, TypeError, ValueError):
                collected.refused["damaged run directory"] += 1
                continue
            if reason := _deviation(candidate, plugins=plugins):
                collected.refused[reason] += 1
            else:
                collected.candidates[candidate.record.trial.id] = candidate
    return collected


def refuse_unrequested(collected: Collected, suites: Iterable[Suite], store: Store, settings: Settings) -> None:
    """Refuse candidates that no suite requests now: with overridden settings, or by a recipe that has changed.

    `store` has the candidates, from which the trials of cells are looked up whose data are not on this machine.
    """
    presets = {candidate.record.trial.preset for candidate in collected.candidates.values()}
    requested = {id for suite in suites for preset in presets for id in _config_ids(suite, preset, store, settings)}
    for id, candidate in list(collected.candidates.items()):
        if candidate.record.trial.config_id not in requested:
            del collected.candidates[id]
            collected.refused["overridden settings, or a recipe that has changed since"] += 1


def _config_ids(suite: Suite, preset: str, store: Store, settings: Settings) -> Iterator[str]:
    if preset not in suite.presets:
        return
    recorded = RecordedTrials(store)
    for cell in suite.cells(SuiteOptions(preset=preset)):
        with suppress(InputError):  # no trial of it, here or in the runs
            for candidate in _candidates(cell, store, settings):
                yield trials_of([candidate], settings, recorded)[0][0].config_id


def _candidates(cell: Cell, store: Store, settings: Settings) -> list[Cell]:
    if cell.sweep is None or cell.sweep.is_grid:
        return cell.grid_cells()
    return [candidate.cell for candidate in select(cell, settings, store).candidates]


def _candidate(directory: RunDirectory, content: dict[str, Any], suites: list[str], commit: str) -> Candidate:
    record = read_run_record(directory)
    environment = read_json(directory.path / "environment.json")
    trial = record.trial
    if trial.weights is not None:  # its path is of this machine, and no part of the id
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
    kept = replace(record, trial=trial, suites=suites, attempts=attempts, metrics=finals)
    stored = [load_predictions(directory, split) for split in SPLITS]
    rows = [compact(predictions) for predictions in stored if predictions is not None]
    return Candidate(kept, details, [row for row in rows if row is not None])


def _deviation(candidate: Candidate, *, plugins: bool) -> str | None:
    """Return why a trial is no reference result, whatever suite requests it."""
    trial, environment = candidate.record.trial, json.loads(candidate.details["environment"])
    if trial.data.name.endswith(SYNTHETIC):
        return "synthetic data"
    if trial.data.partial:
        return "partial fingerprint"
    if trial.plugins and not plugins:
        return "of a plug-in"
    if environment.get("compile"):
        return "compiled"
    if any((attempt["micro_batch_splits"] or 1) > 1 for attempt in candidate.record.attempts):
        return "batches split after it ran out of memory"
    return version_note(trial)
