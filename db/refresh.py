"""The rows of one trial made anew, when something was added to its run directory."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url

from db.snapshot import snapshot
from db.store import open_store
from harness.rundir import RunDirectory
from harness.settings import Settings


def refresh(settings: Settings, directory: RunDirectory) -> bool:
    """Bring the rows of a trial up to date with its run directory; False where there is no database.

    Raises:
        InputError: the run directory is damaged, or the database cannot be written.
    """
    url = make_url(settings.database)
    if url.get_backend_name() == "sqlite" and not (url.database and Path(url.database).exists()):
        return False
    found = snapshot(directory)
    with open_store(settings.database) as store:
        store.record([found])
    return True
