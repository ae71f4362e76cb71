"""The processes of a job, or of one command on this machine: their variables, whose error ends a trial, their ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed import DistBackendError

from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.jobs.worker.failure import LOST, Failure
from dropbench.jobs.worker.process_group import ProcessGroup
from tests.jobs.workplace import Workplace
from tests.patience import PATIENCE, wait

PAIR = ("run", "tiny.yaml", "--preset", "one", "--device", "cpu", "--parallel", "1", "--gpus-per-trial", "2")
SUBMIT = ("submit", *PAIR[1:])
RESET = RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [::1]:2: Connection reset")
TIMEOUT = DistBackendError("NCCL communicator was aborted on rank 0.")


@pytest.mark.parametrize("connection", [RESET, TIMEOUT])
@pytest.mark.parametrize(
    ("error", "state", "cause"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "out_of_memory", "OutOfMemoryError: CUDA out of memory."),
        (InputError("x.jpg: damaged"), "failed", "x.jpg: damaged"),
        (KeyError("a"), "failed", "KeyError: 'a'"),
    ],
)
def test_the_error_that_broke_the_connection_is_reported(
    tmp_path: Path, connection: RuntimeError, error: BaseException, state: str, cause: str
) -> None:
    groups = [ProcessGroup(rank, 3, failure_file=tmp_path / "7_0.failure.json") for rank in range(3)]
    assert groups[0].failure(connection) == Failure.of(connection)
    assert (Failure.of(connection).state, Failure.of(connection).cause) == ("lost", LOST)
    groups[1].report(error)
    groups[2].report(connection)
    failure = groups[0].failure(connection)
    assert (failure.state, failure.cause) == (state, cause)
    assert failure == Failure.of(error)
    assert groups[0].failure(ValueError("its own")) == Failure.of(ValueError("its own"))


def test_a_full_disk_hides_no_error(tmp_path: Path) -> None:
    ProcessGroup(1, 2, failure_file=tmp_path / "missing" / "7_0.failure.json").report(KeyError("a"))


def test_a_group_starts_without_the_failure_of_an_earlier_start_and_with_its_own_threads(tmp_path: Path) -> None:
    (tmp_path / "7_0.failure.json").write_text("{}")
    slurm = {
        "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2", "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_NODELIST": "n[1-2]",
    }  # fmt: skip
    with mock.patch.dict(os.environ, slurm):
        group = ProcessGroup.join(tmp_path, "7_0", Settings(device="cpu", threads=3))
        variables = {name: os.environ[name] for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")}
    assert (group.rank, group.size, group.cpu) == (0, 4, True)
    assert variables == {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "3"}
    assert not [*tmp_path.glob("*.failure.json")]


def ranks(place: Workplace, directory: RunDirectory) -> list[int]:
    """Return the processes that train a trial, rank 0 first."""
    leader = int(directory.attempts()[-1]["pid"])
    (parent,) = {_parent(leader)}
    return sorted(pid for pid in place.processes("worker") if _parent(pid) == parent and pid != parent)


def ends(place: Workplace) -> list[str]:
    """Return the state of the last attempt of each trial."""
    return [attempt["state"] for attempts in place.attempts().values() for attempt in attempts[-1:]]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.slow
def test_two_processes_train_each_trial_and_another_number_resumes(place: Workplace) -> None:
    place.pause.write_text("0.3")
    process = place.start(*PAIR)
    wait(place.running, "a trial in training")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGINT
    assert "Stopped: 0 of 2 trials done. Resume with " in err
    wait(lambda: not place.processes("worker"), "the end of all processes")
    (first,) = [directory for directory in place.directories() if directory.attempts()]
    (attempt,) = first.attempts()
    assert (attempt["state"], attempt["cpus"]) == ("interrupted", 2)
    assert first.read("environment.json")["processes"] == 2
    place.pause.write_text("0")
    place.ok(*PAIR[:-1], "3")
    assert [attempts[-1]["state"] for attempts in place.attempts().values()] == ["succeeded"] * 2
    assert [directory.read("environment.json")["processes"] for directory in place.directories()] == [3, 3]
    assert [event["step"] for event in first.events() if event["event"] == "resume"][-1] > 0
    wait(lambda: not place.processes("worker"), "the end of all processes")


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others_and_the_trial_resumes(place: Workplace) -> None:
    place.pause.write_text("0.3")
    process = place.start(*PAIR, "--checkpoint-seconds", "0")
    (directory,) = wait(place.running, "a trial in training")
    wait(lambda: list((directory.path / "checkpoint").glob("step-*[1-9]*.pt")), "a checkpoint")
    (follower,) = (pid for pid in ranks(place, directory) if pid != directory.attempts()[0]["pid"])
    os.kill(follower, signal.SIGKILL)
    place.pause.write_text("0")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    first, second = directory.attempts()
    cause = "process 2 of the 2 that train together was killed by SIGKILL"
    assert (first["state"], first["cause"], second["state"]) == ("lost", cause, "succeeded")
    assert (directory.path / "log.txt").read_text().count(f"{cause}\n") == 1
    assert [event["step"] for event in directory.events() if event["event"] == "resume"][-1] > 0
    wait(lambda: not place.processes("worker"), "the end of all processes")


@pytest.mark.slow
def test_an_error_of_all_processes_is_that_of_the_trial(place: Workplace) -> None:
    place.trouble.write_text("raise 5")
    done = place.call(*PAIR)
    assert done.returncode == 1
    assert "failed: ZeroDivisionError: the tiny task divides by zero" in done.stderr
    assert [len(attempts) for attempts in place.attempts().values()] == [1, 1]
    wait(lambda: not place.processes("worker"), "the end of all processes")


@pytest.mark.slow
def test_submitted_processes_start_again_and_another_number_resumes(place: Workplace) -> None:
    """No command needs to run while a process dies, or a trial fails."""
    place.pause.write_text("0.3")
    place.ok(*SUBMIT, "--checkpoint-seconds", "0")
    (directory,) = wait(place.running, "a trial in training")
    wait(lambda: list((directory.path / "checkpoint").glob("step-*[1-9]*.pt")), "a checkpoint")
    leader = int(directory.attempts()[0]["pid"])
    worker = _parent(leader)
    os.kill(next(pid for pid in ranks(place, directory) if pid != leader), signal.SIGKILL)
    wait(lambda: len(directory.attempts()) == 2 and place.running(), "the second attempt in training")
    os.kill(worker, signal.SIGTERM)
    wait(lambda: not place.processes("worker"), "the end of all processes")
    assert [attempt["state"] for attempt in directory.attempts()] == ["lost", "interrupted"]
    place.pause.write_text("0")
    place.ok(*SUBMIT[:-1], "3")
    wait(lambda: ends(place) == ["succeeded"] * 2, "the end of both trials")
    assert [each.read("environment.json")["processes"] for each in place.directories()] == [3, 3]
    assert [event["step"] for event in directory.events() if event["event"] == "resume"][-1] > 0


@pytest.mark.slow
def test_submitted_processes_train_on_after_a_failed_trial(place: Workplace) -> None:
    place.trouble.write_text("raise 5")
    place.ok(*SUBMIT)
    wait(lambda: ends(place) == ["failed"] * 2, "the end of both trials")
    wait(lambda: not place.processes("worker"), "the end of all processes")
    assert [len(attempts) for attempts in place.attempts().values()] == [1, 1]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--executor", "debug"], "--gpus-per-trial 2: not with --executor debug, which trains in this process"),
        (
            ["--device", "auto"],
            "--gpus-per-trial 2: 1 GPU visible: use fewer, or `--device cpu`",
        ),
    ],
)
def test_where_several_processes_cannot_train(place: Workplace, words: list[str], line: str) -> None:
    done = place.call(*PAIR, *words, env={**place.environment, "CUDA_VISIBLE_DEVICES": "0"})
    assert (done.returncode, done.stderr) == (2, f"dropbench: {line}\n")


def test_on_a_cluster_the_profile_says_how_many_processes_train(place: Workplace) -> None:
    done = place.call(*SUBMIT, "--executor", "slurm")
    line = "--gpus-per-trial 2: not with --executor slurm: set `gpus` and `tasks` in the cluster profile"
    assert (done.returncode, done.stderr) == (2, f"dropbench: {line}\n")


@pytest.mark.slow
def test_torchrun_ends_at_once_with_the_option_to_use(place: Workplace) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "dropbench"]
    command = [*launch, "run", "tiny.yaml", "--preset", "one"]
    options: dict[str, Any] = {"cwd": place.folder, "env": place.environment, "capture_output": True, "text": True}
    done = subprocess.run(command, timeout=PATIENCE, **options)
    assert done.returncode
    line = "torchrun starts this command 2 times: start it once, with `--gpus-per-trial 2`\n"
    assert done.stderr.count(line) == 1
    assert not place.runs.exists()
