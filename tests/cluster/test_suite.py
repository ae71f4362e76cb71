"""A suite on a real SLURM, from one command to its table."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from typing import TYPE_CHECKING

from tests.jobs.test_plug_in_versions import SUITE, write
from tests.patience import wait

if TYPE_CHECKING:
    from tests.cluster.conftest import ClusterPlace


def test_forty_trials_as_one_array_with_a_throttle(clustered: ClusterPlace) -> None:
    clustered.submit("tiny.yaml", "--parallel=8", seeds=20)
    # The process that submitted them has ended.
    running_jobs: list[int] = []

    def all_succeeded() -> bool:
        running = clustered.cluster.run("squeue", "--noheader", "--array", "--states=RUNNING", "--format=%i").split()
        running_jobs.append(len(running))
        status = clustered.look()
        assert sum(status[state] for state in ("submitted", "running", "succeeded")) == 40
        assert status["as_of"]
        return bool(status["succeeded"] == 40)

    wait(all_succeeded, "forty trials", pause=0.2)
    assert 1 < max(running_jobs) <= 8
    watched = clustered.call("status", "--watch")
    assert watched.returncode == 0
    assert watched.stdout.splitlines()[-1] == "40 succeeded"
    rows = json.loads(clustered.call("results", "--json").stdout)
    assert {row["n"] for row in rows} == {20}
    assert {row["state"] for row in rows} == {"succeeded"}
    assert Counter(len(attempts) for attempts in clustered.attempts().values()) == {1: 40}
    jobs = {attempts[0]["job_id"] for attempts in clustered.attempts().values()}
    assert len(jobs) == 40
    assert len({job.partition("_")[0] for job in jobs}) == 1, "one array"
    again = clustered.call("submit", "--executor=slurm")
    assert "Nothing is queued" in again.stdout
    clustered.ok("run", "tiny.yaml", "--seeds=20")
    assert Counter(len(attempts) for attempts in clustered.attempts().values()) == {1: 40}


def test_own_regularizers_are_trained_as_requested(clustered: ClusterPlace) -> None:
    """Though the file was edited and then deleted before the jobs start."""
    file = clustered.folder / "my.py"
    (clustered.folder / "s.yaml").write_text(SUITE)
    for version in (1, 2):
        write(file, version)
        clustered.ok("enqueue", "s.yaml", "--seeds=1", "--plugin", "my.py")
    file.unlink()
    shutil.rmtree(clustered.folder / "parts")
    clustered.ok("submit", "--executor=slurm", "--profile=default")
    assert clustered.ended()["succeeded"] == 3
    rows = json.loads(clustered.call("results", "regularizer=value-mix", "--metric=train/loss", "--json").stdout)
    assert len({(row["result_versions"], row["mean"]) for row in rows}) == 2
