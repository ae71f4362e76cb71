"""Jobs that SLURM refuses, loses or never starts, and a SLURM that does not answer."""

from __future__ import annotations

import os
import signal

from tests.cluster.conftest import LONE, ClusterPlace
from tests.cluster.fault_checks import Metrics, check, name, reason, worker
from tests.patience import wait


def test_the_controller_restarts(clustered: ClusterPlace, undisturbed: Metrics) -> None:
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
    """SLURM cancels a job whose dependency can never be satisfied."""
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
    """SLURM refuses an array of eight: submit as many jobs as it accepts, and leave the rest queued."""
    (clustered.folder / "eight.yaml").write_text(LONE.replace("seeds: 1", "seeds: 8").replace("steps: 300", "steps: 5"))
    clustered.pause.write_text("0")
    assert clustered.call("enqueue", "eight.yaml").returncode == 0
    for given, waiting in ((3, 5), (3, 2)):
        done = clustered.call("submit", "--executor=slurm", "--profile=few")
        assert done.returncode == 0, done.stderr
        counts = f"Submitted {given} trials to {given} jobs, {waiting} trials still queued"
        assert done.stdout.startswith(f"{counts} (sbatch refuses: ")
        assert "QOSMaxSubmitJobPerUserLimit" in done.stdout
        assert clustered.ended()["queued"] == waiting
        wait(lambda: not clustered.cluster.run("squeue", "--noheader"), "the jobs' end")
    done = clustered.call("submit", "--executor=slurm", "--profile=few")
    assert done.stdout == "Submitted 2 trials to 2 jobs. Follow them with `dropbench status --watch`.\n"
    assert clustered.ended()["succeeded"] == 8
