"""Plug-ins: files of the user, and entry points of packages, that register regularizers, models or tasks."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from traceback import extract_tb
from typing import Any

from harness.errors import InputError
from harness.models.catalog import MODELS
from harness.registry import Registry, registered_by
from harness.regularizers import REGULARIZERS
from harness.settings import Settings
from harness.trials.task import TASKS

_loaded: dict[str, str] = {}


def load_plugins(files: Iterable[Path]) -> None:
    """Run each file once, so that its entries are registered.

    Raises:
        InputError: a file is missing or fails; the message has the line.
    """
    for file in files:
        path = file.absolute()
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            raise InputError(f"plug-in {file}: {error.strerror}: expected a Python file") from None
        if _loaded.get(str(path)) == digest:
            continue
        name = f"dropbench_plugin_{digest[:12]}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise InputError(f"plug-in {file}: expected a file that ends in .py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with registered_by(str(path)):
                spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise InputError(f"plug-in {file}{_line(error, path)}: {type(error).__name__}: {error}") from error
        _loaded[str(path)] = digest


def load_all(settings: Settings) -> None:
    """Register entry points ``dropbench.{regularizers,models,tasks}`` without importing them; load the user's files."""
    registries: dict[str, Registry[Any]] = {"regularizers": REGULARIZERS, "models": MODELS, "tasks": TASKS}
    points = entry_points()  # called once, because each call reads all installed packages
    for group, registry in registries.items():
        for point in points.select(group=f"dropbench.{group}"):
            with registered_by(point.dist.name if point.dist else point.value) as plugin:
                registry.add(point.name, point.value, help=f"from {plugin}")
    load_plugins(settings.plugins)


def plugin_digests(*entries: tuple[Registry[Any], str]) -> dict[str, str]:
    """Return the SHA-256 by file name of the plug-in files that define entries; part of a trial's identity."""
    plugins = (registry.entry(name).plugin for registry, name in entries)
    return {Path(plugin).name: _loaded[plugin] for plugin in plugins if plugin in _loaded}


def _line(error: Exception, path: Path) -> str:
    """Return the last line of the file in the traceback of an error, as ``:12``."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f":{lines[-1]}" if lines else ""
