"""The trials of a cell, on a machine with the files that identify them, or else as the database has recorded them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, select

from db.schema.connection import reading
from db.schema.tables import Configs, Memberships, Trials
from db.store.rows import load_trial
from db.store.store import Store
from harness.errors import InputError
from harness.settings import Settings
from harness.suites.cell import Cell
from harness.trials.result_versions import earlier_trials, version_note
from harness.trials.task import spec_of
from harness.trials.trial import Trial

DIGEST_KEYS = ("fingerprint", "digest")
"""Endings of recipe keys that are known from files."""
PREFIX = 8
"""Characters of a fingerprint that messages show."""


class AmbiguousFilesError(InputError):
    """The database has trials on several versions of the files, and the files are not on this machine."""


def trials_of(cell: Cell, settings: Settings, store: Store) -> list[Trial]:
    """Return one trial per seed, for which missing data, weights and other files are looked up in the database.

    Raises:
        AmbiguousFilesError: the database has trials on several versions of the missing files.
        InputError: fields do not fit together, or files are missing here and the database has no such trial either.
    """
    trial = _recorded(cell, store, chosen=True) if cell.fingerprints else None
    if trial is None:
        try:
            return cell.trials(settings)
        except InputError:
            trial = _recorded(cell, store)
            if trial is None:
                raise
    return [trial.model_copy(update={"seed": seed}) for seed in cell.seeds]


def _recorded(cell: Cell, store: Store, *, chosen: bool = False) -> Trial | None:
    """Return a trial of a cell, with any seed, on recorded files; if `chosen`, only on files that the cell names."""
    draft = spec_of(cell.request.task).draft_for(cell.request)
    if draft is None:
        return None
    with reading(store.engine) as connection:
        label = _data_fingerprint(connection, cell)
        columns = {key: getattr(draft, key) for key in ("task", "model", "schedule", "align", "preset")}
        columns |= {"data": draft.data.name, "fingerprint": label, "regularizer": draft.regularizer.name}
        query = select(Configs.c.config, Trials.c.weights).join(Trials, Trials.c.config_id == Configs.c.id)
        query = query.where(*(Configs.c[key] == value for key, value in columns.items()))
        rows = connection.execute(query.order_by(Trials.c.created_at)).all()
    target, path = draft.config(), draft.weights.path if draft.weights else None
    by_digests = {
        tuple(sorted(_digests(config).items())): (config, weights)
        for config, weights in rows
        if weights == path and _agrees(config, target)
    }
    named = {key: value for key, value in by_digests.items() if _is_chosen(cell, label or "", *dict(key).values())}
    by_digests = named if named or chosen else by_digests
    if len(by_digests) > 1:
        texts = [dict(digests) for digests in by_digests]
        differing = next(name for name in texts[0] if len({digests[name] for digests in texts}) > 1)
        raise _ambiguous(differing.partition("_")[0], sorted({digests[differing] for digests in texts}))
    for config, weights in by_digests.values():
        return load_trial(config, 0, weights).model_copy(update={"result_versions": draft.result_versions})
    return None


def _data_fingerprint(connection: Connection, cell: Cell) -> str | None:
    """Return the fingerprint of a cell's data in the trials of its suite and preset, or else in all trials."""
    query = select(Configs.c.fingerprint).where(Configs.c.data == cell.request.data).distinct()
    of_suite = query.join(Trials, Trials.c.config_id == Configs.c.id).join(Memberships)
    of_suite = of_suite.where(Memberships.c.suite == cell.suite, Configs.c.preset == cell.request.preset)
    labels = sorted(connection.scalars(of_suite)) or sorted(connection.scalars(query))
    labels = [label for label in labels if _is_chosen(cell, label)] or labels
    if len(labels) > 1:
        raise _ambiguous(f"data '{cell.request.data}'", labels)
    return labels[0] if labels else None


def _is_chosen(cell: Cell, *digests: str) -> bool:
    return any(digest.startswith(cell.fingerprints) for digest in digests)


def _ambiguous(subject: str, versions: list[str]) -> AmbiguousFilesError:
    options = " or ".join(f"`--fingerprint {version[:PREFIX]}`" for version in versions)
    return AmbiguousFilesError(
        f"{subject}: not on this machine, and the database has trials on {len(versions)} versions: add {options}"
    )


def _digests(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the digests of a configuration's files besides the data."""
    recipe = {key: str(value) for key, value in config["recipe"].items() if key.endswith(DIGEST_KEYS)}
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
