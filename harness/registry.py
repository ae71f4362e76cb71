"""One generic registry for everything that has a name: regularizers, schedules, models, tasks, data sets."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from harness.errors import unknown_name

T = TypeVar("T")

current_plugin: ContextVar[str | None] = ContextVar("current_plugin", default=None)
"""The plug-in that is being loaded. Entries registered meanwhile are attributed to it."""


@contextmanager
def registered_by(plugin: str) -> Iterator[str]:
    """Attribute the entries that the block registers to a plug-in."""
    token = current_plugin.set(plugin)
    try:
        yield plugin
    finally:
        current_plugin.reset(token)


@dataclass(frozen=True)
class Entry:
    """A registered item: one-line help, facts, the item or its import path, and the plug-in that registered it."""

    name: str
    help: str
    target: Any
    facts: dict[str, Any]
    plugin: str | None


def load(target: str) -> Any:
    """Import ``"module:attribute"``.

    Raises:
        ValueError: the target is not of that form.
        ImportError: the module cannot be imported.
        AttributeError: the module has no such attribute.
    """
    module, separator, attribute = target.partition(":")
    if not separator:
        raise ValueError(f"'{target}' is not of the form 'module:attribute'")
    return getattr(importlib.import_module(module), attribute)


class Registry(Generic[T]):
    """Names in the order of registration; a target may be ``"module:attribute"``, imported on first use."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, Entry] = {}
        self._aliases: dict[str, str] = {}

    def add(self, name: str, target: T | str, *aliases: str, help: str = "", **facts: Any) -> None:
        """Register `target` (the item, or ``"module:attribute"``) under a name.

        Raises:
            ValueError: the name or an alias is taken by something else.
        """
        present = self._entries.get(name)
        if present is not None and present.target == target:
            return
        for taken in (name, *aliases):
            if taken in self:
                raise ValueError(f"{self.kind} '{taken}' is registered already")
        self._entries[name] = Entry(name, help, target, facts, current_plugin.get())
        self._aliases.update(dict.fromkeys(aliases, name))

    def register(self, name: str, *aliases: str, help: str = "", **facts: Any) -> Callable[[T], T]:
        """Return a decorator that registers; the help defaults to the first line of the docstring."""

        def decorate(item: T) -> T:
            text = help or (item.__doc__ or "").strip().split("\n")[0]
            self.add(name, item, *aliases, help=text, **facts)
            return item

        return decorate

    def entry(self, name: str) -> Entry:
        """Return the entry of a name or alias, without importing anything.

        Raises:
            InputError: the name is unknown; the message has the nearest ones.
        """
        entry = self._entries.get(self._aliases.get(name, name))
        if entry is None:
            raise unknown_name(self.kind, name, [*self._entries, *self._aliases])
        return entry

    def get(self, name: str) -> T:
        """Return the item of a name or alias, importing it if necessary."""
        target = self.entry(name).target
        item: T = load(target) if isinstance(target, str) else target
        return item

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._entries))

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._aliases

    def __len__(self) -> int:
        return len(self._entries)
