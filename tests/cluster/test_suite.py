"""A suite on a real SLURM, from one command to its table."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

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
