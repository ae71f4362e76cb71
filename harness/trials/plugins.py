"""Plug-ins: files of the user that register regularizers, models, tasks, data sets or analyses.

Entry points of installed packages are read by the registries (`harness.registry`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.models.catalog import MODELS
from harness.registry import LOG, PLUGIN_MODULES, PLUGINS_WITH_ENTRIES, Registry, current_plugin, describe
from harness.regularizers import REGULARIZERS
from harness.regularizers.schedules import SCHEDULES
from harness.trials.task import TASKS

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
            LOG.warning('plug-in %s registers nothing: add `@REGULARIZERS.register("name")` to its class', file)


def plugin_digests(*entries: tuple[Registry[Any], str]) -> dict[str, str]:
    """Return the SHA-256 by file name of the plug-in files that define entries; part of a trial's identity."""
    digests: dict[str, str] = {}
    for registry, name in entries:
        plugin = registry.entry(name).plugin
        if plugin in _loaded and digests.setdefault(Path(plugin).name, _loaded[plugin]) != _loaded[plugin]:
            raise InputError(f"plug-in {plugin}: a trial needs two plug-ins of that file name: rename one")
    return digests
