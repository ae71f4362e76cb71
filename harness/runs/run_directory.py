"""Run directories: the source of truth about trials, from which the database can be rebuilt."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from dropbench.harness.errors import InputError, check_text
from dropbench.harness.files import read_bytes, write_atomic, write_json
from dropbench.harness.runs.attempt_record import AttemptRecord
from dropbench.harness.runs.events import append_event, read_events
from dropbench.harness.runs.lease import Lease, SupersededError, holder, numbered_files
from dropbench.harness.runs.stamps import check_stamp, damaged, stamped
from dropbench.harness.trials.trial import Trial
from dropbench.harness.validation import validated

CANCELLED = "cancelled"
"""A file of this name in a run directory keeps workers away from the trial and stops the one that runs it."""

BY_THE_USER = "cancelled by the user"


class RunDirectory:
    """``runs/<trial id>/``.

    - ``trial.json``: the trial, canonical.
    - ``attempts/<n>.json``: one file per execution (see `dropbench.jobs.worker.worker`), rewritten whole.
    - ``events.jsonl``: append-only. Events that a killed worker wrote after its last checkpoint are revoked by the
      ``resume`` event of the next one, and `events` skips them.
    - ``checkpoint/``: the last two, and the selected weights.
    - ``analysis/<kind>.{json,npz,png}``: findings about the trained model (see `dropbench.harness.analysis.run`).
    - ``predictions/<split>.jsonl.gz``: the prediction for each example (see `dropbench.harness.predictions`).
    - ``result.json``: exists if and only if the trial succeeded.
    - ``cancelled``: exists while the trial must not run; contains the reason, or nothing if the user cancelled it.
    - ``environment.json``, ``log.txt``, ``lock``, ``lease/`` (see `dropbench.harness.runs.lease`).

    JSON files, events, checkpoints and predictions carry the trial's id and a digest (`dropbench.harness.runs.stamps`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.lease: Lease | None = None

    @classmethod
    def create(cls, runs: Path, trial: Trial) -> RunDirectory:
        """Create the directory of a trial, or open the existing one; ``trial.json`` is complete in either case."""
        directory = cls(runs / trial.id)
        directory.path.mkdir(parents=True, exist_ok=True)
        file = directory.path / "trial.json"
        content = (trial.to_json() + "\n").encode()
        if not file.exists() or read_bytes(file) != content:
            write_atomic(file, content)
        return directory

    @property
    def analyses(self) -> Path:
        """The folder of the analyses."""
        return self.path / "analysis"

    def trial(self) -> Trial:
        """Return the trial; raises InputError if its file is missing or damaged."""
        file = self.path / "trial.json"
        try:
            trial = Trial.from_json(read_bytes(file), where=file)
            trial_id = trial.id
        except FileNotFoundError:
            raise InputError(f"{self.path}: no run directory: expected trial.json in it") from None
        except ValueError as error:  # numbers that JSON does not have
            raise InputError(f"{file}: {error}") from None
        if trial_id != self.id:
            raise InputError(f"{file}: holds trial {trial_id}, expected {self.id}: the folder was renamed or edited")
        return trial

    def result(self) -> dict[str, Any] | None:
        """Return the result, or None before the trial has succeeded; raises InputError if it is damaged."""
        try:
            result = self.read("result.json")
        except FileNotFoundError:
            return None
        if not isinstance(result.get("metrics"), dict):
            raise damaged(self.path / "result.json", self.id, "no metrics in it")
        return result

    def read(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file.

        Raises:
            FileNotFoundError: there is no such file.
            InputError: it is damaged, or another trial's.
        """
        file = self.path / name
        try:
            content = json.loads(read_bytes(file))
        except (ValueError, RecursionError) as error:
            raise damaged(file, self.id, str(error)) from None
        return check_stamp(content, self.id, file)

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a JSON file atomically, with the trial's id and a digest."""
        self.check()
        write_json(self.path / name, stamped(content, self.id))

    @contextlib.contextmanager
    def held_by(self, lease: Lease) -> Iterator[None]:
        """Let this object write only while the lease is held."""
        self.lease = lease
        try:
            yield
        finally:
            self.lease = None

    def check(self) -> None:
        """Raise SupersededError if another worker has taken the directory."""
        if self.lease is not None and not self.lease.held():
            raise SupersededError

    def succeeded(self) -> bool:
        """Return whether the trial has a result."""
        return (self.path / "result.json").exists()

    def write_result(self, result: dict[str, Any]) -> None:
        """Write the result atomically; from then on the trial has succeeded."""
        self.write("result.json", result)

    def append_event(self, event: str, **fields: Any) -> None:
        """Append an event to ``events.jsonl``."""
        self.check()
        append_event(self.path / "events.jsonl", self.id, event, fields)

    def events(self) -> list[dict[str, Any]]:
        """Return the events (`dropbench.harness.runs.events.read_events`); raises InputError if they are damaged."""
        return read_events(self.path / "events.jsonl", self.id)

    def attempts(self) -> list[dict[str, Any]]:
        """Return the attempts in order, as `dropbench.jobs.worker.worker` wrote them, without half-written ones.

        Raises InputError if a file holds something else.
        """
        attempts: list[dict[str, Any]] = []
        for number in sorted(numbered_files(f"{self.path}/attempts", ".json")):
            file = self.path / "attempts" / f"{number}.json"
            try:
                content = json.loads(read_bytes(file))
            except (ValueError, RecursionError, FileNotFoundError):
                continue
            attempt = check_stamp(content, self.id, file)
            if attempt.get("number") != number:
                raise damaged(file, self.id, "it is of another attempt")
            validated(AttemptRecord, attempt, str(file))
            for key, value in attempt.items():
                if isinstance(value, str) and "\0" not in value:  # NULs of programs are kept
                    check_text(value, f"{file}: {key}")
            attempts.append(attempt)
        return attempts

    def write_attempt(self, number: int, attempt: dict[str, Any]) -> None:
        """Write attempt `number` (from 1) atomically."""
        self.check()
        (self.path / "attempts").mkdir(exist_ok=True)
        self.write(f"attempts/{number}.json", {**attempt, "number": number})

    def cancelled(self) -> str | None:
        """Return why this trial must not run; None if it may."""
        try:
            return read_bytes(self.path / CANCELLED).decode(errors="replace").strip() or BY_THE_USER
        except FileNotFoundError:
            return None

    def cancel(self, reason: str = BY_THE_USER) -> None:
        """Keep workers away from this trial. A cancellation by the user works on a full disk, too."""
        if reason == BY_THE_USER:
            (self.path / CANCELLED).touch()
        else:
            write_atomic(self.path / CANCELLED, reason.encode())

    @property
    def lock_file(self) -> str:
        """The file that `lock` locks."""
        return f"{self.path}/lock"

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Lock the directory against other workers on this machine; yield False if any worker already holds it.

        The kernel releases the lock when its process ends, however it ends. Kernel locks may not reach other machines,
        so a worker also takes a `dropbench.harness.runs.lease.Lease`.
        """
        with open(self._open_lock(os.O_RDWR | os.O_CREAT), "rb+", buffering=0) as file:
            locked = _flock(file, fcntl.LOCK_EX)
            while not locked and _flock(file, fcntl.LOCK_SH):  # no worker holds it, but `locked` in another process
                fcntl.flock(file, fcntl.LOCK_UN)
                time.sleep(0.01)
                locked = _flock(file, fcntl.LOCK_EX)
            yield locked and not self._held_remotely()

    def locked(self) -> bool:
        """Return whether a worker holds the directory now."""
        try:
            file = self._open_lock(os.O_RDONLY)
        except FileNotFoundError:
            return self._held_remotely()
        try:
            free = _flock(file, fcntl.LOCK_SH)
        finally:
            os.close(file)
        return not free or self._held_remotely()

    def _open_lock(self, flags: int) -> int:
        # By plain strings and descriptors, for speed: a large campaign has thousands of directories.
        try:
            return os.open(self.lock_file, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.ENOTDIR, errno.ELOOP):
                raise
            raise InputError(f"{self.lock_file}: {error.strerror}") from None

    def _held_remotely(self) -> bool:
        current = holder(self.path)
        return current is not None and current.held_remotely


class Runs:
    """The run directories in a folder; ``runs[id]`` is that of a trial, whether or not it exists."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, id: str) -> RunDirectory:
        return RunDirectory(self.folder / id)

    def __contains__(self, id: str) -> bool:
        return os.path.lexists(f"{self.folder}/{id}")

    def __iter__(self) -> Iterator[RunDirectory]:
        """Yield the existing run directories in order of id."""
        if self.folder.is_dir():
            with os.scandir(self.folder) as entries:
                ids = sorted(entry.name for entry in entries if len(entry.name) == 12 and entry.is_dir())
            yield from (self[id] for id in ids if os.path.lexists(self.folder / id / "trial.json"))

    def without_trial(self) -> Iterator[RunDirectory]:
        """Yield the directories that have files of a trial, but have lost ``trial.json``."""
        for path in sorted(self.folder.glob("[0-9a-f]" * 12)):
            lost = not os.path.lexists(path / "trial.json")
            if lost and any(os.path.lexists(path / name) for name in ("attempts", "events.jsonl", "result.json")):
                yield self[path.name]

    def find(self, id_prefix: str) -> RunDirectory:
        """Return the only run directory whose id begins with `id_prefix`; raise InputError if none or several do."""
        matches = [directory for directory in self if directory.id.startswith(id_prefix)]
        if not id_prefix or not matches:
            raise InputError(f"no trial '{id_prefix}' in {self.folder}: run `dropbench results --format json` for ids")
        if len(matches) > 1:
            ids = ", ".join(directory.id for directory in matches[:4]) + (", …" if len(matches) > 4 else "")
            raise InputError(f"'{id_prefix}' matches {len(matches)} trials in {self.folder}: {ids}")
        return matches[0]


def _flock(file: IO[bytes] | int, kind: int) -> bool:
    """Lock a file without waiting; return False if other locks forbid it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
