"""Jobs that SLURM refuses, loses or never starts, and a SLURM that does not answer."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.cluster.conftest import LONE, ClusterPlace
from tests.cluster.fault_checks import Metrics, check, name, reason, worker
from tests.patience import wait

if TYPE_CHECKING:
    pass


def test_the_controller_is_started_anew(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone()
    clustered.cluster.stop_controller()
    during = clustered.status()
    assert during["running"] == 1
    clustered.cluster.start_controller()
    assert clustered.finish()["succeeded"] == 1
    check(clustered, directory, undisturbed, "succeeded")


def test_without_accounting(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone()
    clustered.cluster.stop_accounting()
    try:
        os.kill(worker(directory), signal.SIGKILL)
        assert clustered.finish()["queued"] == 1
    finally:
        clustered.cluster.start_accounting()
    assert clustered.call("submit", "--executor=slurm").returncode == 0
    assert clustered.ended()["succeeded"] == 1
    check(clustered, directory, undisturbed, "lost", "succeeded")


def test_a_request_that_is_refused(clustered: ClusterPlace) -> None:
    assert clustered.call("enqueue", "lone.yaml").returncode == 0
    refused = clustered.call("submit", "--executor=slurm", "--profile=nowhere")
    assert refused.returncode == 2
    assert refused.stderr.startswith("dropbench: sbatch refuses: ")
    assert "invalid partition specified: nowhere" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert clustered.status()["queued"] == 1
    assert not clustered.cluster.run("squeue", "--noheader")


def test_a_job_that_ends_before_its_trial_begins(clustered: ClusterPlace) -> None:
    clustered.submit("lone.yaml", profile="broken")
    assert clustered.ended()["failed"] == 1
    assert reason(clustered) == "its job ended before the trial began: module: no such thing"


def test_what_a_job_waits_for_fails(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    """SLURM takes a job away whose dependency can never be fulfilled."""
    other = clustered.cluster.run("sbatch", "--parsable", "--hold", "--wrap=exit 1").strip()
    blocker = clustered.cluster.run("sbatch", "--parsable", "--nodes=4", "--exclusive", "--wrap=sleep 120").strip()
    wait(lambda: "RUNNING" in clustered.cluster.run("squeue", "-h", "-j", blocker, "-o", "%T"), "a full cluster")
    clustered.submit("lone.yaml")
    job = clustered.cluster.run("squeue", "--noheader", "--states=PENDING", "--name=" + name(clustered), "--format=%F")
    clustered.cluster.run("scontrol", "update", f"jobid={job.strip()}", f"dependency=afterok:{other}")
    clustered.cluster.run("scontrol", "release", other)
    clustered.cluster.run("scancel", blocker)
    assert clustered.ended()["cancelled"] == 1
    assert reason(clustered) == "cancelled on the cluster"
    assert clustered.call("retry", "cancelled").returncode == 0
    assert clustered.call("submit", "--executor=slurm").returncode == 0
    assert clustered.ended()["succeeded"] == 1
    check(clustered, clustered.directories()[0], undisturbed, "succeeded")


def test_a_user_who_may_have_three_jobs(clustered: ClusterPlace) -> None:
    """An array of eight is refused whole: the cluster is given what it takes, and the rest waits for the next time."""
    (clustered.folder / "eight.yaml").write_text(LONE.replace("seeds: 1", "seeds: 8").replace("steps: 300", "steps: 5"))
    clustered.pause.write_text("0")
    assert clustered.call("enqueue", "eight.yaml").returncode == 0
    for given, waiting in ((3, 5), (3, 2)):
        said = clustered.call("submit", "--executor=slurm", "--profile=few")
        assert said.returncode == 0, said.stderr
        counts = f"Submitted {given} trials to {given} jobs, {waiting} trials still queued"
        assert said.stdout.startswith(f"{counts} (sbatch refuses: ")
        assert "QOSMaxSubmitJobPerUserLimit" in said.stdout
        assert clustered.ended()["queued"] == waiting
        wait(lambda: not clustered.cluster.run("squeue", "--noheader"), "the jobs' end")
    said = clustered.call("submit", "--executor=slurm", "--profile=few")
    assert said.stdout == "Submitted 2 trials to 2 jobs. Follow them with `dropbench watch`.\n"
    assert clustered.ended()["succeeded"] == 8
