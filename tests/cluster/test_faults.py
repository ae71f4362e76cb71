"""What can happen to a job on a real SLURM: the state that is shown, the cause, and that nothing is lost or doubled."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cluster.cluster import descendants, wait

if TYPE_CHECKING:
    from harness.rundir import RunDirectory
    from tests.cluster.conftest import ClusterPlace

pytestmark = pytest.mark.timeout(600)
Metrics = dict[str, dict[str, Any]]


def check(place: ClusterPlace, directory: RunDirectory, undisturbed: Metrics, *states: str) -> list[dict[str, Any]]:
    """The trial was run to its end once, to the undisturbed result, by attempts that ended in these states."""
    assert {one.id: (one.result() or {})["metrics"] for one in place.directories()} == undisturbed
    attempts = directory.attempts()
    assert [attempt["state"] for attempt in attempts] == list(states)
    ends = [event for event in directory.events() if event["event"] == "end"]
    assert len(ends) == 1
    rows = place.call("results", "--json").stdout
    assert '"state": "succeeded"' in rows
    return attempts


def worker(directory: RunDirectory) -> int:
    """The process that trains."""
    return int(directory.attempts()[-1]["pid"])


def job_of(directory: RunDirectory) -> str:
    return str(directory.attempts()[-1]["job_id"])


def reason(place: ClusterPlace) -> str:
    """Of the state of the only trial."""
    from db.store import open_store

    with open_store(place.database) as store:
        (row,) = store.states().values()
    return row.reason or ""


def test_a_program_error_is_told_and_not_tried_again(clustered: ClusterPlace) -> None:
    clustered.trouble.write_text("raise 5")
    clustered.submit("lone.yaml")
    assert clustered.ended()["failed"] == 1
    assert "ZeroDivisionError: the tiny task divides by zero" in reason(clustered)
    again = clustered.call("submit", "--executor=slurm")
    assert "nothing is queued" in again.stdout


def test_a_killed_worker_goes_on_from_its_checkpoint(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone()
    os.kill(worker(directory), signal.SIGKILL)
    assert clustered.finish()["queued"] == 1
    assert "its process ended without a word" in directory.attempts()[0]["cause"]
    assert clustered.call("submit", "--executor=slurm").returncode == 0
    assert clustered.ended()["succeeded"] == 1
    attempts = check(clustered, directory, undisturbed, "lost", "succeeded")
    assert attempts[0]["steps_done"] > 0


def test_cancelled_by_scancel_it_is_cancelled_here(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone()
    clustered.cluster.run("scancel", job_of(directory))
    assert clustered.finish()["cancelled"] == 1
    assert reason(clustered) == "cancelled on the cluster"
    assert clustered.call("retry", "cancelled").returncode == 0
    assert clustered.call("submit", "--executor=slurm").returncode == 0
    assert clustered.ended()["succeeded"] == 1
    check(clustered, directory, undisturbed, "interrupted", "succeeded")


def test_an_element_that_waits_is_cancelled(clustered: ClusterPlace) -> None:
    clustered.pause.write_text("0.5")
    clustered.submit("tiny.yaml", "--max-parallel=1", "--checkpoint-seconds=0.5", seeds=1)
    first = clustered.training()
    job, _, element = job_of(first).partition("_")
    clustered.cluster.run("scancel", f"{job}_{1 - int(element)}")
    found = clustered.finish()
    assert (found["succeeded"], found["cancelled"]) == (1, 1)


def test_cancelled_by_dropbench(clustered: ClusterPlace) -> None:
    clustered.pause.write_text("0.5")
    clustered.submit("tiny.yaml", "--max-parallel=1", "--checkpoint-seconds=0.5", seeds=1)
    clustered.training()
    done = clustered.call("cancel", "tiny")
    assert done.returncode == 0, done.stderr
    assert clustered.ended()["cancelled"] == 2
    wait(lambda: not clustered.cluster.run("squeue", "--noheader"), "an empty queue")


def test_at_its_time_limit_it_is_requeued_with_a_checkpoint(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone(profile="short", pause=0.2)  # a minute in all; the signal comes before its end
    wait(lambda: len(directory.attempts()) == 2, "the second attempt", patience=120)
    assert clustered.finish()["succeeded"] == 1
    attempts = check(clustered, directory, undisturbed, "preempted", "succeeded")
    assert attempts[0]["cause"] == "stopped by SIGUSR2"
    assert attempts[0]["job_id"] == attempts[1]["job_id"]


def test_requeued_from_outside(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone()
    clustered.cluster.run("scontrol", "requeue", job_of(directory))
    wait(lambda: len(directory.attempts()) == 2, "the second attempt", patience=120)
    assert clustered.finish()["succeeded"] == 1
    check(clustered, directory, undisturbed, "interrupted", "succeeded")


@pytest.mark.parametrize("profile", ["low", "abrupt"])
def test_preempted(clustered: ClusterPlace, undisturbed: Metrics, profile: str) -> None:
    directory = clustered.lone(profile=profile)
    urgent = ["sbatch", "--parsable", "--partition=high", "--nodes=4", "--exclusive", "--wrap=sleep 3"]
    clustered.cluster.run(*urgent)
    wait(lambda: len(directory.attempts()) == 2, "the second attempt", patience=120)
    assert clustered.finish()["succeeded"] == 1
    attempts = check(clustered, directory, undisturbed, directory.attempts()[0]["state"], "succeeded")
    assert attempts[0]["state"] in ("preempted", "interrupted")


def test_a_lost_node(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone()
    node = clustered.cluster.run("squeue", "--noheader", "--format=%N").strip()
    clustered.cluster.lose_node(node)
    try:
        wait(lambda: len(directory.attempts()) == 2, "the second attempt", patience=150)
        assert clustered.finish()["succeeded"] == 1
    finally:
        clustered.cluster.start_node(node)
        clustered.cluster.wait_for_nodes()
    attempts = check(clustered, directory, undisturbed, "node_failure", "succeeded")
    assert attempts[0]["cause"] == f"the node failed: {node}"


def test_an_orphan_is_left_to_its_work(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone(pause=0.3)
    node = clustered.cluster.run("squeue", "--noheader", "--format=%N").strip()
    pid = worker(directory)
    clustered.cluster.kill_slurmd(node)
    try:
        wait(
            lambda: clustered.cluster.run("squeue", "--noheader", "--format=%T %N").split() not in (["RUNNING", node],),
            "the node to be missed",
            patience=120,
        )
        assert Path(f"/proc/{pid}").exists()
        assert clustered.finish()["succeeded"] == 1
    finally:
        for step in clustered.cluster.steps(node):
            for child in [*descendants(step), step]:
                os.kill(child, signal.SIGKILL)
        clustered.cluster.start_node(node)
        clustered.cluster.wait_for_nodes()
    check(clustered, directory, undisturbed, "succeeded")


def test_out_of_memory(clustered: ClusterPlace) -> None:
    clustered.trouble.write_text("hog 5")
    clustered.submit("lone.yaml")
    found = clustered.ended()
    (directory,) = clustered.directories()
    assert found["failed"] == 1, directory.attempts()
    assert directory.attempts()[0]["state"] == "out_of_memory"
    assert "killed for its memory" in reason(clustered)


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


def test_a_deleted_run_directory(clustered: ClusterPlace) -> None:
    import shutil

    directory = clustered.lone()
    shutil.rmtree(directory.path, ignore_errors=True)
    clustered.pause.write_text("0")
    wait(lambda: clustered.status()["running"] == 0, "the end of the worker", patience=60)
    time.sleep(1)
    assert clustered.ended()["queued"] == 1
