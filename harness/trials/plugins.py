"""Plug-ins: a user's file, or an installed package's entry points, that registers regularizers, models or tasks."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.models.catalog import MODELS
from harness.registry import Registry, current_plugin
from harness.regularizers import REGULARIZERS
from harness.settings import Settings
from harness.trials.task import TASKS

_loaded: dict[str, str] = {}


def load_plugins(files: Iterable[Path]) -> None:
    """Run each file once; what it registers is known by name from then on.

    Raises:
        InputError: the file is missing or fails; the message has its line.
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
        token = current_plugin.set(str(path))
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise InputError(f"plug-in {file}{_line(error, path)}: {type(error).__name__}: {error}") from error
        finally:
            current_plugin.reset(token)
        _loaded[str(path)] = digest


def load_all(settings: Settings) -> None:
    """The plug-ins of installed packages, then the files that the settings name."""
    load_entry_points()
    load_plugins(settings.plugins)


def load_entry_points() -> None:
    """Register, unimported, what installed packages offer under ``dropbench.{regularizers,models,tasks}``."""
    registries: dict[str, Registry[Any]] = {"regularizers": REGULARIZERS, "models": MODELS, "tasks": TASKS}
    offered = entry_points()  # once: each call reads what all installed packages offer
    for group, registry in registries.items():
        for point in offered.select(group=f"dropbench.{group}"):
            token = current_plugin.set(point.dist.name if point.dist else point.value)
            try:
                registry.add(point.name, point.value, help=f"from {current_plugin.get()}")
            finally:
                current_plugin.reset(token)


def plugin_digests(*entries: tuple[Registry[Any], str]) -> dict[str, str]:
    """SHA-256 by file name of the plug-in files that define the given names; part of a trial's identity."""
    found = {}
    for registry, name in entries:
        plugin = registry.entry(name).plugin
        if plugin in _loaded:
            found[Path(plugin).name] = _loaded[plugin]
    return found


def _line(error: BaseException, path: Path) -> str:
    """The line of the file that the error came from, as in ``:12``."""
    if isinstance(error, SyntaxError):
        return f":{error.lineno}"
    trace, line = error.__traceback__, None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    return f":{line}" if line else ""
