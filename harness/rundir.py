"""The run directory of a trial: the truth about it. The database is an index that can be made again from these."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.errors import InputError
from harness.files import write_atomic, write_json
from harness.lease import Lease, SupersededError, holder
from harness.trial import Trial

CANCELLED = "cancelled"
"""A file of this name in a run directory keeps workers from it, and stops the one that is at it."""

BY_THE_USER = "cancelled by the user"


class RunDirectory:
    """``runs/<trial id>/``.

    - ``trial.json``: the trial, canonical.
    - ``suites.json``: names of the suites that asked for it.
    - ``attempts/<n>.json``: one file an execution (see `jobs.worker`), rewritten whole.
    - ``events.jsonl``: append-only; what a killed worker wrote past its last checkpoint is taken back by the
      ``resume`` event of the next one, and `events` leaves it out.
    - ``checkpoint/``: the last two, and the selected weights.
    - ``analysis/<kind>.{json,npz,png}``: what was measured of the trained model (see `harness.analysis.run`).
    - ``result.json``: there if and only if the trial succeeded.
    - ``cancelled``: there as long as nobody is to work at the trial; says why, empty where the user wished it.
    - ``environment.json``, ``log.txt``, ``lock``, ``lease/`` (see `harness.lease`).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.id = path.name
        self.lease: Lease | None = None

    @classmethod
    def create(cls, runs: Path, trial: Trial) -> RunDirectory:
        """Make the directory of a trial, or take the one that is there; ``trial.json`` is whole in any case."""
        directory = cls(runs / trial.id)
        directory.path.mkdir(parents=True, exist_ok=True)
        file = directory.path / "trial.json"
        content = (trial.to_json() + "\n").encode()
        if not file.exists() or file.read_bytes() != content:
            write_atomic(file, content)
        return directory

    @staticmethod
    def all(runs: Path) -> Iterator[RunDirectory]:
        """Every run directory below `runs`, in order of id."""
        if runs.is_dir():
            with os.scandir(runs) as entries:
                names = sorted(entry.name for entry in entries if len(entry.name) == 12 and entry.is_dir())
            for name in names:
                if (runs / name / "trial.json").exists():
                    yield RunDirectory(runs / name)

    @property
    def analyses(self) -> Path:
        """Where analyses are."""
        return self.path / "analysis"

    def trial(self) -> Trial:
        """The trial; raises InputError where its file is damaged."""
        file = self.path / "trial.json"
        try:
            text = file.read_bytes()
        except FileNotFoundError:
            raise InputError(f"{self.path}: no run directory: expected trial.json in it") from None
        trial = Trial.from_json(text, where=file)
        if trial.id != self.id:
            raise InputError(f"{file}: holds trial {trial.id}, expected {self.id}: the folder was renamed or edited")
        return trial

    def result(self) -> dict[str, Any] | None:
        """The result, None while there is none; raises InputError where it is damaged."""
        file = self.path / "result.json"
        try:
            result = json.loads(file.read_bytes())
            if not isinstance(result, dict) or not isinstance(result.get("metrics"), dict):
                raise ValueError("no metrics in it")
            return result
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise InputError(f"{file}: damaged ({error}); delete it to run the trial again") from None

    @contextlib.contextmanager
    def held_by(self, lease: Lease) -> Iterator[None]:
        """Meanwhile, whatever this object is to write is written only as long as the lease is held."""
        self.lease = lease
        try:
            yield
        finally:
            self.lease = None

    def check(self) -> None:
        """Raise SupersededError where another worker has taken the directory from this one."""
        if self.lease is not None and not self.lease.held():
            raise SupersededError

    def succeeded(self) -> bool:
        """Whether there is a result."""
        return (self.path / "result.json").exists()

    def write_result(self, result: dict[str, Any]) -> None:
        """Write the result whole; from then on the trial has succeeded."""
        self.check()
        write_json(self.path / "result.json", result)

    def append_event(self, event: str, **fields: Any) -> None:
        """Append one line, in one write. After a torn line (a worker killed in the middle) it starts on a new one."""
        self.check()
        line = json.dumps({"event": event, "time": round(time.time(), 3), **fields}, ensure_ascii=False)
        with open(self.path / "events.jsonl", "ab+") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    line = "\n" + line
            file.write((line + "\n").encode())

    def events(self) -> list[dict[str, Any]]:
        """The events in order, without torn lines and without what a resume took back."""
        kept: list[dict[str, Any]] = []
        try:
            lines = (self.path / "events.jsonl").read_bytes().split(b"\n")
        except FileNotFoundError:
            return kept
        for line in lines:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if not isinstance(event, dict):
                continue
            if event.get("event") == "resume":
                step = event.get("step", 0)
                kept = [old for old in kept if old.get("step", 0) <= step]
            kept.append(event)
        return kept

    def attempts(self) -> list[dict[str, Any]]:
        """The attempts in order, as `jobs.worker` wrote them."""
        found: list[dict[str, Any]] = []
        # Plain text and descriptors, here and in `locked`: of a large campaign thousands are looked at.
        folder = f"{self.path}/attempts"
        try:
            with os.scandir(folder) as files:
                names = [file.name for file in files]
        except (FileNotFoundError, NotADirectoryError):
            return found
        numbers = sorted(int(name.removesuffix(".json")) for name in names if name.endswith(".json"))
        for number in numbers:
            with contextlib.suppress(ValueError), open(f"{folder}/{number}.json", "rb", buffering=0) as file:
                found.append(json.loads(file.readall()))
        return found

    def write_attempt(self, number: int, attempt: dict[str, Any]) -> None:
        """Write attempt `number` (from 1) whole."""
        self.check()
        (self.path / "attempts").mkdir(exist_ok=True)
        write_json(self.path / "attempts" / f"{number}.json", {"number": number, **attempt})

    def cancelled(self) -> str | None:
        """Why nobody is to work at this trial; None where somebody may."""
        try:
            return (self.path / CANCELLED).read_text(encoding="utf-8", errors="replace").strip() or BY_THE_USER
        except FileNotFoundError:
            return None

    def cancel(self, reason: str = BY_THE_USER) -> None:
        """Keep workers from this trial. On a full disk, too, where it is the user who wishes it."""
        if reason == BY_THE_USER:
            (self.path / CANCELLED).touch()
        else:
            write_atomic(self.path / CANCELLED, reason.encode())

    def suites(self) -> list[str]:
        """Names of the suites that asked for this trial."""
        try:
            names = json.loads((self.path / "suites.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return []
        return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []

    def add_suites(self, names: list[str]) -> None:
        """Note suites that ask for this trial."""
        present = self.suites()
        joined = sorted({*present, *names})
        if joined != present:
            write_json(self.path / "suites.json", joined)

    @property
    def lock_file(self) -> str:
        """What `lock` locks, and `locked` looks at."""
        return f"{self.path}/lock"

    @contextlib.contextmanager
    def lock(self) -> Iterator[bool]:
        """Hold the directory against other workers on this machine; yields False if one holds it already, anywhere.

        The kernel lets go of the lock when its process ends, however it ends. To other machines its locks may not
        reach; who works for longer takes a `harness.lease.Lease`, too.
        """
        with open(self.lock_file, "ab") as file:
            for patience in (0.01, 0.02, 0.04, 0.0):  # `locked` holds it shared for an instant
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    time.sleep(patience)
                else:
                    yield not self._elsewhere()
                    return
            yield False

    def locked(self) -> bool:
        """Whether a worker is at it now."""
        try:
            file = os.open(self.lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return self._elsewhere()
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return self._elsewhere()

    def _elsewhere(self) -> bool:
        found = holder(self.path)
        return found is not None and found.elsewhere
