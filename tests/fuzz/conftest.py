"""A campaign of tiny trials, two of which have a result, and the check that hostile input leaves it as it was."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials import plugins
from dropbench.harness.trials.task import TASKS
from dropbench.jobs.queue.request import request_suite
from tests.fuzz.hostile import call
from tests.jobs.workplace import PLUGIN, SUITE


def state() -> Any:
    """Return the states of the campaign's trials and its results."""
    counts = json.loads(call("status", "--json").out)
    return counts | {"as_of": None}, json.loads(call("results", "--format", "json").out)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The working folder, with the suite tiny.yaml, its run directories and its database."""
    folder = tmp_path_factory.mktemp("outer") / "middle" / "campaign"
    folder.mkdir(parents=True)
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("DROPBENCH_")]:
            patch.delenv(name)
        patch.setenv("DROPBENCH_PLUGINS", str(PLUGIN))
        patch.setenv("DROPBENCH_DEBUG", "1")  # an error of unknown cause is a fault
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        patch.chdir(folder)
        Path("tiny.yaml").write_text(SUITE, encoding="utf-8")
        assert call("enqueue", "tiny.yaml").code == 0
        requested = request_suite(load_suite("tiny.yaml"), SuiteOptions(), Settings.from_environment())
        for number, trial in enumerate(requested.trials.values()):
            directory = RunDirectory.create(Path("runs"), trial)
            if number < 2:
                directory.write_result({"metrics": {"test/accuracy": 80.0 + number}, "format": 1})
        assert call("db", "rebuild").code == 0
        before = state()
        yield folder
        assert state() == before
    del TASKS._entries["tiny"], plugins._loaded[str(PLUGIN)]
