"""Load plug-ins: each version as a package of its own, so that no version runs code of another."""

from __future__ import annotations

import builtins
import importlib
import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any, ClassVar

from dropbench.harness.errors import InputError
from dropbench.harness.plugins.source import Key, Source
from dropbench.harness.registry import PLUGIN_MODULES, Entry, Loading, Registry, describe, loading

IDENTIFIED = ("regularizer", "schedule", "model", "task", "data", "analysis")
"""The kinds of entries with a digest of their own. Others, such as adapters, count for all entries of their file."""

Change = tuple[Registry[Any], str, Entry | None]
"""A registry, a name in it, and the entry that had the name before, if any."""


@dataclass(frozen=True)
class Plugin:
    """A plug-in that has been loaded, its entries, and the digests of those of other plug-ins that it looked up."""

    source: Source
    entries: dict[Key, tuple[Registry[Any], Entry]]
    requires: dict[Key, str]

    def digest(self, key: Key) -> str | None:
        """Return the digest of an entry; None if there is no such entry."""
        return self.entries[key][1].digest if key in self.entries else None

    def files(self) -> dict[str, bytes]:
        """Return its files by path relative to its folder: the source, and the cards of its regularizers."""
        cards = {str(entry.facts.get("card")) for _, entry in self.entries.values()}
        paths = {card: self.source.folder / card for card in cards if card.endswith((".yaml", ".yml"))}
        inside = {card: path for card, path in paths.items() if path.resolve().is_relative_to(self.source.folder)}
        return {**self.source.files, **{card: path.read_bytes() for card, path in inside.items() if path.is_file()}}

    def is_registered(self) -> bool:
        """Return whether all its entries are those that the registries have."""
        return all(registry.registered(entry.name) is entry for registry, entry in self.entries.values())


def load(source: Source, keep: Iterable[str]) -> tuple[Plugin, list[Change]]:
    """Run a plug-in, and return it with what it has changed in the registries (`undo`).

    Args:
        source: the files.
        keep: plug-ins whose entries it may not replace.

    Raises:
        InputError: it fails, or a name is taken; the message has the line. Nothing is registered then.
    """
    _Finder.sources[source.package] = source
    PLUGIN_MODULES.add(source.package)
    for name in [name for name in sys.modules if name.partition(".")[0] == source.package]:
        del sys.modules[name]  # the same files elsewhere
    changes: list[Change] = []
    used: dict[Key, str] = {}
    keep = frozenset((*keep, *source.paths()))
    path = source.folder / source.main[0]
    try:
        for name in source.main:
            path = source.folder / name
            token = loading.set(Loading(str(path), keep, changes, used))
            try:
                with redirect_stdout(sys.stderr):  # what a file prints is no part of a command's output
                    importlib.import_module(source.module(name))
            finally:
                loading.reset(token)
    except KeyboardInterrupt:
        undo(changes)
        raise
    except BaseException as error:  # a file may even call sys.exit
        undo(changes)
        raise InputError(f"plug-in {describe(error, str(path))}") from error
    return _identified(source, changes, used), changes


def _identified(source: Source, changes: list[Change], used: dict[Key, str]) -> Plugin:
    """Return a loaded plug-in, after its entries got their digests."""
    added = {f"{registry.kind} {name}": registry for registry, name, _ in changes if registry.registered(name)}
    entries = {key: registry.entry(key.removeprefix(f"{registry.kind} ")) for key, registry in added.items()}
    origins = {key: entry.origin for key, entry in entries.items() if entry.origin is not None}
    identified = {key: origin for key, origin in origins.items() if added[key].kind in IDENTIFIED}
    digests = source.entry_digests(origins, [origin for key, origin in origins.items() if key not in identified])
    complete = {
        key: (added[key], replace(entry, digest=digests.get(key), requires=used)) for key, entry in entries.items()
    }
    for registry, entry in complete.values():
        registry.put(entry.name, entry)
    return Plugin(source, complete, used)


def undo(changes: Sequence[Change]) -> None:
    """Restore the entries that were registered before."""
    for registry, name, before in reversed(changes):
        registry.put(name, before)


class _Finder(MetaPathFinder):
    """Finds the modules of plug-ins."""

    sources: ClassVar[dict[str, Source]] = {}

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        source = self.sources.get(fullname.partition(".")[0])
        if source is None:
            return None
        name = source.modules.get(fullname)
        inside = f"{fullname}."
        if name is None and not any(module.startswith(inside) for module in source.modules):
            return None
        package = name is None or name.endswith("__init__.py")
        origin = str(source.folder / name) if name is not None else None
        return spec_from_loader(fullname, _Loader(source, name), origin=origin, is_package=package)


class _Loader(InspectLoader):
    """Runs the text that was read, as files may change meanwhile, and writes no byte code beside them."""

    def __init__(self, source: Source, name: str | None) -> None:
        self.source, self.name = source, name

    def exec_module(self, module: ModuleType) -> None:
        if self.name is None:  # a folder without __init__.py
            return
        path = str(self.source.folder / self.name)
        module.__file__ = path
        code = compile(self.source.files[self.name], path, "exec", dont_inherit=True)
        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": self._import}
        exec(code, module.__dict__)  # noqa: S102 - as an import does

    def get_source(self, fullname: str) -> str | None:
        return None if self.name is None else self.source.text(self.name)

    def _import(
        self, name: str, globals: Any = None, locals: Any = None, fromlist: Sequence[str] | None = (), level: int = 0
    ) -> Any:
        """Import the plug-in's own module rather than another of the same name."""
        top = name.partition(".")[0]
        if level or not self.source.has(top):
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        package = builtins.__import__(f"{self.source.package}.{name}", globals, locals, fromlist or (), 0)
        return package if fromlist else sys.modules[f"{self.source.package}.{top}"]


sys.meta_path.append(_Finder())
