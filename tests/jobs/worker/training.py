"""The state of trials while workers train them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dropbench.jobs.worker.worker import Worker
from tests.jobs.workplace import Workplace
from tests.patience import wait

Work = Callable[..., Worker]
"""The fixture `work`: creates a worker for trials."""


def states(place: Workplace) -> dict[str, list[str]]:
    """Return the states of the attempts, by trial."""
    return {id: [attempt["state"] for attempt in attempts] for id, attempts in place.attempts().items()}


def run_when_training(place: Workplace, act: Callable[[], object]) -> threading.Thread:
    """Hold the next trial in training, start a thread that calls `act` meanwhile, and let the trial go on."""
    place.pause.write_text("hold")

    def wait_and_act() -> None:
        wait(place.running, "a trial in training")
        act()
        place.pause.write_text("0.02")

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    return thread
