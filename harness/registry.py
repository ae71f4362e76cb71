"""One generic registry for everything that has a name: regularizers, schedules, models, tasks, data sets."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from traceback import walk_tb
from typing import Any, Generic, TypeVar

from dropbench.harness.errors import InputError, missing_library, unknown_name

T = TypeVar("T")
_entry_points = cache(lambda: importlib.import_module("importlib.metadata").entry_points())

current_plugin: ContextVar[str | None] = ContextVar("current_plugin", default=None)
"""The plug-in that is being loaded. Entries registered meanwhile are attributed to it."""
PLUGIN_MODULES: set[str] = set()
"""The top-level modules of plug-ins."""
REGISTRIES: dict[str, Registry[Any]] = {}  # by kind
PLUGINS_WITH_ENTRIES: set[str | None] = set()
"""The plug-ins that have registered something."""


def describe(error: BaseException, location: str = "") -> str:
    """Return an error after its line: the last in a plug-in's code, else `location`, else the last of the traceback."""
    from pydantic import ValidationError  # which not every command needs

    frames = [(f"{frame.f_code.co_filename}:{line}", frame.f_globals) for frame, line in walk_tb(error.__traceback__)]
    inside = [line for line, names in frames if str(names.get("__name__")).partition(".")[0] in PLUGIN_MODULES]
    if isinstance(error, SyntaxError) and error.filename:
        inside.append(f"{error.filename}:{error.lineno}")
    text = f"{error}" if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
    if isinstance(error, ValidationError):  # whose own text has several lines
        findings = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        text = f"{error.title}: {'; '.join(findings)}"
    return f"{(inside or [location or frames[-1][0]])[-1]}: {text}"


@dataclass(frozen=True)
class Entry:
    """A registered item: one-line help, facts, the item or its import path, and the plug-in (file or package)."""

    name: str
    help: str
    target: Any
    facts: dict[str, Any]
    plugin: str | None


def warn(message: str) -> None:
    """Log a warning."""
    import logging  # rarely needed, and noticeable in the start-up time

    logging.getLogger("dropbench").warning("%s", message)


def load(target: str) -> Any:
    """Import ``"module:attribute"``; raise ValueError for another form, ImportError, or AttributeError."""
    module, separator, attribute = target.partition(":")
    if not separator:
        raise ValueError(f"'{target}' is not of the form 'module:attribute'")
    # A table looks up thousands of names, for most of which the import system need not be asked.
    names = getattr(sys.modules.get(module), "__dict__", {})
    return names[attribute] if attribute in names else getattr(importlib.import_module(module), attribute)


def lazy_attributes(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """Return a package's ``__getattr__``, which imports a name from its module on first use."""

    def look_up(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = load(f"{modules[name]}:{name}")
        setattr(sys.modules[package], name, value)
        return value

    return look_up


def load_for(owner: str, target: str) -> Any:
    """Import ``"module:attribute"``; raise InputError, which names the `owner`, for every error in the import."""
    try:
        return load(target)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may even call sys.exit
        if missing := missing_library(error):
            raise InputError(f"{owner} {missing}") from error
        message = error if isinstance(error, ImportError | AttributeError | ValueError) else repr(error)
        raise InputError(f"{owner}: cannot load {target}: {message}") from error


class Registry(Generic[T]):
    """Names in the order of registration; a target may be ``"module:attribute"``, imported on first use.

    `fits` tests for what `expected` describes. Entry points ``dropbench.<group>`` are read when names are listed, or
    one is unknown.
    """

    own = "`--plugin FILE`"  # how users add entries, for the error of an unknown name

    def __init__(self, kind: str, expected: str = "a function", fits: Any = callable, group: str = "") -> None:
        self.kind = kind
        self._expected, self._fits, self._group = expected, fits, group
        self._entries: dict[str, Entry] = {}
        self._aliases: dict[str, str] = {}
        REGISTRIES.setdefault(kind, self)

    def add(self, name: str, target: T | str, *aliases: str, help: str = "", **facts: Any) -> None:
        """Register `target` (the item, or ``"module:attribute"``); raise ValueError if something else has the name."""
        present = self._entries.get(name)
        if present is not None and present.target == target:
            return
        for taken in (name, *aliases):
            if self._has(taken):
                owner = self.entry(taken).plugin or "DropBench"
                raise ValueError(f"{self.kind} '{taken}' is registered already (by {owner})")
        self._entries[name] = Entry(name, help, target, facts, current_plugin.get())
        PLUGINS_WITH_ENTRIES.add(current_plugin.get())
        self._aliases.update(dict.fromkeys(aliases, name))

    def register(self, name: str, *aliases: str, help: str = "", **facts: Any) -> Callable[[T], T]:
        """Return a decorator that registers; the help defaults to the first line of the docstring."""

        def decorate(item: T) -> T:
            text = help or (item.__doc__ or "").strip().split("\n")[0]
            self.add(name, item, *aliases, help=text, **facts)
            return item

        return decorate

    def entry(self, name: str) -> Entry:
        """Return the entry of a name or alias, without importing anything; raise InputError for an unknown name."""
        if name not in self:
            raise unknown_name(self.kind, name, [*self._entries, *self._aliases], self.own)
        return self._entries[self._aliases.get(name, name)]

    def get(self, name: str, *facts: str) -> T:
        """Return the item of a name or alias, or of the first of these facts; raise InputError if it is broken."""
        entry = self.entry(name)
        target = next((entry.facts[fact] for fact in facts if fact in entry.facts), entry.target)
        item: T = load_for(f"{self.kind} '{name}'", target) if isinstance(target, str) else target
        if not self._fits(item):
            raise InputError(f"{self.kind} '{name}': expected {self._expected}, got {item!r}")
        # The spec of a task may leave methods to the task.
        if target is entry.target and (missing := sorted(getattr(item, "__abstractmethods__", ()))):
            owner = f"class {getattr(item, '__qualname__', '')} in {entry.plugin or item.__module__}"
            raise InputError(f"{self.kind} '{name}': {owner} has no method {', '.join(missing)}: implement it")
        return item

    def working(self, names: Iterable[str], build: Callable[[str], Any]) -> Iterator[tuple[str, Any]]:
        """Yield each name with the value of `build`; warn of entries of packages for which it raises an error."""
        for name in names:
            try:
                yield name, build(name)
            except (Exception, SystemExit) as error:
                if Path(self.entry(name).plugin or "/").is_absolute():
                    raise
                warn(f"left out: {self.kind} '{name}': {error}")

    def _read_entry_points(self) -> None:
        """Register the entry points of the group, once, without importing them."""
        group, self._group = self._group, ""
        for point in _entry_points().select(group=f"dropbench.{group}") if group else ():
            plugin = (point.dist and point.dist.name) or point.value
            PLUGIN_MODULES.add(point.value.partition(":")[0].partition(".")[0])
            if self._has(point.name):
                warn(f"left out: entry point of {plugin}: {self.kind} '{point.name}' is registered already")
            else:
                self._entries[point.name] = Entry(point.name, f"from {plugin}", point.value, {}, plugin)

    def _has(self, name: object) -> bool:
        """Return whether a name is registered, without reading entry points."""
        return name in self._entries or name in self._aliases

    def __contains__(self, name: object) -> bool:
        if not self._has(name):
            self._read_entry_points()
        return self._has(name)

    def __iter__(self) -> Iterator[str]:
        self._read_entry_points()
        return iter(list(self._entries))

    def __len__(self) -> int:
        return sum(1 for _ in self)
