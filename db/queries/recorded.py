"""The trials of a cell, on a machine with the files that identify them, or else as the database has recorded them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from db.schema.connection import reading
from db.schema.tables import Configs, Memberships, Trials
from db.store.rows import load_trial
from db.store.store import Store
from harness.errors import InputError
from harness.settings import Settings
from harness.suites.cell import Cell
from harness.trials.result_versions import earlier_trials, version_note
from harness.trials.task import spec_of
from harness.trials.trial import DataRef, Trial

NO_DATA = Path("/dev/null/no-data")
"""A folder that cannot exist: reference trials are on the data and of the versions that the reference was made with."""
DIGEST_KEYS = ("fingerprint", "digest")
"""Endings of recipe keys that are known from files."""
PREFIX = 8
"""Characters of a fingerprint that messages show."""


class AmbiguousFilesError(InputError):
    """The database has trials on several versions of the files, and the files are not on this machine."""


def trials_of(cells: Iterable[Cell], settings: Settings, recorded: RecordedTrials) -> list[list[Trial]]:
    """Return the trials of each cell, one per seed; missing data, weights and files are looked up in the database.

    Raises:
        AmbiguousFilesError: the database has trials on several versions of the missing files.
        InputError: fields do not fit together, or files are missing here and the database has no such trial either.
    """
    return [_trials(cell, settings, recorded) for cell in cells]


def _trials(cell: Cell, settings: Settings, recorded: RecordedTrials) -> list[Trial]:
    apart = settings.data == NO_DATA
    trial = recorded.trial(cell, chosen=not apart) if cell.fingerprints or apart else None
    if trial is None:
        try:
            return cell.trials(settings)
        except InputError:
            trial = recorded.trial(cell)
            if trial is None:
                raise
    return [trial.model_copy(update={"seed": seed}) for seed in cell.seeds]


class RecordedTrials:
    """The trials of a database, read once for all cells of a table; discard it before the database changes."""

    def __init__(self, store: Store) -> None:
        self._read = cache(partial(_read, store))
        self._fingerprint = cache(partial(_data_fingerprint, store))

    def trial(self, cell: Cell, *, chosen: bool = False) -> Trial | None:
        """Return a trial of a cell, with any seed, on recorded files; if `chosen`, only on files that the cell names.

        Raises:
            AmbiguousFilesError: see `trials_of`.
        """
        label = self._fingerprint(cell.suite, cell.request.preset, cell.request.data, cell.fingerprints)
        draft = spec_of(cell.request.task).draft_for(cell.request) if label is not None else None
        if draft is None or label is None:
            return None
        recorded = self._read(draft.task, draft.model, draft.preset, draft.data.name, label)
        target, path = draft.config(), draft.weights.path if draft.weights else None
        by_digests = {
            tuple(sorted(_digests(config).items())): (config, weights)
            for config, weights in recorded.by_regularizer.get(draft.regularizer.name, ())
            if weights == path and _agrees(config, target)
        }
        named = {
            key: value for key, value in by_digests.items() if _is_chosen(cell.fingerprints, label, *dict(key).values())
        }
        by_digests = named if named or chosen else by_digests
        if len(by_digests) > 1:
            texts = [dict(digests) for digests in by_digests]
            differing = next(name for name in texts[0] if len({digests[name] for digests in texts}) > 1)
            raise _ambiguous(differing.partition("_")[0], sorted({digests[differing] for digests in texts}))
        for config, weights in by_digests.values():
            trial = load_trial(config, 0, weights)
            if trial.result_versions.get("engine") == 0:  # of the shipped reference, which has no others
                return trial
            return trial.model_copy(update={"result_versions": draft.result_versions})
        if draft.weights is not None or not recorded.need_only_data:
            return None
        return draft.model_copy(update={"data": DataRef(name=draft.data.name, fingerprint=label), "seed": 0})


@dataclass
class _Configs:
    """The configurations of a task, model, preset and data.

    Attributes:
        by_regularizer: configurations and the paths of their weights, in the order of their trials.
        need_only_data: whether there are any, none of which has files besides the data.
    """

    by_regularizer: dict[str, list[tuple[dict[str, Any], str | None]]] = field(default_factory=dict)
    need_only_data: bool = False


def _read(store: Store, task: str, model: str, preset: str, data: str, fingerprint: str) -> _Configs:
    columns = {"task": task, "model": model, "preset": preset, "data": data, "fingerprint": fingerprint}
    weights, first = Trials.c.weights, func.min(Trials.c.created_at)
    trials = select(Trials.c.config_id, weights, first.label("first")).group_by(Trials.c.config_id, weights).subquery()
    query = select(Configs.c.config, trials.c.weights).join(trials, trials.c.config_id == Configs.c.id)
    query = query.where(*(Configs.c[key] == value for key, value in columns.items())).order_by(trials.c.first)
    with reading(store.engine) as connection:
        rows = connection.execute(query).all()
    recorded = _Configs(need_only_data=bool(rows) and not any(_digests(config) for config, _ in rows))
    for config, path in rows:
        recorded.by_regularizer.setdefault(config["regularizer"]["name"], []).append((config, path))
    return recorded


def _data_fingerprint(
    store: Store, suite: str | None, preset: str, data: str, fingerprints: tuple[str, ...]
) -> str | None:
    """Return the fingerprint of data in the trials of a suite and preset, or else in all trials; None without any."""
    query = select(Configs.c.fingerprint).where(Configs.c.data == data).distinct()
    of_suite = query.join(Trials, Trials.c.config_id == Configs.c.id).join(Memberships)
    of_suite = of_suite.where(Memberships.c.suite == suite, Configs.c.preset == preset)
    with reading(store.engine) as connection:
        labels = sorted(connection.scalars(of_suite)) or sorted(connection.scalars(query))
    labels = [label for label in labels if _is_chosen(fingerprints, label)] or labels
    if len(labels) > 1:
        raise _ambiguous(f"data '{data}'", labels)
    return labels[0] if labels else None


def _is_chosen(fingerprints: tuple[str, ...], *digests: str) -> bool:
    return any(digest.startswith(fingerprints) for digest in digests)


def _ambiguous(subject: str, versions: list[str]) -> AmbiguousFilesError:
    options = " or ".join(f"`--fingerprint {version[:PREFIX]}`" for version in versions)
    return AmbiguousFilesError(
        f"{subject}: not on this machine, and the database has trials on {len(versions)} versions: add {options}"
    )


def _digests(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of a configuration's files besides the data."""
    recipe = {key: str(value) for key, value in config["recipe"].items() if key.endswith(DIGEST_KEYS) and value}
    return recipe | ({"weights": config["weights"]["digest"]} if config.get("weights") else {})


def _agrees(config: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Return whether a recorded configuration equals that of a draft but for its files and result versions."""
    plain = (key for key in target if key not in ("data", "weights", "recipe", "result_versions"))
    recipes = [
        {key: value for key, value in recipe.items() if not key.endswith(DIGEST_KEYS)}
        for recipe in (config["recipe"], target["recipe"])
    ]
    return all(config.get(key) == target[key] for key in plain) and recipes[0] == recipes[1]


def trained_before(store: Store, trials: Iterable[Trial]) -> dict[str, str]:
    """Return a note for each trial that was trained with earlier result versions, on the latest of them."""
    earlier = {other.id: (trial.id, other) for trial in trials for other in earlier_trials(trial)}
    notes: dict[str, str] = {}
    for id, row in store.states(list(earlier)).items() if earlier else ():
        trial_id, other = earlier[id]
        if row.state == "succeeded" and trial_id not in notes:
            notes[trial_id] = version_note(other) or ""
    return notes


def outdated_notes(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Return what differs between the result versions of trials and the current ones, a note for each difference."""
    notes: dict[str | None, None] = {}
    for trial in trials:
        with suppress(InputError):  # an item that is not registered
            notes[version_note(trial)] = None
    return tuple(filter(None, notes))
