"""What pages are made of, kept as long as it is fresh, so that many readers cost no more than one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine, make_url

from db.connection import connect
from db.export import read_only
from db.schema import check_current
from db.store import Store, TrialRow
from harness.errors import InputError
from harness.registry import load
from harness.settings import Settings
from harness.trial import TrialState

T = TypeVar("T")

PATIENCE = 2.0
"""Seconds for which what the run directories say is taken for fresh."""
REST = 4.0
"""What takes a second to make stands for so many seconds at least: trainings need the processor, too."""
MOST_KEPT = 40


class LiveStore(Store):
    """A database that is only read, with the states that the run directories of active trials tell."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.seen: dict[str, tuple[TrialState, str | None]] = {}

    def states(self, ids: Sequence[str] | None = None) -> dict[str, TrialRow]:
        """As the base class, but for what is not collected yet; a result that is not here yet is none."""
        rows = super().states(ids)
        for id, (state, reason) in self.seen.items():
            row = rows.get(id)
            if row is not None and state != "succeeded":
                rows[id] = TrialRow(row.id, row.config_id, row.seed, state, reason, row.submission_id)
        return rows


def open_reading(url: str) -> Engine:
    """Open a database for reading.

    Raises:
        InputError: there is none, it is of another version, or cannot be read.
    """
    engine = connect(url)
    if engine.dialect.name == "sqlite":
        file = Path(engine.url.database or "")
        engine.dispose()
        if not file.is_file():
            raise InputError(f"{file}: no database yet: dropbench run SUITE makes it")
        engine = read_only(file)
    elif engine.dialect.name == "postgresql":
        engine = engine.execution_options(postgresql_readonly=True)
    try:
        check_current(engine)
    except BaseException:
        engine.dispose()
        raise
    return engine


class Live:
    """The database and the runs, as pages ask for them; may be used by several threads."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.runs = settings, settings.runs
        self.url = make_url(settings.database)
        self.base = Store(open_reading(settings.database))
        self.store = LiveStore(self.base.engine)
        self._look = load("jobs.activity:activity")
        self._lock = threading.Lock()
        self._kept: dict[Hashable, tuple[Hashable, float, Any]] = {}
        self._at = 0.0
        self._activity: Any = None

    def activity(self) -> Any:
        """What is active now (`jobs.activity.Activity`), at most as old as `PATIENCE`."""
        with self._lock:
            if self._activity is None or time.monotonic() - self._at > PATIENCE:
                # What the directories say is held against what the database says, not against itself.
                self._activity = self._look(self.base, self.settings)
                self.store.seen = dict(self._activity.states)
                self._at = time.monotonic()
            return self._activity

    def kept(self, key: Hashable, make: Callable[[], T], *, seconds: float = 0.0) -> T:
        """What `make` makes, or made while the database was as it is now, or lately where that takes long.

        Args:
            key: names it.
            make: makes it.
            seconds: of something that also changes with the run directories, for how long it stands; 0: for ever.
        """
        now = time.monotonic()
        fresh = (self._stamp(), int(now / seconds) if seconds else 0)
        found = self._kept.get(key)
        if found is not None and (found[0] == fresh or now < found[1]):
            made: T = found[2]
            return made
        made = make()
        while len(self._kept) >= MOST_KEPT:
            self._kept.pop(next(iter(self._kept)), None)
        ended = time.monotonic()
        self._kept[key] = (fresh, ended + REST * (ended - now), made)
        return made

    def _stamp(self) -> Hashable:
        """Changes whenever the database does."""
        if self.url.get_backend_name() != "sqlite":
            return int(time.monotonic() / 5)
        stamps = []
        for end in ("", "-wal"):
            try:
                stat = Path(f"{self.url.database}{end}").stat()
                stamps.append((stat.st_mtime_ns, stat.st_size))
            except OSError:
                stamps.append((0, 0))
        return tuple(stamps)
