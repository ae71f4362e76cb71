"""Operations on the queue and the index of results; every method is one transaction."""

from __future__ import annotations

import getpass
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from sqlalchemy import URL, Connection, Engine, func, insert, select, update
from sqlalchemy.exc import DatabaseError

from dropbench.db.schema import upgrade
from dropbench.db.schema.connection import connect, disposed_on_error, reading, translate_errors, writing
from dropbench.db.schema.seal import sealing
from dropbench.db.schema.tables import Attempts, Configs, Submissions, SubmissionState, Trials
from dropbench.db.store import filters
from dropbench.db.store.check import check_content, require_intact
from dropbench.db.store.requests import MEMBERS, add_requests
from dropbench.db.store.rows import add_configs, add_trials, chunks, in_list, load_trial, record
from dropbench.db.store.run_record import RunRecord
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError
from dropbench.harness.suites.request import Request
from dropbench.harness.trials.trial import FINAL_STATES, TRIAL_STATES, Trial, TrialState

BULK = 20_000
"""Trials that are enqueued at a time; the larger, the more of them are adjacent in the tables."""


def _username() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return str(os.getuid())


@dataclass(frozen=True)
class TrialRow:
    """A trial in the queue."""

    id: str
    config_id: str
    seed: int
    state: TrialState
    reason: str | None
    submission_id: str | None


@dataclass(frozen=True)
class SubmissionRow:
    """A job of an executor, submitted by the process `pid` of `username` on `host`."""

    id: str
    executor: str
    folder: str
    host: str
    pid: int
    job_id: str | None = None
    state: SubmissionState = "intended"
    created_at: str = field(default_factory=utc_now_iso)
    ended_at: str | None = None
    username: str | None = field(default_factory=_username)


@dataclass(frozen=True)
class Enqueued:
    """New ids, existing ids, those of them that were cancelled or skipped and are queued again, and skipped ids."""

    added: list[str]
    present: list[str]
    requeued: list[str]
    skipped: list[str] = field(default_factory=list)


def open_store(url: str | URL, *, create: bool = True) -> Store:
    """Open a database, creating or upgrading its tables if necessary. The store is a context manager.

    Args:
        url: SQLAlchemy URL.
        create: create the file if it does not exist.

    Raises:
        InputError: the database does not exist, is damaged, unreachable, read-only, or has a newer schema.
    """
    engine = connect(url)
    file = engine.url.database if engine.dialect.name == "sqlite" else None
    if not create and file and file != ":memory:" and not Path(file).exists():
        raise InputError(f"{file}: no database yet: `dropbench run SUITE` creates it")
    with disposed_on_error(engine):
        upgrade.ensure_current(engine)
        require_intact(engine)
    return Store(engine)


class Store:
    """An open database (`open_store`).

    Methods raise InputError if it is locked, full, read-only or damaged, or if a word of a filter is invalid.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self.explain(error)
        finally:
            self.close()

    def explain(self, error: BaseException | None) -> None:
        """Raise InputError if a damaged value in the database may be the cause of an error."""
        if isinstance(error, DatabaseError | ValueError | TypeError | LookupError | AttributeError):
            check_content(self.engine)

    def close(self) -> None:
        """Close all connections."""
        with sealing(self.engine), translate_errors(self.engine):
            self.engine.dispose()

    def enqueue(
        self, trials: Iterable[Trial], requests: Iterable[Request] = (), unsuitable: Mapping[str, str] | None = None
    ) -> Enqueued:
        """Queue trials, and store the requests that name them; all or nothing.

        An existing trial does not change, unless it was cancelled or skipped: it is queued again. A failed one is not;
        use `set_states`. Instead of being queued, trials are skipped whose configuration has a reason in `unsuitable`.
        """
        enqueued = Enqueued([], [], [])
        with writing(self.engine) as connection:
            add_requests(connection, requests)
            for chunk in chunks(trials, BULK):
                _enqueue(connection, {trial.id: trial for trial in chunk}, unsuitable or {}, enqueued)
        added = set(enqueued.added)
        return replace(enqueued, present=[id for id in dict.fromkeys(enqueued.present) if id not in added])

    def add_requests(self, requests: Iterable[Request]) -> int:
        """Store requests, all or none; idempotent. Return the number of new ones."""
        with writing(self.engine) as connection:
            return add_requests(connection, requests)

    def states(self, ids: Sequence[str] | None = None) -> dict[str, TrialRow]:
        """Return the rows of the trials in the order of `ids`, omitting unknown ones; None: of all, oldest first."""
        query = select(*(Trials.c[name] for name in TrialRow.__dataclass_fields__))
        with reading(self.engine) as connection:
            ordered = query.order_by(Trials.c.created_at, Trials.c.id)
            rows = connection.execute(ordered if ids is None else query.where(in_list(connection, Trials.c.id, ids)))
            by_id = {row.id: TrialRow(*row) for row in rows}
        return by_id if ids is None else {id: by_id[id] for id in ids if id in by_id}

    def counts(self, ids: Sequence[str] | None = None) -> dict[TrialState, int]:
        """Return the number of trials in each state, including states without trials."""
        query = select(Trials.c.state, func.count()).group_by(Trials.c.state)
        with reading(self.engine) as connection:
            if ids is not None:
                query = query.where(in_list(connection, Trials.c.id, ids))
            counts: dict[TrialState, int] = dict(connection.execute(query).all())
        return {state: counts.get(state, 0) for state in TRIAL_STATES}

    def kinds(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the task, model and data of trials as one text, omitting unknown ones."""
        kind = Configs.c.task + " " + Configs.c.model + " " + Configs.c.data
        query = select(Trials.c.id, kind).join(Configs, Configs.c.id == Trials.c.config_id)
        with reading(self.engine) as connection:
            kinds: dict[str, str] = dict(connection.execute(query.where(in_list(connection, Trials.c.id, ids))).all())
        return kinds

    def trials(self, ids: Sequence[str]) -> dict[str, Trial]:
        """Return the trials with these ids, in the order of `ids`, omitting unknown ones."""
        query = select(*Trials.c["id", "config_id", "seed", "weights"])
        with reading(self.engine) as connection:
            rows = connection.execute(query.where(in_list(connection, Trials.c.id, ids))).all()
            config_ids = in_list(connection, Configs.c.id, {row.config_id for row in rows})
            configs = dict(connection.execute(select(Configs.c.id, Configs.c.config).where(config_ids)).all())
        validated: dict[tuple[str, str | None], Trial] = {}
        trials: dict[str, Trial] = {}
        for id, config_id, seed, weights in rows:
            trial = validated.get((config_id, weights))
            if trial is None:
                trial = validated[config_id, weights] = load_trial(configs[config_id], seed, weights)
            trials[id] = trial if trial.seed == seed else trial.model_copy(update={"seed": seed})
        return {id: trials[id] for id in ids if id in trials}

    def suites(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the suites that contain these trials by trial id, omitting trials of no suite."""
        suites: dict[str, list[str]] = {}
        query = select(MEMBERS.c.trial, MEMBERS.c.suite).order_by(MEMBERS.c.suite)
        with reading(self.engine) as connection:
            for id, suite in connection.execute(query.where(in_list(connection, MEMBERS.c.trial, ids))):
                suites.setdefault(id, []).append(suite)
        return suites

    def find(self, filter: str | None) -> list[str]:
        """Return the ids of the trials that match a filter (`db.store.filters`), oldest first; None matches all."""
        with reading(self.engine) as connection:
            query = select(Trials.c.id).order_by(Trials.c.created_at, Trials.c.id)
            clauses = filters.parse(connection, (filter or "").split()).clauses
            return list(connection.scalars(query.where(*clauses)))

    def attempted(self, filter: str) -> set[str]:
        """Return the ids of the trials that match a filter and have an attempt in the database."""
        with reading(self.engine) as connection:
            if connection.scalar(select(Attempts.c.trial_id).limit(1)) is None:  # though a million trials may match
                return set()
            clauses = filters.parse(connection, filter.split()).clauses
            query = select(Attempts.c.trial_id).join(Trials).where(Attempts.c.number == 1, *clauses)
            return set(connection.scalars(query))

    def intend(self, ids: Sequence[str], submission: SubmissionRow) -> list[str]:
        """Claim the queued trials among `ids` for a submission, and store the submission unless there are none.

        Two processes never claim the same trial.
        """
        with writing(self.engine) as connection:
            query = select(Trials.c.id).where(in_list(connection, Trials.c.id, ids), Trials.c.state == "queued")
            queued = set(connection.scalars(query))
            claimed = [id for id in dict.fromkeys(ids) if id in queued]
            if claimed:
                connection.execute(insert(Submissions).values(**asdict(submission)))
                _set(connection, claimed, state="submitted", reason=None, submission_id=submission.id)
        return claimed

    def submitted(self, submission_id: str, job_id: str | None) -> None:
        """Mark a submission as accepted by the executor."""
        self._update_submission(submission_id, state="submitted", job_id=job_id)

    def end_submission(self, submission_id: str) -> None:
        """Mark a submission as ended: nothing of it runs any more."""
        self._update_submission(submission_id, state="ended", ended_at=utc_now_iso())

    def _update_submission(self, submission_id: str, **values: Any) -> None:
        with writing(self.engine) as connection:
            connection.execute(update(Submissions).where(Submissions.c.id == submission_id).values(**values))

    def open_submissions(self) -> list[SubmissionRow]:
        """Return the submissions that have not ended, oldest first."""
        query = select(Submissions).where(Submissions.c.state != "ended")
        with reading(self.engine) as connection:
            rows = connection.execute(query.order_by(Submissions.c.created_at, Submissions.c.id)).mappings()
            return [SubmissionRow(**row) for row in rows]

    def set_states(
        self, states: Mapping[str, tuple[TrialState, str | None]], only_from: set[TrialState] | None = None
    ) -> list[str]:
        """Set states, only of trials in one of the states `only_from` if given. Return the ids that changed."""
        with writing(self.engine) as connection:
            query = select(Trials.c.id, Trials.c.state).where(in_list(connection, Trials.c.id, states))
            eligible = {id for id, state in connection.execute(query) if only_from is None or state in only_from}
            changed = [id for id in states if id in eligible]
            by_value: dict[tuple[TrialState, str | None], list[str]] = {}
            for id in changed:
                by_value.setdefault(states[id], []).append(id)
            for (state, reason), ids in by_value.items():
                submission = {"submission_id": None} if state == "queued" or state in FINAL_STATES else {}
                _set(connection, ids, state=state, reason=reason, **submission)
        return changed

    def record(self, records: Iterable[RunRecord]) -> None:
        """Store the content of run directories, all or none; idempotent."""
        with writing(self.engine) as connection:
            for chunk in chunks(records):
                record(connection, chunk)


def _enqueue(
    connection: Connection, trials: Mapping[str, Trial], unsuitable: Mapping[str, str], enqueued: Enqueued
) -> None:
    """Queue trials by their ids, and add to the ids of `enqueued`."""
    query = select(*Trials.c["id", "state", "weights"]).where(in_list(connection, Trials.c.id, trials))
    existing = {id: (state, weights) for id, state, weights in connection.execute(query)}
    new = [trial for id, trial in trials.items() if id not in existing]
    add_configs(connection, trials.values(), move_data=True)
    add_trials(connection, new)
    unqueued = [id for id, (state, _) in existing.items() if state in ("cancelled", "skipped")]
    if unqueued:
        _set(connection, unqueued, state="queued", reason=None, submission_id=None)
    by_reason: dict[str, list[str]] = {}
    for id in (*(trial.id for trial in new), *unqueued) if unsuitable else ():
        if reason := unsuitable.get(trials[id].config_id):
            by_reason.setdefault(reason, []).append(id)
    for reason, ids in by_reason.items():
        _set(connection, ids, state="skipped", reason=reason)
        enqueued.skipped.extend(ids)
    for id, (_, path) in existing.items():
        weights = trials[id].weights
        if weights is not None and weights.path != path:  # the same weights, moved
            _set(connection, [id], weights=weights.path)
    enqueued.added.extend(trial.id for trial in new)
    enqueued.present.extend(id for id in trials if id in existing)
    enqueued.requeued.extend(id for id in unqueued if trials[id].config_id not in unsuitable)


def _set(connection: Connection, ids: Sequence[str], **values: Any) -> None:
    query = update(Trials).where(in_list(connection, Trials.c.id, ids))
    connection.execute(query.values(**values, updated_at=utc_now_iso()))
