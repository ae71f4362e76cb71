"""A SLURM per process that runs tests of this folder, and workplaces whose command line reaches it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from unittest import mock

import pytest

from dropbench.db.store.store import open_store
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.jobs.queue.status import read_status
from tests.cluster.cluster import Cluster, unusable
from tests.jobs.workplace import HEAD, Workplace
from tests.patience import wait

COMMON = {"partition": "main", "time": 5, "memory": 0.9}
FOUR = {**COMMON, "trials_at_a_time": 4, "memory": 3.6}
PROFILES: dict[str, dict[str, Any]] = {
    "default": {**COMMON, "signal_delay": 10},
    "packed": {**COMMON, "signal_delay": 10, "trials_per_job": 5},
    "abrupt": {**COMMON, "partition": "abrupt"},
    "low": {**COMMON, "partition": "low", "signal_delay": 10},
    "waiting": {
        **COMMON,
        "partition": "low",
        # A Python that has not started when its job is preempted; in the job that SLURM requeues it starts at once.
        "python": f"sh -c 'until [ 0$SLURM_RESTART_COUNT -gt 0 ]; do sleep 0.1; done; exec \"$@\"' sh {sys.executable}",
    },
    "short": {**COMMON, "signal_delay": 25},
    "pair": {**COMMON, "tasks": 2, "memory": 1.8},
    "spread": {**COMMON, "nodes": 2},
    "four": {**FOUR, "signal_delay": 10},
    "short_four": {**FOUR, "signal_delay": 25},
    # SLURM counts a worker twice while it starts a program.
    "few": {**COMMON, "partition": "few", "memory": 1.2},
    "single": {**COMMON, "partition": "single", "nodes": 2},
    "broken": {"setup": ["echo module: no such thing >&2", "exit 3"]},
}

LONE = f"""{HEAD}
rows: [{{label: dropkey, trial: {{regularizer: dropkey, params: {{ratio: 0.3}}}}}}]
presets: {{mini: {{seeds: 1, overrides: {{steps: 300}}}}}}
"""
EXACT = LONE.replace("{regularizer: dropkey, params: {ratio: 0.3}}", "{regularizer: none}").replace(
    "{steps: 300}", "{steps: 300, model.dropout: 0.0}"
)
"""The same without randomness, so that split micro-batches give the same result as whole ones."""

SUITES = {"lone.yaml": LONE, "exact.yaml": EXACT}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Leave all tests of this folder to `make test-all`."""
    item.add_marker(pytest.mark.slow)


class ClusterPlace(Workplace):
    """A workplace on a cluster."""

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        super().__init__(folder)
        self.cluster = cluster
        self.environment |= {name: cluster.environment[name] for name in ("PATH", "SLURM_CONF")}
        tables = (
            "\n".join([f"[profiles.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in profile.items()), ""])
            for name, profile in PROFILES.items()
        )
        (folder / "dropbench.toml").write_text("\n".join(tables))
        for name, text in SUITES.items():
            (folder / name).write_text(text)

    def submit(self, suite: str = "tiny.yaml", *more: str, profile: str = "default", seeds: int | None = None) -> None:
        """Enqueue a suite and submit it, by two command lines that end at once."""
        number = [f"--seeds={seeds}"] if seeds else []
        for words in (["enqueue", suite, *number], ["submit", "--executor=slurm", f"--profile={profile}", *more]):
            self.ok(*words)

    def lone(self, profile: str = "default", pause: float = 0.2, suite: str = "lone.yaml") -> RunDirectory:
        """Submit one trial that takes a while, and return when it is training, some steps after its start."""
        self.pause.write_text(str(pause))
        self.submit(suite, "--checkpoint-seconds=0.5", profile=profile)
        return self.training()

    def training(self, attempts: int = 1) -> RunDirectory:
        """Wait until the attempt of this number has trained for some steps and written a checkpoint."""

        def find_training() -> RunDirectory | None:
            for directory in self.running():
                states = (directory.path / "checkpoint").glob("step-*[1-9]*.pt")
                if len(directory.attempts()) == attempts and any(states):
                    return directory
            return None

        directory: RunDirectory = wait(find_training, f"attempt {attempts} to train")
        return directory

    def finish(self) -> dict[str, Any]:
        """Let the trials train at full speed to their end; return the status after that."""
        self.pause.write_text("0")
        return self.ended()

    def status(self) -> dict[str, Any]:
        """Return the status that a new process reports."""
        done = self.ok("status", "--json", fresh=True)
        status: dict[str, Any] = json.loads(done.stdout)
        return status

    def look(self) -> dict[str, Any]:
        """Return the status as this process sees it, which takes a small part of the time."""
        slurm = {name: self.environment[name] for name in ("PATH", "SLURM_CONF")}
        with mock.patch.dict(os.environ, slurm), open_store(self.database, create=False) as store:
            return dict(read_status(store, self.settings).to_json())

    def ended(self) -> dict[str, Any]:
        """Wait until no trial is active; return the status, which a new process confirms after `collect`."""

        def idle_status() -> dict[str, Any] | None:
            status = self.look()
            return None if status["submitted"] + status["running"] else status

        status: dict[str, Any] = wait(idle_status, "the end of all trials", pause=0.2)
        self.ok("status")
        collected = self.status()
        assert {**collected, "as_of": ""} == {**status, "as_of": ""}, "status and collect disagree"
        return status

    def results(self) -> dict[str, bytes]:
        """Return the content of every result by trial."""
        directories = [directory for directory in self.directories() if directory.result()]
        return {directory.id: (directory.path / "result.json").read_bytes() for directory in directories}


def removed(folder: Path) -> bool:
    """Remove a folder to which a killed process may still write; return whether it is gone."""
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


@contextlib.contextmanager
def running() -> Iterator[Cluster]:
    """Run a cluster while the context lasts; skip the test if this machine cannot run one."""
    reason = unusable()
    if reason is not None:
        pytest.skip(reason)
    folder = Path(mkdtemp(prefix="slurm-", dir="/tmp"))  # it contains sockets: its path is short
    cluster = Cluster(folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        if not os.environ.get("KEEP_CLUSTER"):
            wait(lambda: removed(folder), f"the end of all writers to {folder}")


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with running() as started:
        yield started


@pytest.fixture
def clustered(cluster: Cluster, tmp_path: Path) -> Iterator[ClusterPlace]:
    cluster.wait_for_nodes()
    place = ClusterPlace(tmp_path, cluster)
    yield place
    cluster.run("scancel", "--user=root", check=False)
    place.clean()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The final metrics of the long trials by id, trained on this machine without faults."""
    place = Workplace(tmp_path_factory.mktemp("undisturbed"))
    for name, text in SUITES.items():
        (place.folder / name).write_text(text)
        place.ok("run", name)
    return {directory.id: (directory.result() or {})["metrics"] for directory in place.directories()}
