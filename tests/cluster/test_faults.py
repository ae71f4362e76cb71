"""Faults of jobs on a real SLURM: the reported state and cause, and that no trial is lost or run twice."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from dropbench.harness.runs.run_directory import RunDirectory
from tests.cluster.conftest import LONE, ClusterPlace
from tests.cluster.fault_checks import Metrics, check, check_close, job_of, minutes_left, reason, worker
from tests.patience import wait


def test_a_program_error_is_reported_and_not_retried(clustered: ClusterPlace) -> None:
    clustered.trouble.write_text("raise 5")
    clustered.submit("lone.yaml")
    assert clustered.ended()["failed"] == 1
    assert "ZeroDivisionError: the tiny task divides by zero" in reason(clustered)
    again = clustered.call("submit", "--executor=slurm")
    assert "Nothing is queued" in again.stdout


def test_a_killed_worker_resumes_from_its_checkpoint(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone()
    os.kill(worker(directory), signal.SIGKILL)
    assert clustered.finish()["queued"] == 1
    assert "worker died without reporting an error" in directory.attempts()[0]["cause"]
    clustered.ok("submit", "--executor=slurm")
    assert clustered.ended()["succeeded"] == 1
    attempts = check(clustered, directory, undisturbed, "lost", "succeeded")
    assert attempts[0]["steps_done"] > 0


def test_a_trial_whose_job_is_cancelled_by_scancel(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone()
    clustered.cluster.run("scancel", job_of(directory))
    assert clustered.finish()["cancelled"] == 1
    assert reason(clustered) == "cancelled on the cluster"
    clustered.ok("retry", "cancelled")
    clustered.ok("submit", "--executor=slurm")
    assert clustered.ended()["succeeded"] == 1
    check(clustered, directory, undisturbed, "interrupted", "succeeded")


def test_cancelled_by_dropbench(clustered: ClusterPlace) -> None:
    clustered.pause.write_text("0.5")
    clustered.submit("tiny.yaml", "--parallel=1", "--checkpoint-seconds=0.5", seeds=1)
    clustered.training()
    assert "1 running will stop" in clustered.ok("cancel", "running").stdout
    clustered.ok("cancel", "tiny")
    assert clustered.ended()["cancelled"] == 2
    wait(lambda: not clustered.cluster.run("squeue", "--noheader"), "an empty queue")


def test_at_its_time_limit_it_is_requeued_with_a_checkpoint(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone(profile="short", pause=0.5)
    job = f"jobid={job_of(directory)}"
    # Every 30 s, SLURM signals the jobs that will end within `signal_delay` after its next look: those of this minute.
    clustered.cluster.run("scontrol", "update", job, f"timelimit={minutes_left(directory)}")
    wait(lambda: directory.attempts()[0]["state"] != "running", "the signal")
    clustered.cluster.run("scontrol", "update", job, "timelimit=5")  # or the second attempt might be signaled, too
    wait(lambda: len(directory.attempts()) == 2, "the second attempt")
    assert clustered.finish()["succeeded"] == 1
    attempts = check(clustered, directory, undisturbed, "preempted", "succeeded")
    assert attempts[0]["cause"] == "stopped by SIGUSR2"
    assert attempts[0]["job_id"] == attempts[1]["job_id"]


def test_an_evaluation_goes_on_in_the_next_attempt(clustered: ClusterPlace) -> None:
    """Three evaluations of four batches, none of which an attempt has the time for, end without a `submit`."""
    clustered.trouble.write_text("slow 4")
    batches = clustered.trouble.with_name(f"{clustered.trouble.name}.batches")
    batches.touch()
    (clustered.folder / "evaluated.yaml").write_text(LONE.replace("steps: 300", "steps: 10, evaluate_every: 10"))
    clustered.submit("evaluated.yaml")
    (directory,) = wait(clustered.directories, "the run directory")
    for number in range(1, 4):
        evaluated = len(batches.read_text().split())
        wait(partial(_has_more, batches, evaluated), "a batch of an evaluation")
        clustered.cluster.run("scancel", "--signal=USR2", "--full", job_of(directory))
        wait(partial(_has_attempts, directory, number + 1), "the next attempt")
    assert clustered.ended()["succeeded"] == 1
    assert [attempt["state"] for attempt in directory.attempts()] == [*["preempted"] * 3, "succeeded"]
    assert batches.read_text().split() == [*["dev"] * 8, *["test"] * 4], "a batch was evaluated again"


@pytest.mark.parametrize("profile", ["low", "abrupt"])
def test_preempted(clustered: ClusterPlace, undisturbed: Metrics, profile: str) -> None:
    directory = clustered.lone(profile=profile)
    urgent = ["sbatch", "--parsable", "--partition=high", "--nodes=4", "--exclusive", "--wrap=sleep 3"]
    clustered.cluster.run(*urgent)
    wait(lambda: len(directory.attempts()) == 2, "the second attempt")
    assert clustered.finish()["succeeded"] == 1
    first = directory.attempts()[0]["state"]
    assert first in ("preempted", "interrupted")
    check(clustered, directory, undisturbed, first, "succeeded")


def test_preempted_while_python_starts(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    clustered.pause.write_text("0")
    clustered.submit("lone.yaml", profile="waiting")
    jobs = partial(clustered.cluster.run, "squeue", "--noheader", "--partition=low", "--format=%T")
    wait(lambda: jobs() == "RUNNING\n", "the job")
    wait(lambda: any(map(clustered.cluster.steps, clustered.cluster.names)), "its processes")
    clustered.cluster.run("sbatch", "--partition=high", "--nodes=4", "--exclusive", "--wrap=sleep 3")
    assert clustered.ended()["succeeded"] == 1
    (directory,) = clustered.directories()
    check(clustered, directory, undisturbed, "succeeded")


def test_a_lost_node(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    directory = clustered.lone()
    node = clustered.cluster.run("squeue", "--noheader", "--format=%N").strip()
    clustered.cluster.lose_node(node)
    try:
        wait(lambda: len(directory.attempts()) == 2, "the second attempt")
        assert clustered.finish()["succeeded"] == 1
    finally:
        clustered.cluster.start_node(node)
        clustered.cluster.wait_for_nodes()
    first, second = check(clustered, directory, undisturbed, "node_failure", "succeeded")
    assert first["cause"] == f"the node failed: {node}"
    assert first["node"] == node != second["node"]


def test_out_of_memory(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    """Eight samples at a time take two GiB of one, so that the trial resumes with four."""
    clustered.trouble.write_text("hog 200 0 4")
    clustered.submit("exact.yaml", "--checkpoint-seconds=0")
    assert clustered.ended()["queued"] == 1
    (directory,) = clustered.directories()
    (first,) = directory.attempts()
    assert (first["state"], first["micro_batch_splits"]) == ("out_of_memory", 1), first
    assert "killed: out of memory" in first["cause"]
    clustered.ok("submit", "--executor=slurm")
    assert clustered.ended()["succeeded"] == 1
    second = directory.attempts()[1]
    assert (second["state"], second["micro_batch_splits"]) == ("succeeded", 2)
    resumed = [event["step"] for event in directory.events() if event["event"] == "resume"]
    assert resumed[-1] == 199
    check_close(directory, undisturbed)


def test_a_trial_that_is_preempted_in_its_last_evaluation_trains_no_step_again(
    clustered: ClusterPlace, undisturbed: Metrics
) -> None:
    clustered.trouble.write_text("linger 6")  # at the test set, after the last step
    clustered.submit("lone.yaml", profile="low")
    (directory,) = wait(clustered.directories, "the run directory")
    wait(lambda: any(event.get("step") == 300 for event in directory.events()), "the last step")
    time.sleep(1)
    urgent = ["sbatch", "--parsable", "--partition=high", "--nodes=4", "--exclusive", "--wrap=sleep 3"]
    clustered.cluster.run(*urgent)
    assert clustered.ended()["succeeded"] == 1
    wait(lambda: not clustered.cluster.run("squeue", "--noheader"), "an empty queue")
    assert clustered.status()["succeeded"] == 1
    check(clustered, directory, undisturbed, "preempted", "succeeded")
    trained = [event["step"] for event in directory.events() if event["event"] == "train"]
    assert len(trained) == len({*trained})


def test_a_job_that_ends_before_its_trial_begins(clustered: ClusterPlace) -> None:
    clustered.submit("lone.yaml", profile="broken")
    assert clustered.ended()["failed"] == 1
    assert reason(clustered) == "its job ended before the trial began: module: no such thing"


def test_a_user_who_may_have_three_jobs(clustered: ClusterPlace) -> None:
    """SLURM refuses an array of eight: submit as many jobs as it accepts, and leave the rest queued."""
    (clustered.folder / "eight.yaml").write_text(LONE.replace("seeds: 1", "seeds: 8").replace("steps: 300", "steps: 5"))
    clustered.pause.write_text("0")
    clustered.ok("enqueue", "eight.yaml")
    for given, waiting in ((3, 5), (3, 2)):
        done = clustered.ok("submit", "--executor=slurm", "--profile=few")
        counts = f"Submitted {given} trials to {given} jobs, {waiting} trials still queued"
        assert done.stdout.startswith(f"{counts} (sbatch refuses: ")
        assert "QOSMaxSubmitJobPerUserLimit" in done.stdout
        assert clustered.ended()["queued"] == waiting
        wait(lambda: not clustered.cluster.run("squeue", "--noheader"), "the jobs' end")
    done = clustered.call("submit", "--executor=slurm", "--profile=few")
    assert done.stdout == "Submitted 2 trials to 2 jobs. Follow them with `dropbench status --watch`.\n"
    assert clustered.ended()["succeeded"] == 8


def _has_more(file: Path, lines: int) -> bool:
    return len(file.read_text().split()) > lines


def _has_attempts(directory: RunDirectory, number: int) -> bool:
    return len(directory.attempts()) >= number
