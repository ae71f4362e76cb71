"""Results from another database: what is new comes along, what is finished wins, and what contradicts is told of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import Connection, insert, select

from db.checks import WrongRowError, check_row, check_trial
from db.connection import writing
from db.models import FINAL, Attempts, Metrics, Submissions, Trials
from db.rows import add_memberships, chunks, metric_row, record
from db.snapshot import Snapshot
from db.source import BATCH, Row, Source
from db.store import Store


@dataclass(frozen=True)
class Conflict:
    """A trial that succeeded in both, and one of the metrics that differ; None: no finite number."""

    trial: str
    metric: str
    here: float | None
    there: float | None


@dataclass
class Transferred:
    """What came of an import.

    Attributes:
        added: trials that are new.
        updated: trials that the source knew more of.
        unchanged: trials of which it knew nothing more.
        conflicts: trials whose results differ.
        refused: one line for each trial or submission whose rows are not what they should be.
        submissions: ended ones that are new.
    """

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    conflicts: list[Conflict] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    submissions: int = 0


def transfer(
    source: Source, store: Store, *, overrule: bool = False, progress: Callable[[int], None] = lambda count: None
) -> Transferred:
    """Take over what a source has; doing it again, or going on after an interruption, does no harm.

    A trial with a result wins over one without. Of two without, the source's is taken where all attempts that are known
    here are known there, and more, unless it is submitted or running here. What is so there waits here.

    Args:
        source: an open one.
        store: what it is taken into; some trials a transaction.
        overrule: where results differ, take the source's.
        progress: called with the number of trials that are done, again and again.

    Raises:
        InputError: the source is damaged, or the database cannot be written.
    """
    done = Transferred()
    for rows in source.submissions():
        _add_submissions(store, rows, done)
    for ids in chunks(source.ids(), BATCH):
        snapshots = []
        for found in source.trials(ids):
            try:
                snapshots.append(check_trial(found))
            except WrongRowError as error:
                done.refused.append(f"trial {found.trial['id']!r}: {error}")
        with writing(store.engine) as connection:
            _take(connection, {one.trial.id: one for one in snapshots}, done, overrule)
        progress(len(ids))
    return done


def told(done: Transferred, overruled: bool) -> list[str]:
    """A line for each conflict, and for all that was left out."""
    lines = []
    for one in done.conflicts:
        here, there = ("no finite number" if value is None else value for value in (one.here, one.there))
        taken = "there, which was taken" if overruled else "there: kept (--replace takes the other)"
        lines.append(f"conflict: trial {one.trial}: {one.metric} is {here} here and {there} {taken}")
    lines += [f"left out: {line}" for line in done.refused]
    # Names come from elsewhere: nothing of them is to move the cursor of a terminal.
    return ["".join(letter if letter.isprintable() else "\ufffd" for letter in line) for line in lines]


def _add_submissions(store: Store, rows: Sequence[Row], done: Transferred) -> None:
    checked = {}
    for row in rows:
        try:
            checked[row["id"]] = check_row(Submissions, row)
        except WrongRowError as error:
            done.refused.append(f"submission {row['id']!r}: {error}")
    with writing(store.engine) as connection:
        present = set(connection.scalars(select(Submissions.c.id).where(Submissions.c.id.in_(checked))))
        fresh = [row for id, row in checked.items() if id not in present]
        if fresh:
            connection.execute(insert(Submissions), fresh)
    done.submissions += len(fresh)


def _take(connection: Connection, offered: Mapping[str, Snapshot], done: Transferred, overrule: bool) -> None:
    """Decide on each trial by what is here, and write what was decided."""
    query = select(Trials.c.id, Trials.c.state).where(Trials.c.id.in_(offered))
    states = {row.id: row.state for row in connection.execute(query)}
    attempts = _attempts(connection, list(states))
    finals = _finals(connection, [id for id, state in states.items() if state == "succeeded"])
    taken: list[Snapshot] = []
    measured: list[Row] = []
    for id, one in offered.items():
        state, own = states.get(id), attempts.get(id, [])
        if state is None:
            done.added += 1
            taken.append(one)
        elif state == "succeeded" == one.state:
            there = {name: value for name, step, value in one.metrics if step == FINAL}
            differing = sorted(name for name in there.keys() & finals[id] if there[name] != finals[id][name])
            more = [name for name in there if name not in finals[id]]
            if differing:
                name = differing[0]
                done.conflicts.append(Conflict(id, name, finals[id][name], there[name]))
                if overrule:
                    taken.append(_joined(one, own))
            elif more:  # analyzed there
                done.updated += 1
                measured += [metric_row(one.trial, name, FINAL, there[name]) for name in more]
            else:
                done.unchanged += 1
        elif one.state == "succeeded" or _further(one, state, own):
            done.updated += 1
            taken.append(_joined(one, own))
        else:
            done.unchanged += 1
    record(connection, taken)
    if measured:
        connection.execute(insert(Metrics), measured)
    add_memberships(connection, [(suite, id) for id, one in offered.items() for suite in one.suites])


def _further(one: Snapshot, state: str, own: Sequence[Row]) -> bool:
    """Whether a trial without a result has come further there, and by a way that begins as it did here."""
    here, there = {_key(attempt) for attempt in own}, {_key(attempt) for attempt in one.attempts}
    return state not in ("succeeded", "submitted", "running") and here < there


def _joined(one: Snapshot, own: Sequence[Row]) -> Snapshot:
    """With the attempts of here that are not known there, all numbered anew by their time: history is never lost."""
    known = {_key(attempt) for attempt in one.attempts}
    more = [attempt for attempt in own if _key(attempt) not in known]
    if not more:
        return one
    ordered = sorted([*one.attempts, *more], key=lambda attempt: attempt["started_at"] or "")
    return replace(one, attempts=[{**attempt, "number": number} for number, attempt in enumerate(ordered, 1)])


def _key(attempt: Row) -> tuple[Any, ...]:
    """What tells an execution from all others, in whatever database it is."""
    return tuple(attempt[name] for name in ("started_at", "host", "pid", "job_id"))


def _attempts(connection: Connection, ids: Sequence[str]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    query = select(Attempts).where(Attempts.c.trial_id.in_(ids)).order_by(Attempts.c.trial_id, Attempts.c.number)
    for row in connection.execute(query).mappings():
        attempt = dict(row)
        found.setdefault(attempt.pop("trial_id"), []).append(attempt)
    return found


def _finals(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, float | None]]:
    found: dict[str, dict[str, float | None]] = {id: {} for id in ids}
    query = select(Metrics.c.trial_id, Metrics.c.name, Metrics.c.value).where(
        Metrics.c.trial_id.in_(ids), Metrics.c.step == FINAL
    )
    for id, name, value in connection.execute(query):
        found[id][name] = value
    return found
