"""Try the entries of plug-ins before a trial of them is queued: seconds on the CPU, once for each version."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from typing import NamedTuple

from dropbench.harness.errors import InputError, UnsuitableError
from dropbench.harness.files import cache_folder, canonical_json
from dropbench.harness.registry import REGISTRIES, describe
from dropbench.harness.regularizers.spec import part_names
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import Trial

CHECKS = 1
"""Raised when `dropbench.harness.checking.contract` finds more: what passed before is tried again."""
_passed: set[str] = set()


class OwnEntry(NamedTuple):
    """An entry of a plug-in that a trial uses: kind, name, and the plug-in's file or package."""

    kind: str
    name: str
    plugin: str

    @property
    def label(self) -> str:
        """The kind and the name."""
        return f"{self.kind} '{self.name}'"

    def __str__(self) -> str:
        return f"{self.label} ({self.plugin})"


def entries_of(trial: Trial) -> list[OwnEntry]:
    """Return the entries of plug-ins that a trial uses: task, data, model, schedule and regularizers."""
    parts = [("task", trial.task), ("data", trial.data.name), ("model", trial.model), ("schedule", trial.schedule)]
    return own_entries([*parts, *(("regularizer", name) for name in part_names(trial.regularizer.name))])


def own_entries(parts: Iterable[tuple[str, str]]) -> list[OwnEntry]:
    """Return those of some entries, by kind and name, that are a plug-in's."""
    entries = ((kind, REGISTRIES[kind].entry(name)) for kind, name in parts if name in REGISTRIES.get(kind, ()))
    return [OwnEntry(kind, entry.name, entry.plugin) for kind, entry in entries if entry.plugin is not None]


def check_own_entries(trial: Trial, settings: Settings, *, again: bool = False) -> list[str]:
    """Try what is a plug-in's in a trial, unless it has passed before, or `again`; return notes for its author.

    A shipped task, model and data set are not tried, but together with a regularizer of a plug-in.

    Raises:
        InputError: something does not do what `dropbench.harness.checking.contract` expects; the line names the entry
            and its file.
        UnsuitableError: the regularizer cannot work with the task or model.
    """
    entries = entries_of(trial)
    if not entries or ((key := check_key(trial, entries)) in _passed and not again):
        return []
    file = None
    with contextlib.suppress(InputError):  # no home folder
        file = cache_folder() / "checked" / key
    if file is not None and file.is_file() and not again:
        _passed.add(key)
        return []
    from dropbench.harness.checking.contract import check_contract

    notes = check_contract(trial, settings, entries)
    _passed.add(key)
    if file is not None:
        with contextlib.suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
    return notes


def check_key(trial: Trial, entries: Sequence[OwnEntry]) -> str:
    """Return a digest of what the outcome of a check depends on: the versions of plug-ins and of DropBench included.

    Regularizers of a plug-in are tried once for each task, others do not count.
    """
    kinds = {entry.kind for entry in entries}
    what = [CHECKS, version("dropbench"), trial.task, sorted(trial.plugins.items())]
    if kinds & {"task", "data", "model"}:
        what += [trial.model, trial.recipe.get("model"), trial.data.name, trial.data.fingerprint]
    what += [[entry.name, trial.regularizer.params] for entry in entries if entry.kind == "regularizer"]
    return hashlib.sha256(canonical_json(what).encode()).hexdigest()[:32]


@contextlib.contextmanager
def blaming(entries: Sequence[OwnEntry], *kinds: str) -> Iterator[None]:
    """Let errors name the first entry of these kinds, else the first, with its file, and the line if there is one."""
    ranked = [entry for kind in kinds for entry in entries if entry.kind == kind] or list(entries)
    try:
        yield
    except (KeyboardInterrupt, UnsuitableError, MemoryError):
        raise
    except BaseException as error:  # code of a plug-in may even call sys.exit
        if not ranked:
            raise
        text = str(error) if isinstance(error, InputError) else describe(error, ranked[0].plugin)
        named = next((each for each in entries if text.startswith(each.label)), None)
        if named is not None and named.plugin in text:
            raise
        entry, text = named or ranked[0], text.removeprefix(f"{named.label}: ") if named is not None else text
        raise InputError(f"{entry.label if entry.plugin in text else entry}: {text}") from error
