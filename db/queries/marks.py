"""Marks of results: generated data, a subset of the published ones, or different library versions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path

from sqlalchemy import Connection, func, select

from db.schema.tables import Configs, Trials
from db.store.filters import distinct_values
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
    for id in filter(directories.__contains__, islice(ids, LIMIT)):
        with suppress(InputError, TypeError):  # notes that are no list
            if (content := directories[id].result()) is not None:
                notes = [note for note in content.get("notes", ()) if isinstance(note, str)]
                return tuple(note.removeprefix(SUBSET) for note in notes if note.startswith(SUBSET))
    return ()


def versions_of(connection: Connection) -> dict[str, set[str]]:
    """Return library versions, such as ``torch 2.12``, by configuration; {} unless the database has different ones."""
    versions: dict[str, set[str]] = defaultdict(set)
    present = Trials.c.libraries.is_not(None)
    known = {text: set(text.split(", ")) for text in distinct_values(connection, Trials.c.libraries, present)}
    if mark_text(set().union(*known.values())):
        query = select(Trials.c.libraries, Trials.c.config_id).where(present)
        for libraries, id in connection.execute(query.distinct()):
            versions[id] |= known[libraries]
    return versions


def marks_of(connection: Connection) -> Mapping[str, set[str]]:
    """Return the marks by configuration, for `mark_text`.

    These are ``subset`` or ``synthetic``, if its data are not the published ones, and the `versions_of` libraries.
    Subsets are known from the run directories (`DROPBENCH_RUNS`).
    """
    marks = versions_of(connection)
    synthetic = Configs.c.data.endswith(SYNTHETIC)
    for id in connection.scalars(select(Configs.c.id).where(synthetic)):
        marks[id].add("synthetic")
    # One trial for each configuration: SQLite stops after `LIMIT` of them, instead of reading all trials.
    done = select(func.min(Trials.c.id)).where(Trials.c.config_id == Configs.c.id, Trials.c.state == "succeeded")
    trial = done.scalar_subquery()
    runs = Settings.from_environment().runs
    sets = select(Configs.c.data, Configs.c.fingerprint).where(~synthetic).distinct()
    for data, fingerprint in connection.execute(sets).all():
        own = Configs.c.data == data, Configs.c.fingerprint == fingerprint
        if subset_notes(runs, connection.scalars(select(trial).where(*own, trial.is_not(None)).limit(LIMIT))):
            for id in connection.scalars(select(Configs.c.id).where(*own)):
                marks[id].add("subset")
    return marks


def mark_text(marks: Collection[str]) -> str | None:
    """Return marks as text, or None; a version of a library counts if there is another version of it."""
    libraries = Counter(mark.partition(" ")[0] for mark in marks if " " in mark)
    return ", ".join(sorted(mark for mark in marks if libraries.get(mark.partition(" ")[0], 2) > 1)) or None
