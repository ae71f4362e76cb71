"""Marks of results on data other than the published ones: generated data, or a subset."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from sqlalchemy import Connection, select

from db.schema.tables import Configs, Trials
from harness.errors import InputError
from harness.runs.run_directory import Runs
from harness.settings import Settings
from harness.suites.suite import SYNTHETIC
from harness.trials.task import SUBSET


def subset_notes(runs: Path, ids: Iterable[str]) -> tuple[str, ...] | None:
    """Return the notes on subsets of the first run that has a result file; None if no run has one."""
    for id in ids:
        with suppress(InputError, TypeError):  # notes that are no list
            if (content := Runs(runs)[id].result()) is not None:
                notes = [note for note in content.get("notes", ()) if isinstance(note, str)]
                return tuple(note.removeprefix(SUBSET) for note in notes if note.startswith(SUBSET))
    return None


def data_marks(connection: Connection) -> dict[str, str]:
    """Return ``subset`` or ``synthetic`` by configuration, if its data are not the published ones.

    Subsets are known from the run directories (`DROPBENCH_RUNS`). 100 per data set are tried, as those of an imported
    database are elsewhere.
    """
    marks: dict[str, str] = {}
    runs = Settings.from_environment().runs
    for data, fingerprint in connection.execute(select(Configs.c.data, Configs.c.fingerprint).distinct()).all():
        own = select(Configs.c.id).where(Configs.c.data == data, Configs.c.fingerprint == fingerprint)
        done = select(Trials.c.id).where(Trials.c.config_id.in_(own), Trials.c.state == "succeeded").limit(100)
        mark = "synthetic" if data.endswith(SYNTHETIC) else "subset"
        if mark == "synthetic" or subset_notes(runs, connection.scalars(done).all()):
            marks |= dict.fromkeys(connection.scalars(own), mark)
    return marks
