"""Fixtures of workplaces and of tiny trials made in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import plugins
from harness.plugins import load_plugins
from harness.settings import Settings
from harness.task import TASKS
from harness.trial import Trial, TrialRequest
from tests.jobs.workplace import PLUGIN, Workplace


@pytest.fixture(scope="session")
def workplace() -> Iterator[Callable[[Path], Workplace]]:
    """Makes a workplace in a folder; what still runs there at the end is ended."""
    made: list[Workplace] = []

    def make(folder: Path) -> Workplace:
        made.append(Workplace(folder))
        return made[-1]

    yield make
    for place in made:
        place.clean()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Workplace]:
    made = Workplace(tmp_path)
    yield made
    made.clean()


@pytest.fixture
def tiny() -> Iterator[Callable[..., list[Trial]]]:
    """Makes tiny trials in this process: keyword arguments are fields of the request; `seeds` of each."""
    load_plugins([PLUGIN])

    def make(seeds: int = 1, **fields: Any) -> list[Trial]:
        request = TrialRequest(**{"task": "tiny", "data": "tiny", "model": "tiny", **fields})
        task = TASKS.get("tiny")
        return [task.trial_for(request.model_copy(update={"seed": seed}), Settings()) for seed in range(seeds)]

    yield make
    # Other tests go through all that is registered.
    del TASKS._entries["tiny"], plugins._loaded[str(PLUGIN)]
