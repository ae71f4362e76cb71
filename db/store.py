"""The queue and the index of results, as what may be done to them; every method is one transaction."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

from sqlalchemy import Connection, Engine, func, insert, select, update

from db import filters, schema
from db.connection import connect, reading, translated, writing
from db.models import Attempts, Configs, Memberships, Submissions, Trials
from db.rows import add_configs, add_memberships, add_trials, among, chunks, now, record, trial_of
from db.snapshot import Snapshot
from harness.errors import InputError
from harness.trial import FINAL_STATES, TRIAL_STATES, Trial, TrialState

BULK = 20_000
"""Trials that are enqueued at a time: the more, the more of them are neighbours in the tables."""


def _username() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's number without a name
        return str(os.getuid())


@dataclass(frozen=True)
class TrialRow:
    """A trial as the queue sees it."""

    id: str
    config_id: str
    seed: int
    state: TrialState
    reason: str | None
    submission_id: str | None


@dataclass(frozen=True)
class SubmissionRow:
    """A job of an executor; `pid` on `host`, a process of `username`'s, submitted it."""

    id: str
    executor: str
    folder: str
    host: str
    pid: int
    job_id: str | None = None
    state: Literal["intended", "submitted", "ended"] = "intended"
    created_at: str = field(default_factory=now)
    ended_at: str | None = None
    username: str | None = field(default_factory=_username)


@dataclass(frozen=True)
class Enqueued:
    """Ids that are new, ids that were there, and those of the latter that wait again: cancelled or skipped before."""

    added: list[str]
    present: list[str]
    requeued: list[str]


def open_store(url: str, *, create: bool = True) -> Store:
    """Open a database, made or upgraded where it has to be; a context manager.

    Args:
        url: SQLAlchemy URL.
        create: make the file where there is none.

    Raises:
        InputError: no database, one of a newer version, damaged, unreachable, or not to be written.
    """
    engine = connect(url)
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    if not create and file and file != ":memory:" and not Path(file).exists():
        raise InputError(f"{file}: no database yet: dropbench run SUITE makes it")
    try:
        schema.ensure(engine)
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


class Store:
    """An open database (`open_store`). Methods raise InputError where it is locked, full, read-only or damaged."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the file."""
        with translated(self.engine):
            self.engine.dispose()

    def enqueue(self, items: Iterable[tuple[Trial, str | None]]) -> Enqueued:
        """Queue trials, each with the suite that asks for it; all of them or none.

        A trial that is there stays as it is, but for a cancelled or skipped one: it waits again. A failed one does
        not: that takes `set_states`.
        """
        added: list[str] = []
        present: list[str] = []
        requeued: list[str] = []
        with writing(self.engine) as connection:
            for chunk in chunks(items, BULK):
                trials = {trial.id: trial for trial, _ in chunk}
                query = select(Trials.c.id, Trials.c.state, Trials.c.weights).where(
                    among(connection, Trials.c.id, trials)
                )
                there = {id: (state, weights) for id, state, weights in connection.execute(query)}
                fresh = [trial for id, trial in trials.items() if id not in there]
                add_configs(connection, fresh)
                add_trials(connection, fresh, "queued")
                add_memberships(connection, [(suite, trial.id) for trial, suite in chunk if suite is not None])
                again = [id for id, (state, _) in there.items() if state in ("cancelled", "skipped")]
                if again:
                    _set(connection, again, state="queued", reason=None, submission_id=None)
                for id, (_, weights) in there.items():
                    given = trials[id].weights
                    if given is not None and given.path != weights:  # the same weights, moved
                        _set(connection, [id], weights=given.path)
                added += [trial.id for trial in fresh]
                present += [id for id in trials if id in there]
                requeued += again
        new = set(added)
        return Enqueued(added, [id for id in dict.fromkeys(present) if id not in new], requeued)

    def skip(self, trial: Trial, suite: str | None, reason: str) -> None:
        """Note that a trial makes no sense, and why; one that was run already stays as it is."""
        with writing(self.engine) as connection:
            state = connection.scalar(select(Trials.c.state).where(Trials.c.id == trial.id))
            if state is None:
                add_configs(connection, [trial])
                add_trials(connection, [trial], "skipped", reason)
            elif state in ("queued", "skipped"):
                _set(connection, [trial.id], state="skipped", reason=reason)
            if suite is not None:
                add_memberships(connection, {(suite, trial.id)})

    def states(self, ids: Sequence[str] | None = None) -> dict[str, TrialRow]:
        """The rows of these trials (those of them that are there), in the order given; of all, the oldest first."""
        query = select(
            Trials.c.id, Trials.c.config_id, Trials.c.seed, Trials.c.state, Trials.c.reason, Trials.c.submission_id
        )  # fmt: skip
        with reading(self.engine) as connection:
            if ids is None:
                rows = connection.execute(query.order_by(Trials.c.created_at, Trials.c.id)).all()
                return {row.id: TrialRow(*row) for row in rows}
            rows = connection.execute(query.where(among(connection, Trials.c.id, ids))).all()
        found = {row.id: TrialRow(*row) for row in rows}
        return {id: found[id] for id in ids if id in found}

    def counts(self, ids: Sequence[str] | None = None) -> dict[TrialState, int]:
        """How many trials are in each state; all states are there."""
        counts: dict[TrialState, int] = dict.fromkeys(TRIAL_STATES, 0)
        query = select(Trials.c.state, func.count()).group_by(Trials.c.state)
        with reading(self.engine) as connection:
            if ids is not None:
                query = query.where(among(connection, Trials.c.id, ids))
            for state, count in connection.execute(query):
                counts[state] = count
        return counts

    def trial(self, id: str) -> Trial:
        """The trial of a whole id; raises InputError where there is none."""
        found = self.trials([id])
        if id not in found:
            raise InputError(f"no trial '{id}' in the database: dropbench results lists what there is")
        return found[id]

    def trials(self, ids: Sequence[str]) -> dict[str, Trial]:
        """The trials of these ids, those of them that are there, in the order given."""
        query = select(Trials.c.id, Trials.c.config_id, Trials.c.seed, Trials.c.weights)
        with reading(self.engine) as connection:
            rows = connection.execute(query.where(among(connection, Trials.c.id, ids))).all()
            of_rows = among(connection, Configs.c.id, {row.config_id for row in rows})
            configs = dict(connection.execute(select(Configs.c.id, Configs.c.config).where(of_rows)).all())
        firsts: dict[tuple[str, str | None], Trial] = {}
        found: dict[str, Trial] = {}
        for id, config_id, seed, weights in rows:
            first = firsts.get((config_id, weights))
            if first is None:
                first = firsts[config_id, weights] = trial_of(configs[config_id], seed, weights)
            found[id] = first if first.seed == seed else first.model_copy(update={"seed": seed})
        return {id: found[id] for id in ids if id in found}

    def suites(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """The suites that asked for these trials, by id; ids that no suite asked for are left out."""
        found: dict[str, list[str]] = {}
        query = select(Memberships.c.trial_id, Memberships.c.suite).order_by(Memberships.c.suite)
        with reading(self.engine) as connection:
            for id, suite in connection.execute(query.where(among(connection, Memberships.c.trial_id, ids))):
                found.setdefault(id, []).append(suite)
        return found

    def find(self, filter: str | None) -> list[str]:
        """Ids of the trials that a filter leaves, the oldest first; None: all. The words are `db.filters`'s.

        Raises:
            InputError: a word of it means nothing here.
        """
        with reading(self.engine) as connection:
            query = select(Trials.c.id).order_by(Trials.c.created_at, Trials.c.id)
            clauses = filters.parse(connection, (filter or "").split()).clauses
            return list(connection.scalars(query.where(*clauses)))

    def attempted(self, filter: str) -> set[str]:
        """Ids of the trials that a filter leaves and that have an attempt, as far as is known here."""
        with reading(self.engine) as connection:
            clauses = filters.parse(connection, filter.split()).clauses
            query = select(Attempts.c.trial_id).join(Trials).where(Attempts.c.number == 1, *clauses)
            return set(connection.scalars(query))

    def intend(self, ids: Sequence[str], submission: SubmissionRow) -> list[str]:
        """Claim for a submission those of `ids` that still wait, and note the submission; [] and no note if none does.

        Two processes never get the same trial.
        """
        with writing(self.engine) as connection:
            query = select(Trials.c.id).where(among(connection, Trials.c.id, ids), Trials.c.state == "queued")
            waiting = set(connection.scalars(query))
            claimed = [id for id in dict.fromkeys(ids) if id in waiting]
            if claimed:
                connection.execute(insert(Submissions).values(**asdict(submission)))
                _set(connection, claimed, state="submitted", reason=None, submission_id=submission.id)
        return claimed

    def submitted(self, submission_id: str, job_id: str | None) -> None:
        """Note that the executor has taken a submission."""
        self._update_submission(submission_id, state="submitted", job_id=job_id)

    def end_submission(self, submission_id: str) -> None:
        """Note that nothing of a submission runs any more."""
        self._update_submission(submission_id, state="ended", ended_at=now())

    def _update_submission(self, submission_id: str, **values: Any) -> None:
        with writing(self.engine) as connection:
            connection.execute(update(Submissions).where(Submissions.c.id == submission_id).values(**values))

    def open_submissions(self) -> list[SubmissionRow]:
        """The submissions that have not ended, the oldest first."""
        columns = [Submissions.c[name] for name in SubmissionRow.__dataclass_fields__]
        query = (
            select(*columns).where(Submissions.c.state != "ended").order_by(Submissions.c.created_at, Submissions.c.id)
        )
        with reading(self.engine) as connection:
            return [SubmissionRow(*row) for row in connection.execute(query)]

    def set_states(
        self, states: Mapping[str, tuple[TrialState, str | None]], only_from: set[TrialState] | None = None
    ) -> list[str]:
        """Change states, of trials that are in one of `only_from` where that is given; returns the ids changed."""
        with writing(self.engine) as connection:
            query = select(Trials.c.id, Trials.c.state).where(among(connection, Trials.c.id, states))
            found = {id for id, state in connection.execute(query) if only_from is None or state in only_from}
            changed = [id for id in states if id in found]
            by_value: dict[tuple[TrialState, str | None], list[str]] = {}
            for id in changed:
                by_value.setdefault(states[id], []).append(id)
            for (state, reason), ids in by_value.items():
                rest = {"submission_id": None} if state == "queued" or state in FINAL_STATES else {}
                _set(connection, ids, state=state, reason=reason, **rest)
        return changed

    def record(self, snapshots: Iterable[Snapshot]) -> None:
        """Take over what run directories say, whole; doing it again changes nothing."""
        with writing(self.engine) as connection:
            for chunk in chunks(snapshots):
                record(connection, chunk)


def _set(connection: Connection, ids: Sequence[str], **values: Any) -> None:
    connection.execute(update(Trials).where(among(connection, Trials.c.id, ids)).values(**values, updated_at=now()))
