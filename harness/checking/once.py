"""Try the entries of plug-ins before a trial of them is queued: seconds on the CPU, once for each version."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from dropbench.harness.checking.own_entries import OwnEntry
from dropbench.harness.errors import InputError
from dropbench.harness.files import cache_folder, canonical_json
from dropbench.harness.settings import Settings
from dropbench.harness.source import code_digest
from dropbench.harness.trials.trial import Trial

_passed: set[str] = set()


def check_own_entries(
    trial: Trial, entries: Sequence[OwnEntry], settings: Settings, *, again: bool = False
) -> list[str]:
    """Try the entries of plug-ins in a trial, unless they have passed before, or `again`; return notes for the author.

    A shipped task, model and data set are not tried, but together with a regularizer of a plug-in.

    Raises:
        InputError: something does not do what `dropbench.harness.checking.contract` expects; the line names the entry
            and its file.
        UnsuitableError: the regularizer cannot work with the task or model.
    """
    if (key := check_key(trial, entries)) in _passed and not again:
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
    """Return a digest of what the outcome of a check depends on: plug-ins and the code of DropBench and torch included.

    Regularizers of a plug-in are tried once for each task, others do not count.
    """
    kinds = {entry.kind for entry in entries}
    what: list[Any] = [code_digest(), version("torch"), trial.task, sorted(trial.plugins.items())]
    if kinds & {"task", "data", "model"}:
        what += [trial.model, trial.recipe.get("model"), trial.data.name, trial.data.fingerprint]
    what += [[entry.name, trial.regularizer.params] for entry in entries if entry.kind == "regularizer"]
    return hashlib.sha256(canonical_json(what).encode()).hexdigest()[:32]
