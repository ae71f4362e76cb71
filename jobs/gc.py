"""Disk space given back: what killed processes left, and what only trials that were given up could go on from.

Nothing is touched of a trial that is submitted or running. Killed at any moment, this leaves every run directory in a
state in which a worker may leave it, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from db.connection import reading
from db.models import Submissions, Trials
from db.store import Store, SubmissionRow
from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.settings import Settings
from harness.trial import TrialState
from jobs import job, places
from jobs.collect import collect, look
from jobs.rubbish import DAY, KINDS, Limits, Rubbish, of_home, of_submission, of_trial, own_state


@dataclass
class Freed:
    """What was deleted, or would be.

    Attributes:
        dry_run: whether it only would be.
        files: how many, by kind.
        bytes: how many in them, by kind.
        busy: run directories that were left alone because somebody is at them.
        left_out: one line for each file or folder that could not be read or deleted.
    """

    dry_run: bool = False
    files: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    busy: int = 0
    left_out: list[str] = field(default_factory=list)

    def free(self, rubbish: Iterable[Rubbish]) -> None:
        """Delete, and count."""
        for kind, file in list(rubbish):
            try:
                size = file.lstat().st_size
                if not self.dry_run:
                    file.unlink()
            except OSError as error:
                self.leave_out(file, error)
            else:
                self.files[kind] += 1
                self.bytes[kind] += size

    def leave_out(self, path: Path, error: Exception) -> None:
        """Note what could not be read or deleted, unless it is gone."""
        if not isinstance(error, FileNotFoundError):
            said = error.strerror if isinstance(error, OSError) else "its attempts cannot be read"
            self.left_out.append(f"{path}: {said}")

    def to_json(self) -> dict[str, Any]:
        """For programs; sizes in bytes."""
        return {
            "dry_run": self.dry_run,
            "files": sum(self.files.values()),
            "bytes": sum(self.bytes.values()),
            "kinds": {kind: {"files": self.files[kind], "bytes": self.bytes[kind]} for kind in KINDS},
            "busy": self.busy,
            "left_out": self.left_out,
        }

    def render(self) -> str:
        """Some lines for people: one a kind, and the sum."""
        done = "would be freed" if self.dry_run else "were freed"
        sums = [(self.bytes[kind], self.files[kind], f"files: {said}") for kind, said in KINDS.items()]
        sums = [*(one for one in sums if one[1]), (sum(self.bytes.values()), sum(self.files.values()), f"files {done}")]
        lines = [f"{_size(size):>10} in {count:>6} {said}" for size, count, said in sums]
        if self.busy:
            lines.append(f"{self.busy} run directories are being worked at, and were left alone")
        return "\n".join(lines)


def gc(
    store: Store,
    settings: Settings,
    ids: Sequence[str] | None = None,
    *,
    days: float = 30.0,
    weights: bool = False,
    dry_run: bool = False,
) -> Freed:
    """Delete what nothing needs.

    Args:
        store: the database.
        settings: where the runs are.
        ids: only what belongs to these trials; None: all run directories, and what submissions left.
        days: age of what could still be of use: checkpoints of trials that were given up, logs of jobs.
        weights: also the selected weights of trials that succeeded, unless a trial begins with them.
        dry_run: delete nothing, change nothing.

    Raises:
        InputError: there are no runs, or their folder cannot be written.
    """
    if not settings.runs.is_dir():
        raise InputError(f"{settings.runs}: no such folder: expected the run directories (DROPBENCH_RUNS)")
    limits = Limits(time.time() - days * DAY, weights, _initial_weights(store))
    freed = Freed(dry_run)
    if dry_run:
        _sweep(store, settings, ids, limits, freed)
        return freed
    try:
        collect(store, settings)
    except InputError as error:  # a full disk is what this is for
        freed.left_out.append(str(error))
    with places.keeper(settings.runs):  # nothing is dispatched meanwhile
        _sweep(store, settings, ids, limits, freed)
    return freed


def _sweep(store: Store, settings: Settings, ids: Sequence[str] | None, limits: Limits, freed: Freed) -> None:
    active = look(store, settings)
    states = {id: row.state for id, row in store.states().items()}
    states |= {id: verdict.state for id, (_, _, verdict) in active.items()}
    for id in _directories(settings.runs) if ids is None else ids:
        directory = RunDirectory(settings.runs / id)
        try:
            _clean(directory, states.get(id) or own_state(directory), limits, freed)
        except (OSError, ValueError, LookupError, TypeError) as error:
            freed.leave_out(directory.path, error)
    if ids is None:
        at_work = {row.submission_id for row, _, one in active.values() if one.state in ("submitted", "running")}
        for folder, known in _ended(store, settings, at_work, collected=not freed.dry_run):
            freed.free(of_submission(folder, limits, known=known))
            if not freed.dry_run:
                with contextlib.suppress(OSError):  # not empty yet
                    folder.rmdir()
        freed.free(of_home(places.home(settings.runs)))


def _clean(directory: RunDirectory, state: TrialState, limits: Limits, freed: Freed) -> None:
    """Free what is to be freed of a run directory, holding its lock."""
    if next(of_trial(directory, state, limits), None) is None:
        return
    with contextlib.nullcontext(not directory.locked()) if freed.dry_run else directory.lock() as mine:
        if mine:
            freed.free(of_trial(directory, state, limits))
        else:
            freed.busy += 1


def _directories(runs: Path) -> list[str]:
    with os.scandir(runs) as entries:
        return sorted(entry.name for entry in entries if re.fullmatch("[0-9a-f]{12}", entry.name) and entry.is_dir())


def _ended(
    store: Store, settings: Settings, at_work: set[str | None], *, collected: bool
) -> Iterator[tuple[Path, bool]]:
    """The folders of submissions that have ended, and whether the database knows them."""
    with reading(store.engine) as connection:
        states = {row.id: row.state for row in connection.execute(select(Submissions.c.id, Submissions.c.state))}
    named = (folder for folder in places.home(settings.runs).glob("*") if re.fullmatch("[0-9a-f]{32}", folder.name))
    folders = [folder for folder in named if folder.is_dir() and not folder.is_symlink()]
    asked = [_unknown(folder) for folder in folders if folder.name not in states]
    if not collected:
        asked += [one for one in store.open_submissions() if one.id not in at_work]
    alive = {id: found.alive for id, found in job.find(asked, settings).items()}
    for folder in sorted(folders):
        if states.get(folder.name) == "ended" or not alive.get(folder.name, True):
            yield folder, folder.name in states


def _unknown(folder: Path) -> SubmissionRow:
    """A submission of another database, to ask whether it lives."""
    executor = "slurm" if (folder / job.ELEMENTS).exists() else "local"
    return SubmissionRow(id=folder.name, executor=executor, folder=str(folder), host="", pid=0)


def _initial_weights(store: Store) -> frozenset[str]:
    """The real paths of what trials begin with."""
    with reading(store.engine) as connection:
        paths = connection.scalars(select(Trials.c.weights).where(Trials.c.weights.is_not(None)).distinct())
        return frozenset(os.path.realpath(path) for path in paths if path)


def _size(count: int) -> str:
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 2**power:
            return f"{count / 2**power:.1f} {unit}"
    return f"{count} B"
