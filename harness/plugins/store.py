"""Copies of plug-ins in the folder of runs, from which workers and colleagues load the versions of their trials."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.files import read_json, write_atomic, write_json
from dropbench.harness.plugins.loading import Plugin, load, undo
from dropbench.harness.plugins.source import INDEX, Key, read_source
from dropbench.harness.registry import Entry, Registry

FOLDER = "plugins"
"""The folder of copies, next to the run directories."""

_loaded: dict[tuple[Path, tuple[str, ...]], Plugin] = {}
"""The copies that were loaded, by folder and the digests of the entries that they require."""


def write_copy(runs: Path, plugin: Plugin) -> None:
    """Copy a plug-in to ``plugins/<digest>``, unless it is there. A killed process leaves no incomplete copy.

    Raises:
        OSError: the disk is full or the folder is read-only.
    """
    folder = runs / FOLDER / plugin.source.digest
    digests = {key: entry.digest for key, (_, entry) in plugin.entries.items()}
    index = {"main": plugin.source.main, "entries": digests, "requires": sorted(plugin.requires)}
    if folder.is_dir():
        present = _index(folder, "entries")
        if not digests.items() <= present.items():  # what it registers depends on the machine
            write_json(folder / INDEX, {**index, "entries": present | digests})
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}")
    try:
        for name, content in plugin.files().items():
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            write_atomic(temporary / name, content)
        write_json(temporary / INDEX, index)
        temporary.rename(folder)
    except OSError:
        if not folder.is_dir():  # by another process
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def copies(runs: Path, wanted: Mapping[Key, str]) -> dict[Path, set[Key]]:
    """Return the copies that have some of these versions, each with their keys, the most first."""
    folders = sorted((runs / FOLDER).glob("[0-9a-f]*"))
    found = {folder: {key for key, _ in _index(folder, "entries").items() & wanted.items()} for folder in folders}
    return {folder: keys for folder, keys in sorted(found.items(), key=lambda item: -len(item[1])) if keys}


def load_copies(runs: Path, wanted: Mapping[Key, str]) -> Iterator[tuple[Registry[Any], Entry]]:
    """Yield the entries of these versions as far as there are copies, those of one plug-in from one copy.

    The caller registers each before the next, as other plug-ins may look it up.

    Raises:
        InputError: a copy cannot be loaded.
    """
    chosen: dict[Path, set[Key]] = {}
    remaining = set(wanted)
    for folder, keys in copies(runs, wanted).items():
        if own := keys & remaining:
            chosen[folder] = own
            remaining -= own
    required = {folder: tuple(key for key in _index(folder, "requires") if key in wanted) for folder in chosen}
    for folder in sorted(chosen, key=lambda folder: len(required[folder])):
        version = folder, tuple(wanted[key] for key in required[folder])
        if version not in _loaded:
            _loaded[version], changes = load(read_source(folder), ())
            undo(changes)
        entries = _loaded[version].entries
        yield from (entries[key] for key in sorted(chosen[folder]) if key in entries)


def _index(folder: Path, name: str) -> dict[Key, Any]:
    """Return a mapping, or the keys of a list, of a copy's index; {} if it is damaged."""
    with suppress(InputError, OSError, KeyError, TypeError, ValueError):
        content = read_json(folder / INDEX)[name]
        return dict(content) if isinstance(content, dict) else dict.fromkeys(content)
    return {}
