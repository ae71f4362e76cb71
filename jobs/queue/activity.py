"""The active trials and the progress of the running ones, read from their run directories without changing anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from db.store.store import Store
from harness.clock import utc_now_iso
from harness.settings import Settings
from harness.trials.trial import TrialState
from jobs.queue.reconcile import inspect_active
from jobs.queue.status import Status, correct_counts
from jobs.queue.train_events import TrainProgress, train_progress


@dataclass(frozen=True)
class Activity:
    """All active trials at one time.

    Attributes:
        status: the counts by true state.
        states: state and reason by id, of the trials that the database lists as submitted or running.
        running: the progress of the running trials.
    """

    status: Status
    states: Mapping[str, tuple[TrialState, str | None]]
    running: list[TrainProgress]


def activity(store: Store, settings: Settings) -> Activity:
    """Inspect every active trial. The database may be read-only."""
    as_of = utc_now_iso()
    counts = store.counts()
    active = inspect_active(store, settings)
    states = {id: (trial.observed.state, trial.observed.reason) for id, trial in active.items()}
    running = [train_progress(settings.runs / id) for id, (state, _) in states.items() if state == "running"]
    return Activity(correct_counts(as_of, counts, active), states, running)
