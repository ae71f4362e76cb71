"""Read access to the database and the runs, cached so that many readers cost no more than one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine, make_url

from dropbench.db.schema.connection import disposed_on_error
from dropbench.db.schema.upgrade import check_current
from dropbench.db.store.check import require_intact_at
from dropbench.db.store.store import Store, TrialRow
from dropbench.db.transfer.export import connect_read_only
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import TrialState

T = TypeVar("T")

MAX_ACTIVITY_AGE_S = 2.0
"""Age at which the states read from run directories are read again."""
CACHE_COST_FACTOR = 4.0
"""A value that took one second to compute is reused for at least this many: training needs the CPU, too."""
MAX_CACHED = 40


class LiveStore(Store):
    """A read-only database whose active trials have the states of their run directories."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.observed: dict[str, tuple[TrialState, str | None]] = {}

    def states(self, ids: Sequence[str] | None = None) -> dict[str, TrialRow]:
        """Return the states with those not collected yet; successes wait for their results in the database."""
        rows = super().states(ids)
        for id, (state, reason) in self.observed.items():
            if id in rows and state != "succeeded":
                rows[id] = replace(rows[id], state=state, reason=reason)
        return rows


def open_reading(url: str) -> Engine:
    """Open a database read-only; raise InputError if it is missing, has another version, or cannot be read."""
    engine = connect_read_only(url)
    with disposed_on_error(engine):
        check_current(engine)
    return engine


class Live:
    """The database and the runs as the pages read them; safe for use by several threads.

    Args:
        settings: paths of the database and the runs.
        get_activity: returns the running trials (`dropbench.jobs.queue.status.activity`).

    Raises:
        InputError: the database is missing or cannot be read.
    """

    def __init__(self, settings: Settings, get_activity: Callable[[Store, Settings], Any]) -> None:
        self.settings, self.runs = settings, settings.runs
        require_intact_at(settings.database)
        self.url = make_url(settings.database)
        self.base = Store(open_reading(settings.database))
        self.store = LiveStore(self.base.engine)
        self._get_activity = get_activity
        self._lock = threading.Lock()
        self._cache: dict[Hashable, tuple[Hashable, float, Any]] = {}
        self._activity_time = 0.0
        self._activity: Any = None

    def activity(self) -> Any:
        """Return the running trials (`dropbench.jobs.queue.status.Activity`), at most `MAX_ACTIVITY_AGE_S` old."""
        with self._lock:
            if self._activity is None or time.monotonic() - self._activity_time > MAX_ACTIVITY_AGE_S:
                # Compare the run directories with the database, not with states observed before.
                self._activity = self._get_activity(self.base, self.settings)
                self.store.observed = dict(self._activity.states)
                self._activity_time = time.monotonic()
            return self._activity

    def cached(self, key: Hashable, compute: Callable[[], T], *, seconds: float = 0.0) -> T:
        """Return a value computed since the database last changed, or recently if that takes long.

        Args:
            key: identifies the value.
            compute: computes it.
            seconds: lifetime of a value that also depends on the run directories; 0 for no limit.
        """
        start = time.monotonic()
        version = (self._database_version(), int(start / seconds) if seconds else 0)
        entry = self._cache.get(key)
        if entry is not None and (entry[0] == version or start < entry[1]):
            cached: T = entry[2]
            return cached
        value = compute()
        while len(self._cache) >= MAX_CACHED:
            self._cache.pop(next(iter(self._cache)), None)
        end = time.monotonic()
        self._cache[key] = (version, end + CACHE_COST_FACTOR * (end - start), value)
        return value

    def _database_version(self) -> Hashable:
        """Return a value that changes with the database: times and sizes of SQLite files, or a clock of 5 s."""
        if self.url.get_backend_name() != "sqlite":
            return int(time.monotonic() / 5)
        versions = []
        for suffix in ("", "-wal"):
            with suppress(OSError):
                stat = Path(f"{self.url.database}{suffix}").stat()
                versions.append((suffix, stat.st_mtime_ns, stat.st_size))
        return tuple(versions)
