"""Extend a file of reference results by new trials; equal trials give an equal file."""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, insert, not_, select

from docs.reference.collect import Candidate, collect, requests_of
from docs.reference.metadata import croissant, licences
from dropbench.db.reference.archive import CROISSANT, DATABASE, LICENCES
from dropbench.db.reference.load import load, private_database
from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import TABLES, Details, Examples, Predicted
from dropbench.db.schema.tables import METADATA, Attempts, Configs, Metrics, Trials
from dropbench.db.store.requests import add_requests
from dropbench.db.store.rows import finals_of, in_list
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.schema import Row
from dropbench.harness.suites.suite import Suite
from dropbench.harness.trials.result_versions import version_note
from dropbench.harness.trials.trial import Trial

COUNTERS = (24, 40, 92, 96)
"""Offsets in the header of SQLite's format: changes of content and schema, and the version of SQLite that wrote it."""
_TIME = (1980, 1, 1, 0, 0, 0)
"""That of all files of the archive."""


@dataclass(frozen=True)
class Extension:
    """Changes by an extension.

    Attributes:
        added: ids of the new trials.
        present: number of trials that the file had already.
        conflicts: ids of trials whose results differ from those in the file, which are kept.
        refused: number of trials that may not be reference results, by reason.
        removed: number of trials that the file no longer has, as their result versions are earlier ones.
        total: number of trials of the file.
    """

    added: list[str]
    present: int
    conflicts: list[str]
    refused: Counter[str]
    removed: int
    total: int


def extend(
    path: Path, runs: Sequence[Path], suites: Sequence[Suite], commit: str, *, plugins: bool
) -> tuple[bytes, Extension]:
    """Return the content of a file after it is extended, without writing it.

    Args:
        path: the file, which may not exist yet.
        runs: folders of run directories.
        suites: the suites whose trials are taken.
        commit: the commit of the code, for runs that did not record it.
        plugins: whether trials of plug-ins are taken.

    Raises:
        InputError: the file is damaged, or a folder of runs does not exist.
    """
    names = [suite.name for suite in suites]
    requests = requests_of(runs, names)
    collected = collect(runs, names, requests, commit, plugins=plugins)
    with ExitStack() as stack:
        store = stack.enter_context(editable(path))
        removed = remove_earlier(store)
        known = set(store.states())
        candidates = collected.candidates
        with reading(store.engine) as connection:
            finals = finals_of(connection, known & candidates.keys())
        conflicts = [id for id, values in finals.items() if values != _finals(candidates[id])]
        added = [id for id in candidates if id not in known]
        store.record([candidates[id].record for id in added])
        with store.engine.begin() as connection:
            add_requests(connection, requests)
            if added:
                connection.execute(insert(Details), [candidates[id].details for id in added])
            add_predictions(
                connection, (row for id in candidates if id not in conflicts for row in candidates[id].predictions)
            )
        total = len(known) + len(added)
        extension = Extension(added, len(finals), conflicts, collected.refused, removed, total)
        return packed(store), extension


def add_predictions(connection: Connection, rows: Iterable[tuple[Row, Row]]) -> None:
    """Insert rows of `compact`, without those that are present already."""
    for examples, predicted in rows:
        for table, row in ((Examples, examples), (Predicted, predicted)):
            connection.execute(insert(table).prefix_with("OR IGNORE"), row)


def remove_earlier(store: Store) -> int:
    """Remove the trials that have earlier result versions; return their number."""
    earlier = [id for id, trial in store.trials(list(store.states())).items() if _is_earlier(trial)]
    with store.engine.begin() as connection:
        for table in (Metrics, Attempts, Details, Predicted):
            connection.execute(delete(table).where(in_list(connection, table.c.trial_id, earlier)))
        connection.execute(delete(Trials).where(in_list(connection, Trials.c.id, earlier)))
        for table, column in ((Configs, Trials.c.config_id), (Examples, Predicted.c.examples_id)):
            (key,) = table.primary_key.columns
            connection.execute(delete(table).where(not_(key.in_(select(column)))))
    return len(earlier)


def _is_earlier(trial: Trial) -> bool:
    try:
        return version_note(trial) is not None
    except InputError:  # of a plug-in that is not loaded
        return False


@contextmanager
def editable(path: Path) -> Iterator[Store]:
    """Open a copy of a file's content for changes; an empty one if there is no file."""
    if path.exists():
        engine = load(path.read_bytes(), str(path))
    else:
        engine = private_database()
        for table in (*METADATA.sorted_tables, *TABLES):
            table.create(engine)
    with Store(engine) as store:
        yield store


def packed(store: Store) -> bytes:
    """Return the file of the content of a private store."""
    raw = store.engine.raw_connection()
    private: Any = raw.driver_connection
    for table in METADATA.sorted_tables:
        for index in table.indexes:
            private.execute(f"DROP INDEX IF EXISTS {index.name}")  # a seventh of the file
    private.execute("VACUUM")  # the rows of each table in the order of its key
    database = bytearray(private.serialize())
    raw.close()
    for start in COUNTERS:
        database[start : start + 4] = bytes(4)
    files = {DATABASE: bytes(database), LICENCES: licences(store).encode()}
    files[CROISSANT] = croissant(store, files[DATABASE]).encode()
    return archive_bytes(files)


def archive_bytes(files: Mapping[str, bytes]) -> bytes:
    """Return the archive of files by name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in sorted(files.items()):
            info = zipfile.ZipInfo(name, _TIME)
            info.external_attr = 0o644 << 16
            archive.writestr(info, data, compress_type=zipfile.ZIP_LZMA)
    return content.getvalue()


def _finals(candidate: Candidate) -> dict[str, float | None]:
    return {name: value for name, _, value in candidate.record.metrics}
