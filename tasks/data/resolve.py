"""The data of a trial: the files that it was made for, and the seed of their splits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from dropbench.harness.errors import CHANGED, InputError
from dropbench.harness.settings import Settings
from dropbench.harness.trials.plugins import plugin_digests
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.data.dataset import DATASETS, SPLIT_SEED
from dropbench.tasks.data.locate import Source, locate
from dropbench.tasks.data.read import read_any

_seeded_splits: dict[tuple[Any, ...], bool] = {}


def has_seeded_split(source: Source, fingerprint: str) -> bool:
    """Return whether the notes of a data set say that a seed made one of its splits, which is read once."""
    key = source.name, source.folder, fingerprint, *plugin_digests((DATASETS, source.name)).values()
    if key not in _seeded_splits:
        seed = SPLIT_SEED + 1
        notes = read_any(replace(source, split_seed=seed)).notes
        _seeded_splits[key] = any(f"seed {seed})" in note for note in notes)
    return _seeded_splits[key]


def resolve_data(trial: Trial, settings: Settings) -> Source:
    """Return the source of a trial's data; raise InputError if they are missing, or have changed since it was made."""
    folders = {trial.data.name: Path(trial.data.path)} if trial.data.path is not None else {}
    source = locate(trial.data.name, settings.data, {**folders, **settings.folders})
    seed = trial.recipe.get("seed_splits")
    if seed is not None:
        source = replace(source, split_seed=trial.seed if seed == "trial" else seed)
    fingerprint = source.fingerprint(trust_cache=settings.trust_cache)
    if trial.data.fingerprint == fingerprint:
        return source
    raise InputError(
        f"data '{trial.data.name}' in {source.folder} {CHANGED} "
        f"(fingerprint {fingerprint}, expected {trial.data.fingerprint})"
    )
