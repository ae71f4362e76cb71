"""Workers in this process, with the real engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.worker.worker import Worker
from tests.jobs.worker.training import Work
from tests.jobs.workplace import Workplace


@pytest.fixture
def work(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Return a function that creates a worker for trials, with their run directories."""
    import torch

    threads = torch.get_num_threads()
    monkeypatch.setenv("TINY_PAUSE", str(place.pause))
    monkeypatch.setenv("TINY_FAULT", str(place.trouble))
    folder = place.folder / "submission"
    folder.mkdir()

    def make(trials: list[Trial], submission: str = "s1", **changes: Any) -> Worker:
        settings = replace(place.settings, **{"device": "cpu", **changes})
        directories = [str(RunDirectory.create(settings.runs, trial).path) for trial in trials]
        return Worker(directories, settings.to_payload(), submission=submission, folder=str(folder), executor="local")

    yield make
    torch.set_num_threads(threads)
