"""Refresh the rows of one trial after something was added to its run directory."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import make_url

from db.store.run_record import read_run_record
from db.store.store import open_store
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings


def refresh(settings: Settings, directory: RunDirectory) -> bool:
    """Bring the rows of a trial up to date with its run directory. Return False if there is no database.

    Raises:
        InputError: the run directory is damaged, or the database cannot be written.
    """
    url = make_url(settings.database)
    if url.get_backend_name() == "sqlite" and not (url.database and Path(url.database).exists()):
        return False
    record = read_run_record(directory)
    with open_store(settings.database) as store:
        store.record([record])
    return True
