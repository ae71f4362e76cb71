"""Fixtures of workplaces, of tiny trials created in this process, and of fake SLURM programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dropbench.db.store.store import Store, open_store
from dropbench.harness.settings import Settings
from dropbench.harness.trials import plugins
from dropbench.harness.trials.plugins import load_plugins, plugin_digests
from dropbench.harness.trials.result_versions import with_current_versions
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.jobs.queue.operations import enqueue
from tests.jobs.workplace import PLUGIN, Programs, Tiny, Workplace
from tests.requests import requested


@pytest.fixture(scope="session")
def workplace() -> Iterator[Callable[[Path], Workplace]]:
    """Return a function that creates a workplace in a folder; its processes are ended at the end of the session."""
    workplaces: list[Workplace] = []

    def make(folder: Path) -> Workplace:
        workplaces.append(Workplace(folder))
        return workplaces[-1]

    yield make
    for created in workplaces:
        created.clean()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    created = Workplace(tmp_path)
    yield created
    created.clean()


@pytest.fixture
def tiny() -> Iterator[Tiny]:
    """Return a function that creates tiny trials; keyword arguments are fields of the request, for `seeds` seeds."""
    load_plugins([PLUGIN])

    def make(seeds: int = 1, **fields: Any) -> list[Trial]:
        request = TrialRequest(**{"task": "tiny", "data": "tiny", "model": "tiny", **fields})
        task = TASKS.get("tiny")
        requests = (request.model_copy(update={"seed": seed}) for seed in range(seeds))
        trials = (task.trial_for(each, Settings()) for each in requests)
        digests = {"plugins": plugin_digests((TASKS, "tiny"))}
        return [with_current_versions(trial.model_copy(update=digests)) for trial in trials]

    yield make
    # Other tests iterate over everything registered.
    del TASKS._entries["tiny"], plugins._loaded[str(PLUGIN)]


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a GPU, on which Triton is not interpreted either."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("dropbench.harness.attention.kernels.triton_launch.interpreted", lambda: False)


@pytest.fixture
def store(place: Workplace) -> Iterator[Store]:
    with open_store(place.database) as opened:
        yield opened


@pytest.fixture
def queue(place: Workplace, store: Store, tiny: Tiny) -> Store:
    """Return a database with four queued trials."""
    enqueue(store, place.settings, requested("tiny", *tiny(seeds=4)))
    return store


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Return a function that replaces all programs on PATH by shell scripts; a script of None removes one."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(**scripts: str | None) -> None:
        for program, script in scripts.items():
            if script is None:
                (folder / program).unlink(missing_ok=True)
            else:
                (folder / program).write_text(f"#!/bin/sh\n{script}\n")
                (folder / program).chmod(0o755)

    make(srun="", sbatch="echo 71", squeue="", scancel="")
    return make
