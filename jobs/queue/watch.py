"""Follow the trials until none is active: the work of `dropbench status --watch`."""

from __future__ import annotations

import json
import sys
import time

from dropbench.db.store.store import Store
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import TrialState
from dropbench.jobs.queue.progress_bar import ProgressBar
from dropbench.jobs.queue.reconcile import ACTIVE, collect
from dropbench.jobs.queue.status import list_counts, read_status

INTERVAL_S = 2.0
"""Least time between two inspections."""
MAX_SHARE = 0.1
"""Share of the time that inspecting takes: where it is slow, the next one is later."""


def watch(store: Store, settings: Settings, *, as_json: bool = False) -> int:
    """Print the counts whenever they change, and the progress of the active trials, until none is active.

    With `as_json`, print the counts only, as a line of JSON. Return the number of queued trials.
    """
    previous: dict[TrialState, int] = {}
    trials = store.trials(store.find(ACTIVE))
    with ProgressBar(settings.runs, trials, set(), bars=not as_json, file=sys.stdout) as bar:
        while True:
            start = time.monotonic()
            collect(store, settings)
            if new := [id for id in store.find(ACTIVE) if id not in trials]:
                trials |= store.trials(new)
            if not as_json:
                bar.update(store.states(list(trials)))
            counts = store.counts()
            if counts != previous:
                line = json.dumps(read_status(store, settings).to_json()) if as_json else list_counts(counts)
                bar.print_line(line or "no trials")
                previous = counts
            if not counts["submitted"] and not counts["running"]:
                return counts["queued"]
            time.sleep(max(INTERVAL_S, (time.monotonic() - start) / MAX_SHARE))
