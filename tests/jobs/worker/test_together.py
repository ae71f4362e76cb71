"""Trials that several processes of this machine train together, started by one command without a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.runs.run_directory import RunDirectory
from tests.jobs.workplace import Workplace
from tests.patience import PATIENCE, wait

PAIR = ("run", "tiny.yaml", "--preset", "one", "--device", "cpu", "--parallel", "1", "--gpus-per-trial", "2")


def ranks(place: Workplace, directory: RunDirectory) -> list[int]:
    """Return the processes that train a trial, rank 0 first."""
    leader = int(directory.attempts()[-1]["pid"])
    (parent,) = {_parent(leader)}
    return sorted(pid for pid in place.processes("worker") if _parent(pid) == parent and pid != parent)


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
    wait(lambda: list((directory.path / "checkpoint").glob("step-*.pt")), "a checkpoint")
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
