"""Trials that the real engine runs in this process, as submissions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from dropbench.db.store.store import Store, SubmissionRow
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue.reconcile import collect
from dropbench.jobs.worker import slots
from dropbench.jobs.worker.worker import Worker
from tests.jobs.workplace import Workplace
from tests.requests import named


@pytest.fixture
def work(place: Workplace, store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[list[Trial]], str]]:
    """Return a function that runs queued trials with a checkpoint per step, and returns the submission's id."""
    import torch

    threads = torch.get_num_threads()
    monkeypatch.setenv("TINY_FAULT", str(place.trouble))
    number = iter(range(10, 100))

    def run(trials: list[Trial]) -> str:
        id = f"{next(number):032x}"
        folder = slots.jobs_folder(place.runs) / id
        folder.mkdir(parents=True)
        store.enqueue(trials, [named("mine", *trials)])
        ids = store.intend([trial.id for trial in trials], SubmissionRow(id, "local", str(folder), "here", 1))
        store.submitted(id, "77")
        for name in ("77_submitted.pkl", "77_0_result.pkl", "77_0_log.out"):
            (folder / name).write_bytes(b"x" * 10)
        directories = [str(RunDirectory.create(place.runs, trial).path) for trial in trials if trial.id in ids]
        payload = replace(place.settings, device="cpu", checkpoint_seconds=0.0).to_payload()
        Worker(directories, payload, submission=id, folder=str(folder), executor="local")()
        collect(store, place.settings)
        return id

    yield run
    torch.set_num_threads(threads)
