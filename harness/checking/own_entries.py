"""The entries of plug-ins that a trial uses, and errors that name them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from dropbench.harness.errors import InputError, UnsuitableError
from dropbench.harness.registry import REGISTRIES, describe
from dropbench.harness.regularizers.spec import part_names
from dropbench.harness.trials.trial import Trial


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
