"""What the active trials are doing now, read from their run directories; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from db.store import Store
from harness.settings import Settings
from harness.trial import TrialState
from jobs.attempts import now
from jobs.collect import look
from jobs.progress import pace
from jobs.status import Status, tally


@dataclass(frozen=True)
class Working:
    """A trial that runs.

    Attributes:
        step, steps: done, and in all; None before the first are.
        rate: steps a second lately.
        seconds: until the training ends at that rate.
        loss: of the last train event.
        at: when that was, seconds since 1970.
    """

    id: str
    step: int | None = None
    steps: int | None = None
    rate: float | None = None
    seconds: float | None = None
    loss: float | None = None
    at: float | None = None


@dataclass(frozen=True)
class Activity:
    """All active trials as they are.

    Attributes:
        status: the counts by true state.
        states: state and reason by id, of the trials that the database takes for submitted or running.
        working: those of them that run.
    """

    status: Status
    states: Mapping[str, tuple[TrialState, str | None]]
    working: list[Working]


def activity(store: Store, settings: Settings) -> Activity:
    """Look at every active trial.

    Args:
        store: the database, which may be open for reading alone.
        settings: where the runs are.
    """
    as_of = now()
    counts = store.counts()
    found = look(store, settings)
    states = {id: (verdict.state, verdict.reason) for id, (_, _, verdict) in found.items()}
    running = [id for id, (state, _) in states.items() if state == "running"]
    return Activity(tally(as_of, counts, found), states, [_working(id, settings) for id in running])


def _working(id: str, settings: Settings) -> Working:
    found = pace(settings.runs / id)
    if found is None:
        return Working(id)
    left = (found.steps - found.step) / found.rate if found.rate and found.steps is not None else None
    return Working(id, found.step, found.steps, found.rate, left, found.loss, found.at)
