"""One generic registry for everything that has a name: regularizers, schedules, models, tasks, data sets."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, Generic, NamedTuple, TypeVar

from dropbench.harness.errors import InputError, missing_library, unknown_name

T = TypeVar("T")
_entry_points = cache(lambda: importlib.import_module("importlib.metadata").entry_points())

PLUGIN_MODULES: set[str] = set()
"""The top-level modules of plug-ins."""
REGISTRIES: dict[str, Registry[Any]] = {}  # by kind


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
    """A registered item.

    Attributes:
        name: its name in the registry.
        help: one line.
        target: the item, or its import path.
        facts: what else is known of it.
        plugin: the plug-in that registered it, the path of a file or the name of a package; None: DropBench.
        aliases: its other names.
        origin: of a plug-in's file, the module and the line that registered it.
        digest: of a plug-in's file, the SHA-256 of the source that it depends on.
        requires: the digests of entries of other plug-ins that its file looked up, by kind and name.
    """

    name: str
    help: str
    target: Any
    facts: dict[str, Any]
    plugin: str | None
    aliases: tuple[str, ...] = ()
    origin: tuple[str, int] | None = None
    digest: str | None = None
    requires: Mapping[str, str] = field(default_factory=dict)


class Loading(NamedTuple):
    """A plug-in's file that is being loaded, to which entries registered meanwhile are attributed.

    Attributes:
        plugin: its path.
        keep: the plug-ins whose entries it must not replace.
        changes: gets each name that is registered or removed, with the entry that had it before.
        used: gets the digests of entries of other plug-ins that it looks up, and of those that they require.
    """

    plugin: str
    keep: frozenset[str]
    changes: list[tuple[Registry[Any], str, Entry | None]]
    used: dict[str, str]

    def may_replace(self, entry: Entry) -> bool:
        """Return whether an entry gives way: of a file that is not loaded any more, or of the user's program."""
        if entry.plugin is None:
            return str(getattr(entry.target, "__module__", "dropbench")).partition(".")[0] != "dropbench"
        return Path(entry.plugin).is_absolute() and entry.plugin not in self.keep


loading: ContextVar[Loading | None] = ContextVar("loading", default=None)


def _origin() -> tuple[str, int] | None:
    """Return the module of a plug-in that is being imported, and the line that it has reached.

    None while it imports a module of DropBench, whose entries are DropBench's.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        package = name.partition(".")[0] if frame.f_code.co_name == "<module>" else ""
        if package in PLUGIN_MODULES:
            return name, frame.f_lineno
        frame = None if package == "dropbench" else frame.f_back
    return None


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
        active, origin = loading.get(), _origin() if loading.get() is not None else None
        if origin is None:
            active = None
        for taken in (name, *aliases):
            if self._has(taken):
                owner = self._entries[self._aliases.get(taken, taken)]
                if active is None or not active.may_replace(owner):
                    owned = f"(by {owner.plugin or 'DropBench'})"
                    raise ValueError(f"{self.kind} '{taken}' is registered already {owned}")
                active.changes.append((self, owner.name, self.put(owner.name, None)))
        if active is None:
            self.put(name, Entry(name, help, target, facts, None, aliases))
        else:
            entry = Entry(name, help, target, facts, active.plugin, aliases, origin)
            active.changes.append((self, name, self.put(name, entry)))

    def put(self, name: str, entry: Entry | None) -> Entry | None:
        """Register an entry instead of that of its name, or remove that with None; return the earlier one."""
        before = self._entries.pop(name, None)
        self._aliases = {alias: owner for alias, owner in self._aliases.items() if owner != name}
        if entry is not None:
            self._entries[name] = entry
            self._aliases.update(dict.fromkeys(entry.aliases, name))
        return before

    def registered(self, name: str) -> Entry | None:
        """Return the entry of a name if it is registered, without reading entry points; None for an alias."""
        return self._entries.get(name)

    def register(self, name: str, *aliases: str, help: str = "", **facts: Any) -> Callable[[T], T]:
        """Return a decorator that registers; the help defaults to the first line of the docstring."""

        def decorate(item: T) -> T:
            text = help or (item.__doc__ or "").strip().split("\n")[0]
            self.add(name, item, *aliases, help=text, **facts)
            return item

        return decorate

    def names_of(self, plugins: Sequence[str]) -> list[str]:
        """Return the names that plug-ins have registered."""
        return [name for name, entry in self._entries.items() if entry.plugin in plugins]

    def entry(self, name: str) -> Entry:
        """Return the entry of a name or alias, without importing anything; raise InputError for an unknown name."""
        if name not in self:
            raise unknown_name(self.kind, name, [*self._entries, *self._aliases], self.own)
        entry = self._entries[self._aliases.get(name, name)]
        if entry.digest is not None and (active := loading.get()) is not None:
            active.used.update({**entry.requires, f"{self.kind} {entry.name}": entry.digest})
        return entry

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
