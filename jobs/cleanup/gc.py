"""Free disk space: files of killed processes, and files that only resuming an abandoned trial would need.

Submitted and running trials are never touched. Garbage collection that is killed at any moment leaves every run
directory in a state that a worker could have left, too.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Submissions, Trials
from dropbench.db.store.store import Store, SubmissionRow
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.plugins.store import FOLDER as PLUGINS
from dropbench.harness.runs.lease import Lease, now
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.settings import Settings
from dropbench.harness.suites.request import FOLDER as REQUESTS
from dropbench.jobs.cleanup import garbage
from dropbench.jobs.cleanup.garbage import DAY, KINDS, Garbage, RetentionPolicy
from dropbench.jobs.queue.reconcile import collect, inspect_active
from dropbench.jobs.submission.submission import ELEMENTS_FILE, inspect_submissions
from dropbench.jobs.worker import slots


@dataclass
class Freed:
    """The files that were deleted, or would be.

    Attributes:
        dry_run: whether nothing was deleted.
        files: number of files by kind.
        bytes: their size by kind.
        busy: number of run directories that were skipped because a worker holds them.
        left_out: one line per file or folder that could not be read or deleted.
    """

    dry_run: bool = False
    files: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    busy: int = 0
    left_out: list[str] = field(default_factory=list)

    def delete(self, files: Iterable[Garbage]) -> None:
        """Delete files and count them."""
        for kind, file in list(files):
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
        """Note a path that could not be read or deleted, unless it no longer exists."""
        if not isinstance(error, FileNotFoundError):
            self.left_out.append(f"{path}: {error.strerror}" if isinstance(error, OSError) else str(error))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; sizes in bytes."""
        return {
            "dry_run": self.dry_run,
            "files": sum(self.files.values()),
            "bytes": sum(self.bytes.values()),
            "kinds": {kind: {"files": self.files[kind], "bytes": self.bytes[kind]} for kind in KINDS},
            "busy": self.busy,
            "left_out": self.left_out,
        }

    def render(self) -> str:
        """Format as text: one line per kind, and the total."""
        freed = "would be freed" if self.dry_run else "freed"
        rows = [(self.bytes[kind], self.files[kind], f"files: {KINDS[kind]}") for kind in KINDS if self.files[kind]]
        rows.append((sum(self.bytes.values()), sum(self.files.values()), f"files {freed}"))
        lines = [f"{_format_size(size):>10} in {count:>6} {text}" for size, count, text in rows]
        if self.busy:
            lines.append(f"Skipped {count_of(self.busy, 'run directory', 'run directories')} that workers hold.")
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
    """Delete files that nothing needs: those of the trials `ids`, or of all run directories and submissions.

    Files that could still be of use (checkpoints of abandoned trials, logs of jobs) are deleted after `days`. With
    `weights`, the selected weights of trials that succeeded are deleted, too, unless a trial starts from them.

    Raises:
        InputError: the runs folder does not exist or cannot be written.
    """
    if not settings.runs.is_dir():
        raise InputError(f"{settings.runs}: no such folder: expected the run directories (set DROPBENCH_RUNS)")
    policy = RetentionPolicy(now(settings.runs) - days * DAY, weights, _initial_weights(store))
    freed = Freed(dry_run)
    if not dry_run:
        try:
            collect(store, settings)
        except InputError as error:  # a full disk, which this command is to relieve
            freed.left_out.append(str(error))
    # Nothing is dispatched meanwhile.
    with contextlib.nullcontext() if dry_run else slots.dispatch_lock(settings.runs):
        _delete_garbage(store, settings, ids, policy, freed)
    return freed


def _delete_garbage(
    store: Store, settings: Settings, ids: Sequence[str] | None, policy: RetentionPolicy, freed: Freed
) -> None:
    active = inspect_active(store, settings)
    states = {id: row.state for id, row in store.states().items()}
    states |= {id: trial.observed.state for id, trial in active.items()}
    names = (path.name for path in settings.runs.iterdir() if re.fullmatch("[0-9a-f]{12}", path.name) and path.is_dir())
    for id in sorted(names) if ids is None else ids:
        directory = Runs(settings.runs)[id]
        try:
            state = states.get(id) or garbage.state_from_files(directory)
            if next(garbage.of_trial(directory, state, policy), None) is None:
                continue
            with contextlib.nullcontext(not directory.locked()) if freed.dry_run else _leased(directory) as free:
                if free:
                    freed.delete(garbage.of_trial(directory, state, policy))
                else:
                    freed.busy += 1
        except (OSError, InputError) as error:
            freed.leave_out(directory.path, error)
    if ids is None:
        busy = {row.submission_id for row, _, observed in active.values() if observed.state in ("submitted", "running")}
        for folder, in_database in _ended_submissions(store, settings, busy, collected=not freed.dry_run):
            freed.delete(garbage.of_submission(folder, policy, in_database=in_database))
            if not freed.dry_run:
                with contextlib.suppress(OSError):  # not empty yet
                    folder.rmdir()
        freed.delete(garbage.half_written(settings.runs / REQUESTS, ".*"))  # whole requests and copies are kept
        freed.delete(garbage.half_written(settings.runs / PLUGINS, ".*/**/*"))
        freed.delete(garbage.half_written(slots.jobs_folder(settings.runs), "probe-*"))  # of killed command lines


@contextlib.contextmanager
def _leased(directory: RunDirectory) -> Iterator[bool]:
    """Hold a run directory as a worker does; yield False if a worker holds it."""
    with directory.lock() as locked:
        lease = Lease.take(directory.path) if locked else None
        with contextlib.nullcontext() if lease is None else lease:
            yield lease is not None


def _ended_submissions(
    store: Store, settings: Settings, busy: set[str | None], *, collected: bool
) -> Iterator[tuple[Path, bool]]:
    """Yield the folders of submissions that have ended, and whether they are in the database."""
    with reading(store.engine) as connection:
        states = {row.id: row.state for row in connection.execute(select(Submissions.c.id, Submissions.c.state))}
    named = [path for path in slots.jobs_folder(settings.runs).glob("*") if re.fullmatch("[0-9a-f]{32}", path.name)]
    folders = [folder for folder in named if folder.is_dir() and not folder.is_symlink()]
    rows = []
    for folder in folders:
        if folder.name not in states:  # of another database: is it alive?
            executor = "slurm" if (folder / ELEMENTS_FILE).exists() else "local"
            rows.append(SubmissionRow(id=folder.name, executor=executor, folder=str(folder), host="", pid=0))
    if not collected:
        rows += [row for row in store.open_submissions() if row.id not in busy]
    alive = {id: submission.alive for id, submission in inspect_submissions(rows, settings).items()}
    for folder in sorted(folders):
        if states.get(folder.name) == "ended" or not alive.get(folder.name, True):
            yield folder, folder.name in states


def _initial_weights(store: Store) -> frozenset[str]:
    """Return the real paths of the initial weights of trials."""
    with reading(store.engine) as connection:
        paths = connection.scalars(select(Trials.c.weights).where(Trials.c.weights.is_not(None)).distinct())
        return frozenset(os.path.realpath(path) for path in paths if path)


def _format_size(count: int) -> str:
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 2**power:
            return f"{count / 2**power:.1f} {unit}"
    return f"{count} B"
