"""Merge results of another database: add new trials, prefer finished ones, report conflicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, insert, select

from dropbench.db.schema.connection import writing
from dropbench.db.schema.tables import FINAL, Metrics, Submissions, Trials
from dropbench.db.store.rows import Row, attempts_of, chunks, finals_of, metric_row, record
from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.db.transfer.source import BATCH_SIZE, Source
from dropbench.db.transfer.validation import WrongRowError, check_request, check_row, check_trial


@dataclass(frozen=True)
class Conflict:
    """A trial that succeeded in both databases, and one of the metrics that differ; None: not a finite number."""

    trial: str
    metric: str
    here: float | None
    there: float | None


@dataclass
class ImportSummary:
    """The outcome of an import.

    Attributes:
        added: number of new trials.
        updated: number of trials that the source had advanced further.
        unchanged: number of trials for which the source had nothing new.
        conflicts: trials whose results differ.
        refused: an error line per trial, submission or request with invalid rows.
        submissions: number of new submissions, all ended.
        requests: number of new requests.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    submissions: int = 0
    requests: int = 0


def transfer(
    source: Source, store: Store, overwrite: bool = False, progress: Callable[[int], None] = lambda count: None
) -> ImportSummary:
    """Import the trials of a source. Repeating or resuming an interrupted import is safe.

    A trial with a result wins over one without. Of two without, the source's wins if its attempts include all of the
    target's and more, unless the target's trial is submitted or running. Trials submitted or running in the source are
    queued in the target.

    Args:
        source: an open source.
        store: the target; each transaction imports some trials.
        overwrite: take the source's results if they differ.
        progress: called with the number of trials imported since the last call.

    Raises:
        InputError: the source is damaged, or the database cannot be written.
    """
    summary = ImportSummary()
    for rows in source.submissions():
        _add_submissions(store, rows, summary)
    for ids in chunks(source.ids(), BATCH_SIZE):
        records = []
        for trial in source.trials(ids):
            try:
                records.append(check_trial(trial))
            except WrongRowError as error:
                summary.refused.append(f"trial {trial.row['id']!r}: {error}")
        with writing(store.engine) as connection:
            _merge(connection, {record.trial.id: record for record in records}, summary, overwrite)
        progress(len(ids))
    requests = []
    for row in source.requests():
        try:
            requests.append(check_request(row))
        except WrongRowError as error:
            summary.refused.append(f"request {row['id']!r}: {error}")
    summary.requests += store.add_requests(requests)
    return summary


def messages(summary: ImportSummary, overwritten: bool) -> list[str]:
    """Return a line per conflict, and per trial, submission or request that was left out."""
    lines = []
    for conflict in summary.conflicts:
        values = [f"{value}" if value is not None else "no finite number" for value in (conflict.here, conflict.there)]
        action = "there, which replaced it" if overwritten else "there: kept (`--replace` takes the other)"
        name = f"trial {conflict.trial}: {conflict.metric}"
        lines.append(f"conflict: {name} is {values[0]} here and {values[1]} {action}")
    lines += [f"left out: {line}" for line in summary.refused]
    # Names come from the source; a control character in them could move the terminal's cursor.
    return ["".join(letter if letter.isprintable() else "\ufffd" for letter in line) for line in lines]


def _add_submissions(store: Store, rows: Sequence[Row], summary: ImportSummary) -> None:
    checked = {}
    for row in rows:
        try:
            checked[row["id"]] = check_row(Submissions, row)
        except WrongRowError as error:
            summary.refused.append(f"submission {row['id']!r}: {error}")
    with writing(store.engine) as connection:
        existing = set(connection.scalars(select(Submissions.c.id).where(Submissions.c.id.in_(checked))))
        added = [row for id, row in checked.items() if id not in existing]
        if added:
            connection.execute(insert(Submissions), added)
    summary.submissions += len(added)


def _merge(connection: Connection, records: Mapping[str, RunRecord], summary: ImportSummary, overwrite: bool) -> None:
    """Decide for each record of the source what the target takes of it, and write that."""
    query = select(Trials.c.id, Trials.c.state).where(Trials.c.id.in_(records))
    states = {row.id: row.state for row in connection.execute(query)}
    attempts, finals = attempts_of(connection, states), finals_of(connection, states)
    taken: list[RunRecord] = []
    new_metrics: list[Row] = []
    for id, theirs in records.items():
        state, own = states.get(id), attempts.get(id, [])
        if state is None:
            summary.added += 1
            taken.append(theirs)
        elif state == "succeeded" == theirs.state:
            values = {name: value for name, step, value in theirs.metrics if step == FINAL}
            differing = sorted(name for name in values.keys() & finals[id] if values[name] != finals[id][name])
            added = [name for name in values if name not in finals[id]]
            if differing:
                name = differing[0]
                summary.conflicts.append(Conflict(id, name, finals[id][name], values[name]))
                if overwrite:
                    taken.append(_with_own_attempts(theirs, own))
            elif added:  # by an analysis
                summary.updated += 1
                new_metrics += [metric_row(theirs.trial, name, FINAL, values[name]) for name in added]
            else:
                summary.unchanged += 1
        elif theirs.state == "succeeded" or _is_ahead(theirs, state, own):
            summary.updated += 1
            taken.append(_with_own_attempts(theirs, own))
        else:
            summary.unchanged += 1
    record(connection, taken)
    if new_metrics:
        connection.execute(insert(Metrics), new_metrics)


def _is_ahead(theirs: RunRecord, state: str, own: Sequence[Row]) -> bool:
    """Return whether an unfinished trial has more attempts in the source, including all of the target's."""
    own_keys, their_keys = {_key(attempt) for attempt in own}, {_key(attempt) for attempt in theirs.attempts}
    return state not in ("succeeded", "submitted", "running") and own_keys < their_keys


def _with_own_attempts(theirs: RunRecord, own: Sequence[Row]) -> RunRecord:
    """Add the target's attempts that the source lacks, and renumber all by time, so that no history is lost."""
    keys = {_key(attempt) for attempt in theirs.attempts}
    missing = [attempt for attempt in own if _key(attempt) not in keys]
    if not missing:
        return theirs
    ordered = sorted([*theirs.attempts, *missing], key=lambda attempt: attempt["started_at"] or "")
    return replace(theirs, attempts=[{**attempt, "number": number} for number, attempt in enumerate(ordered, 1)])


def _key(attempt: Row) -> tuple[Any, ...]:
    """Return the values that identify an attempt in any database."""
    return tuple(attempt[name] for name in ("started_at", "host", "pid", "job_id"))
