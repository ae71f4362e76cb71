"""Cells with a sweep, and results of their candidates, recorded without any training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store
from dropbench.db.tuning.propose import propose
from dropbench.db.tuning.select import Selection
from dropbench.db.tuning.select import select as select_stored
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.request import RequestedCandidate, RequestedCell
from dropbench.harness.suites.search_space import Params, parse_search, parse_space
from dropbench.harness.suites.suite import parse_suite
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.request import candidate_of

SUITE: dict[str, Any] = {
    "title": "t",
    "source": "s",
    "metric": "accuracy",
    "trial": {"task": "tiny", "data": "tiny", "model": "tiny"},
    "columns": [{"label": "Tiny"}],
    "rows": [{"label": "dropkey", "trial": {"regularizer": "dropkey"}}],
    "presets": {"mini": {"seeds": 2}},
}
ACCURACY = Metric("accuracy")
HERE = Settings()


TRIALS: dict[str, Trial] = {}
"""The trials of all candidates that `select` has returned."""


def select(swept: RequestedCell, settings: Settings, store: Store) -> Selection:
    """Return the state of a cell as its request or its search has it."""

    def make(params: Params) -> RequestedCandidate:
        own = swept.with_params(params).trials(settings)
        TRIALS.update({trial.id: trial for trial in own})
        return candidate_of(params, own)

    sweep, metrics = swept.sweep, spec_of("tiny").metrics
    assert sweep is not None
    if not sweep.is_grid:
        return propose(swept, make, metrics, store)
    stored = swept.model_copy(update={"candidates": tuple(map(make, sweep.grid()))})
    return select_stored(stored, metrics, store)


def cell(*space: str, search: str = "sampler=grid", seeds: int = 2) -> RequestedCell:
    suite = parse_suite(SUITE, "mine", "mine.yaml")
    choice = SuiteOptions(sweep=parse_space(space), search=parse_search(search), seeds=tuple(range(seeds)))
    (cell,) = suite.cells(choice)
    return RequestedCell(**dict(cell), measured=ACCURACY)


def write(
    store: Store, trial: Trial, dev: float | None, test: float = 0.0, curve: Sequence[float] = (), **fields: Any
) -> None:
    points: list[tuple[str, int, float | None]] = [
        ("dev/accuracy", 10 * number, value) for number, value in enumerate(curve, 1)
    ]
    state = fields.pop("state", "succeeded")
    if state == "succeeded":
        points += [("dev/accuracy", -1, dev), ("test/accuracy", -1, test), ("dev/loss", -1, test)]
    store.record([RunRecord(trial, state, fields.pop("reason", None), [], points)])
