"""The database made again from the run directories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from db.snapshot import Snapshot, snapshot
from db.store import Store
from harness.errors import InputError
from harness.rundir import RunDirectory

BATCH = 200


@dataclass
class Rebuilt:
    """How many run directories were read, one line for each that could not be, and how many trials have none."""

    recorded: int = 0
    damaged: list[str] = field(default_factory=list)
    without_directory: int = 0


def rebuild(store: Store, runs: Path, progress: Callable[[], None] = lambda: None) -> Rebuilt:
    """Record every run directory below `runs`; doing it again, or going on after an interruption, does no harm.

    Rows of trials without a run directory stay as they are: they wait in the queue, or their directories lie elsewhere.
    A damaged run directory is left out and told of.

    Args:
        store: an empty database, or one that is behind.
        runs: the root of the run directories.
        progress: called after each directory.

    Raises:
        InputError: `runs` is not there.
    """
    if not runs.is_dir():
        raise InputError(f"{runs}: no such folder: expected the run directories (DROPBENCH_RUNS)")
    done = Rebuilt()
    seen: set[str] = set()
    batch: list[Snapshot] = []
    for directory in RunDirectory.all(runs):
        seen.add(directory.id)
        try:
            batch.append(snapshot(directory))
            done.recorded += 1
        except InputError as error:
            done.damaged.append(str(error))
        except OSError as error:
            done.damaged.append(f"{error.filename or directory.path}: {error.strerror}")
        progress()
        if len(batch) == BATCH:  # short transactions: others may write meanwhile
            store.record(batch)
            batch = []
    store.record(batch)
    done.without_directory = len(set(store.find(None)) - seen)
    return done
