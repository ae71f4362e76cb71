"""Plug-ins: files of the user that register regularizers, models, tasks, data sets or analyses.

Entry points of installed packages are read by the registries (`dropbench.harness.registry`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.registry import (
    PLUGIN_MODULES,
    PLUGINS_WITH_ENTRIES,
    REGISTRIES,
    Registry,
    current_plugin,
    describe,
    warn,
)
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.schedules import SCHEDULES
from dropbench.harness.regularizers.spec import part_names
from dropbench.harness.settings import Settings
from dropbench.harness.trials.overrides import checked_overrides
from dropbench.harness.trials.result_versions import with_current_versions
from dropbench.harness.trials.task import TASKS, spec_of
from dropbench.harness.trials.trial import Trial, TrialRequest

# Imported before any plug-in: entries registered while a plug-in is loaded are attributed to it.
BUILT_IN: tuple[Registry[Any], ...] = (MODELS, REGULARIZERS, SCHEDULES, TASKS)

_loaded: dict[str, str] = {}


def load_plugins(files: Iterable[Path]) -> None:
    """Run each file once to register its entries; raise InputError, which has the line, if one is missing or fails."""
    for file in files:
        path = file.absolute()
        try:
            if path.exists() and not path.is_file():
                raise InputError(f"plug-in {file}: not a regular file: expected a Python file")
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(f"plug-in {file}: {reason}: expected a Python file") from None
        if _loaded.get(str(path)) == digest:
            continue
        name = f"dropbench_plugin_{digest[:12]}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise InputError(f"plug-in {file}: expected a file that ends in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        PLUGIN_MODULES.add(name)
        token = current_plugin.set(str(path))
        try:
            spec.loader.exec_module(module)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a file may even call sys.exit
            del sys.modules[name]
            raise InputError(f"plug-in {describe(error, str(file))}") from error
        finally:
            current_plugin.reset(token)
        _loaded[str(path)] = digest
        if str(path) not in PLUGINS_WITH_ENTRIES:
            warn(f'plug-in {file} registers nothing: add `@REGULARIZERS.register("name")` to its class')


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
    entries = ((REGISTRIES[key], name) for key, name in parts if name in REGISTRIES.get(key, ()))
    changes: dict[str, Any] = {"plugins": plugin_digests(*entries) | trial.plugins}
    kind = spec_of(request.task).recipe_type
    changes["overrides"] = checked_overrides(trial.overrides, kind, trial.recipe, trial.model)
    trial = with_current_versions(trial.model_copy(update=changes))
    # Completing a recipe takes a millisecond, and the trials of a configuration differ only in their seed.
    return [trial, *(trial.model_copy(update={"seed": seed}) for seed in others)]


def plugin_digests(*entries: tuple[Registry[Any], str]) -> dict[str, str]:
    """Return the SHA-256 of the plug-ins that define entries, by file name or module; part of a trial's identity."""
    digests: dict[str, str] = {}
    for entry in (registry.entry(name) for registry, name in entries):
        plugin = entry.plugin
        if plugin and not Path(plugin).is_absolute():
            module = entry.target.partition(":")[0].partition(".")[0]
            digests[module] = package_digest(module)
        if plugin in _loaded and digests.setdefault(Path(plugin).name, _loaded[plugin]) != _loaded[plugin]:
            raise InputError(f"plug-in {plugin}: a trial needs two plug-ins of that file name: rename one")
    return digests
