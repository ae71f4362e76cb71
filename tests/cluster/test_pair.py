"""Two processes of one job that train one trial together."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dropbench.harness.runs.run_directory import RunDirectory
from tests.cluster.fault_checks import Metrics, check_close, job_of
from tests.patience import wait

if TYPE_CHECKING:
    from tests.cluster.conftest import ClusterPlace


def test_two_processes_give_the_result_of_one(clustered: ClusterPlace, undisturbed: Metrics) -> None:
    clustered.submit("exact.yaml", profile="pair")
    assert clustered.ended()["succeeded"] == 1
    (directory,) = clustered.directories()
    check_close(directory, undisturbed)
    (attempt,) = directory.attempts()
    assert (attempt["state"], attempt["cpus"]) == ("succeeded", 2)
    separate = {"DROPBENCH_RUNS": "alone", "DROPBENCH_DB": "sqlite:///alone.db"}
    clustered.ok("run", "exact.yaml", env={**clustered.environment, **separate})
    losses = [directory.events(), RunDirectory(clustered.folder / "alone" / directory.id).events()]
    pair, single = ([event["loss"] for event in events if event["event"] == "train"] for events in losses)
    assert pair == pytest.approx(single, rel=1e-5)
    assert pair != single, "only one process trained"


@pytest.mark.parametrize(
    ("command", "state"), [("scontrol requeue", "interrupted"), ("scancel --signal=USR2 --full", "preempted")]
)
def test_both_processes_stop_and_resume_together(
    clustered: ClusterPlace, undisturbed: Metrics, command: str, state: str
) -> None:
    directory = clustered.lone("pair", suite="exact.yaml")
    clustered.cluster.run(*command.split(), job_of(directory))
    wait(lambda: len(directory.attempts()) == 2, "the second attempt")
    assert clustered.finish()["succeeded"] == 1
    check_close(directory, undisturbed)
    assert [attempt["state"] for attempt in directory.attempts()] == [state, "succeeded"]


@pytest.mark.parametrize("killed", [0, 1])
def test_if_one_process_dies_the_trial_resumes(clustered: ClusterPlace, undisturbed: Metrics, killed: int) -> None:
    directory = clustered.lone("pair", suite="exact.yaml")
    first = int(directory.attempts()[-1]["pid"])
    (second,) = (pid for pid in _processes(clustered) if pid != first)
    os.kill((first, second)[killed], signal.SIGKILL)
    assert clustered.finish()["queued"] == 1, directory.attempts()
    clustered.ok("submit", "--executor=slurm", "--profile=pair")
    assert clustered.ended()["succeeded"] == 1
    check_close(directory, undisturbed)
    assert [attempt["state"] for attempt in directory.attempts()] == ["lost", "succeeded"]


@pytest.mark.parametrize(
    ("fault", "state", "cause"),
    [("memory 5", "out_of_memory", "MemoryError"), ("raise 5", "failed", "ZeroDivisionError")],
)
def test_an_error_of_the_second_process_alone_is_that_of_the_trial(
    clustered: ClusterPlace, undisturbed: Metrics, fault: str, state: str, cause: str
) -> None:
    clustered.trouble.write_text(f"{fault} 0 -1 1")
    clustered.submit("exact.yaml", profile="pair")
    status = clustered.ended()
    (directory,) = clustered.directories()
    (attempt,) = directory.attempts()
    assert attempt["state"] == state
    assert attempt["cause"].startswith(cause)
    assert cause in (directory.path / "log.txt").read_text()
    clustered.trouble.unlink()
    if status["failed"]:
        clustered.ok("retry", "failed")
    clustered.ok("submit", "--executor=slurm", "--profile=pair")
    assert clustered.ended()["succeeded"] == 1
    check_close(directory, undisturbed)
    assert [attempt["micro_batch_splits"] for attempt in directory.attempts()] == [1, 2 if "memory" in fault else 1]


def _processes(clustered: ClusterPlace) -> list[int]:
    """Return the workers in SLURM's jobs; the command lines of SLURM's own processes name them, too."""
    slurms = ("srun", "slurmstepd", "slurm_script")
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # no process, or one that has ended
            command = (entry / "cmdline").read_bytes().decode()
            is_job = "core._submit" in command and str(clustered.runs) in command
            if is_job and (entry / "comm").read_text().strip() not in slurms:
                found.append(int(entry.name))
    return found
