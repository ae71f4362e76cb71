"""Plug-ins: files and folders of the user that register regularizers, models, tasks, data sets or analyses.

Entry points of installed packages are read by the registries (`dropbench.harness.registry`).
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from dropbench.harness.errors import ENQUEUE_AGAIN, InputError
from dropbench.harness.plugins.loading import Change, Plugin, load, undo
from dropbench.harness.plugins.source import Key, read_source
from dropbench.harness.plugins.store import FOLDER, copies, load_copies, write_copy
from dropbench.harness.registry import REGISTRIES, Entry, Registry, warn
from dropbench.harness.regularizers.spec import part_names
from dropbench.harness.settings import Settings
from dropbench.harness.trials.overrides import checked_overrides
from dropbench.harness.trials.result_versions import with_current_versions
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import VERSION_LENGTH, Trial, TrialRequest

_loaded: dict[str, Plugin] = {}
"""The plug-ins that are in use, by their path."""


def load_plugins(files: Iterable[Path]) -> None:
    """Register the entries of plug-ins, which are files or folders, as they are now.

    A plug-in that has changed since replaces its earlier entries. Entries of plug-ins that were loaded before, and
    are not among `files`, give way to new ones of the same name.

    Raises:
        InputError: a file is missing or fails (the message has the line), or two plug-ins register the same name.
    """
    sources = {str(source.path): source for source in map(read_source, files)}
    main = {file for source in sources.values() for file in source.paths()}
    for path, source in sources.items():
        before = _loaded.get(path)
        current = before is not None and before.source.digest == source.digest and before.is_registered()
        if before is not None and current and not _other_versions(before.requires):
            continue
        removed: list[Change] = []
        for registry in REGISTRIES.values():
            for name in registry.names_of(source.paths()):
                removed.append((registry, name, registry.put(name, None)))
        try:
            _loaded[path], _ = load(source, main)
        except BaseException:
            undo(removed)
            raise
        if not _loaded[path].entries:
            warn(f'plug-in {path} registers nothing: add `@REGULARIZERS.register("name")` to its class')


@contextmanager
def plugins_of(trial: Trial, runs: Path) -> Iterator[None]:
    """Register the versions of plug-ins' entries that a trial was made with, until the block ends.

    Those that are not in use are loaded from their copies in the folder of runs.

    Raises:
        InputError: there is no copy of a version, or it cannot be loaded.
    """
    changes: list[Change] = []
    try:
        if _other_versions(trial.plugins):
            for registry, entry in load_copies(runs, trial.plugins):
                changes.append((registry, entry.name, registry.put(entry.name, entry)))
        for key, digest in _other_versions(trial.plugins).items():
            raise InputError(_without_copy(key, digest, runs))
        yield
    finally:
        undo(changes)


def keep_plugins(trials: Iterable[Trial], runs: Path) -> None:
    """Copy the plug-ins of trials to the folder of runs, so that workers need no file of the user.

    Raises:
        InputError: the version of an entry is neither in use nor in the folder, and the message has its digest.
        OSError: the disk is full or the folder is read-only.
    """
    wanted = {version for trial in trials for version in trial.plugins.items()}
    for plugin in _loaded.values():
        if any(plugin.digest(key) == digest for key, digest in wanted):
            write_copy(runs, plugin)
    for key, digest in sorted(wanted):
        entry = _entry(key)
        if not copies(runs, {key: digest}) and not (entry and entry.digest is None and _digest(entry) == digest):
            raise InputError(_without_copy(key, digest, runs))


def _other_versions(wanted: Mapping[Key, str]) -> dict[Key, str]:
    """Return those versions that are not the ones in use."""
    entries = {key: _entry(key) for key in wanted}
    return {key: digest for key, digest in wanted.items() if not (own := entries[key]) or _digest(own) != digest}


def _entry(key: Key) -> Entry | None:
    kind, _, name = key.partition(" ")
    return REGISTRIES[kind].entry(name) if name in REGISTRIES.get(kind, ()) else None


def _without_copy(key: Key, digest: str, runs: Path) -> str:
    changed = f"plug-in of {key} has changed since the trial was made, and {runs / FOLDER} has no copy"
    return f"{changed} of version {digest[:VERSION_LENGTH]}: restore it, or {ENQUEUE_AGAIN}"


@cache
def package_digest(module: str) -> str:
    """Return the SHA-256 of the Python and compiled files of a top-level module, without importing it."""
    spec = importlib.util.find_spec(module) if module else None
    roots = [Path(root) for root in (spec.submodule_search_locations or [spec.origin or ""])] if spec else []
    files = (file for root in roots for file in sorted([root, *root.rglob("*")]) if file.suffix in (".py", ".so"))
    return hashlib.sha256(b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)).hexdigest()


def make_trials(request: TrialRequest, seeds: Iterable[int], settings: Settings) -> list[Trial]:
    """Return one trial per seed, with what the `trial_for` of a user's task may leave out: digests and types.

    Raises:
        InputError: fields or data do not fit, or a recipe key is not read.
    """
    first, *others = seeds
    trial = spec_of(request.task).trial_for(request.model_copy(update={"seed": first}), settings)
    parts = [("task", trial.task), ("data", trial.data.name), ("model", trial.model), ("schedule", trial.schedule)]
    parts += [("regularizer", name) for name in part_names(trial.regularizer.name)]
    parts += [("schedule", str(value)) for key, value in trial.regularizer.params.items() if key.endswith(".schedule")]
    # Those of a plug-in may change how any model is patched.
    parts += [("adapter", name) for name in REGISTRIES.get("adapter", ())]
    entries = ((REGISTRIES[key], name) for key, name in parts if name in REGISTRIES.get(key, ()))
    own = recipe_entries(trial.recipe)
    changes: dict[str, Any] = {"plugins": plugin_digests(*entries, *own) | trial.plugins}
    kind = spec_of(request.task).recipe_type
    changes["overrides"] = checked_overrides(trial.overrides, kind, trial.recipe, trial.model)
    trial = with_current_versions(trial.model_copy(update=changes))
    # Completing a recipe takes a millisecond, and the trials of a configuration differ only in their seed.
    return [trial, *(trial.model_copy(update={"seed": seed}) for seed in others)]


def recipe_entries(recipe: Mapping[str, Any]) -> list[tuple[Registry[Any], str]]:
    """Return the registries of what a recipe names, with the names."""
    return [(REGISTRIES[key], recipe[key]) for key in ("optimizer", "augmentation") if key in recipe]


def plugin_digests(*entries: tuple[Registry[Any], str]) -> dict[Key, str]:
    """Return the SHA-256 of what the entries of plug-ins depend on, by kind and name; part of a trial's identity."""
    digests: dict[Key, str] = {}
    for registry, name in entries:
        entry = registry.entry(name)
        if (digest := _digest(entry)) is not None:
            digests |= {**entry.requires, f"{registry.kind} {entry.name}": digest}
    return digests


def _digest(entry: Entry) -> str | None:
    """Return the digest of an entry; None if it belongs to DropBench, or its file is being loaded."""
    if entry.plugin is None or Path(entry.plugin).is_absolute():
        return entry.digest
    return package_digest(entry.target.partition(":")[0].partition(".")[0])
