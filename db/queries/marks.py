"""Marks of results on data other than the published ones: generated data, or a subset."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from sqlalchemy import Connection, func, select

from db.schema.tables import Configs, Trials
from harness.errors import InputError
from harness.runs.run_directory import Runs
from harness.settings import Settings
from harness.suites.suite import SYNTHETIC
from harness.trials.task import SUBSET

LIMIT = 100
"""Runs of a data set that are tried: those of an imported database are elsewhere."""


def subset_notes(runs: Path, ids: Iterable[str]) -> tuple[str, ...]:
    """Return the notes on subsets of the first run that has a result file, among the first `LIMIT`."""
    directories = Runs(runs)
    for id in islice(ids, LIMIT):
        with suppress(InputError, TypeError):  # notes that are no list
            if (content := directories[id].result()) is not None:
                notes = [note for note in content.get("notes", ()) if isinstance(note, str)]
                return tuple(note.removeprefix(SUBSET) for note in notes if note.startswith(SUBSET))
    return ()


def data_marks(connection: Connection) -> dict[str, str]:
    """Return ``subset`` or ``synthetic`` by configuration, if its data are not the published ones.

    Subsets are known from the run directories (`DROPBENCH_RUNS`).
    """
    synthetic = Configs.c.data.endswith(SYNTHETIC)
    marks = dict.fromkeys(connection.scalars(select(Configs.c.id).where(synthetic)), "synthetic")
    # One trial for each configuration: SQLite stops after `LIMIT` of them, instead of reading all trials.
    done = select(func.min(Trials.c.id)).where(Trials.c.config_id == Configs.c.id, Trials.c.state == "succeeded")
    trial = done.scalar_subquery()
    runs = Settings.from_environment().runs
    sets = select(Configs.c.data, Configs.c.fingerprint).where(~synthetic).distinct()
    for data, fingerprint in connection.execute(sets).all():
        own = Configs.c.data == data, Configs.c.fingerprint == fingerprint
        if subset_notes(runs, connection.scalars(select(trial).where(*own, trial.is_not(None)).limit(LIMIT))):
            marks |= dict.fromkeys(connection.scalars(select(Configs.c.id).where(*own)), "subset")
    return marks
