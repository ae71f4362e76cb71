"""Extend a file of reference results by new trials; equal trials give an equal file."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import insert

from db.reference.archive import CROISSANT, LICENCES, archive_bytes
from db.reference.load import load, private_database
from db.reference.predictions import add
from db.schema.connection import reading
from db.schema.reference import TABLES, Details
from db.schema.tables import METADATA
from db.store.rows import add_memberships, finals_of
from db.store.run_record import RunRecord
from db.store.store import Store
from db.transfer.export import export, write_table
from harness.settings import Settings
from harness.suites.suite import Suite
from jobs.reference.collect import Candidate, collect, refuse_unrequested
from jobs.reference.metadata import croissant, licences


@dataclass(frozen=True)
class Extension:
    """Changes by an extension.

    Attributes:
        added: ids of the new trials.
        present: number of trials that the file had already.
        conflicts: ids of trials whose results differ from those in the file, which are kept.
        refused: number of trials that may not be reference results, by reason.
        total: number of trials of the file.
    """

    added: list[str]
    present: int
    conflicts: list[str]
    refused: Counter[str]
    total: int


def extend(
    path: Path, runs: Sequence[Path], suites: Sequence[Suite], settings: Settings, commit: str, *, plugins: bool
) -> tuple[bytes, Extension]:
    """Return the content of a file after it is extended, without writing it.

    Args:
        path: the file, which may not exist yet.
        runs: folders of run directories.
        suites: the suites whose trials are taken.
        settings: paths of the data.
        commit: the commit of the code, for runs that did not record it.
        plugins: whether trials of plug-ins are taken.

    Raises:
        InputError: the file is damaged, or a folder of runs does not exist.
    """
    collected = collect(runs, [suite.name for suite in suites], commit, plugins=plugins)
    with ExitStack() as stack:
        store = stack.enter_context(editable(path))
        known = set(store.states())
        with _scratch([candidate.record for candidate in collected.candidates.values()]) as found:
            refuse_unrequested(collected, suites, found, settings)
        candidates = collected.candidates
        with reading(store.engine) as connection:
            finals = finals_of(connection, known & candidates.keys())
        conflicts = [id for id, values in finals.items() if values != _finals(candidates[id])]
        added = [id for id in candidates if id not in known]
        store.record([candidates[id].record for id in added])
        with store.engine.begin() as connection:
            add_memberships(connection, [(suite, id) for id in candidates for suite in candidates[id].record.suites])
            if added:
                connection.execute(insert(Details), [candidates[id].details for id in added])
            add(connection, (row for id in candidates if id not in conflicts for row in candidates[id].predictions))
        extension = Extension(added, len(finals), conflicts, collected.refused, len(known) + len(added))
        return packed(store), extension


@contextmanager
def editable(path: Path) -> Iterator[Store]:
    """Open a copy of a file's content for changes; an empty one if there is no file."""
    if path.exists():
        engine = load(path.read_bytes(), str(path))
    else:
        engine = private_database()
        METADATA.create_all(engine)
        Details.metadata.create_all(engine)
    with Store(engine) as store:
        yield store


@contextmanager
def _scratch(records: Sequence[RunRecord]) -> Iterator[Store]:
    engine = private_database()
    METADATA.create_all(engine)
    with Store(engine) as store:
        store.record(records)
        yield store


def packed(store: Store) -> bytes:
    """Return the file of a store's content."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export(store, folder, "csv")
        with reading(store.engine) as connection:
            for table in TABLES:
                write_table(connection, table, folder / f"{table.name}.csv", "csv")
        files = {file.name: file.read_bytes() for file in folder.iterdir()}
    files[LICENCES] = licences(store).encode()
    files[CROISSANT] = croissant(store, files).encode()
    return archive_bytes(files)


def _finals(candidate: Candidate) -> dict[str, float | None]:
    return {name: value for name, _, value in candidate.record.metrics}
