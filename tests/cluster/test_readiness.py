"""`dropbench doctor --profile`: a job of the profile reports what its processes find on their nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.patience import wait

if TYPE_CHECKING:
    from tests.cluster.conftest import ClusterPlace

COMMAND = ("doctor", "--suite", "tiny.yaml", "--preset", "mini", "--json", "--profile")


def test_two_nodes_that_communicate(clustered: ClusterPlace) -> None:
    done = clustered.call(*COMMAND, "spread")
    findings = {finding["what"]: finding for finding in json.loads(done.stdout)}
    assert done.returncode == 0, done.stderr
    assert {what: finding["state"] for what, finding in findings.items()} == {
        "profile": "ok", "sacct": "ok", "data here": "ok", "trials": "ok", "time of tiny on tiny": "unchecked",
        "GPUs": "ok", "communication": "ok", "data of tiny on tiny": "unchecked", "disk": "ok",
    }  # fmt: skip
    assert findings["communication"]["detail"].startswith("gloo over 2 processes: ")
    assert findings["GPUs"]["detail"].startswith("0 per node on node1, node2")
    assert findings["trials"]["detail"] == "4 trials, random weights, which need no file"
    assert not list((clustered.runs / ".submitit").glob("dropbench-doctor-*"))


def test_a_job_that_ends_before_its_check_is_reported_with_its_log(clustered: ClusterPlace) -> None:
    done = clustered.call(*COMMAND, "broken")
    assert done.returncode == 1
    (finding,) = (finding for finding in json.loads(done.stdout) if finding["what"] == "job")
    assert "1 of 1 processes of the job did not report: module: no such thing" in finding["detail"]


def test_a_job_that_no_node_can_run_is_reported_at_once(clustered: ClusterPlace) -> None:
    done = clustered.call(*COMMAND, "single")
    assert done.returncode == 1
    (finding,) = (finding for finding in json.loads(done.stdout) if finding["what"] == "job")
    assert "SLURM never starts the job (PartitionConfig): change the profile" in finding["detail"]
    wait(lambda: not clustered.cluster.run("squeue", "--noheader"), "an empty queue")
