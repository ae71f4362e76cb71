from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.runs import lease
from dropbench.harness.runs.lease import Lease
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.training.environment import processor
from dropbench.jobs.worker.attempt import Attempt, checkpoint_step, finalize_dead
from dropbench.jobs.worker.failure import Failure
from dropbench.jobs.worker.retry import MAX_FRUITLESS_ATTEMPTS
from tests.jobs.workplace import Tiny


@pytest.fixture
def directory(tmp_path: Path, tiny: Tiny) -> RunDirectory:
    return RunDirectory.create(tmp_path, tiny()[0])


def begin(directory: RunDirectory) -> Attempt:
    return Attempt(directory, submission="s", executor="local", job_id="7")


def write_checkpoint(directory: RunDirectory, step: int) -> None:
    (directory.path / "checkpoint").mkdir(exist_ok=True)
    (directory.path / "checkpoint" / f"step-{step:09d}.pt").write_bytes(b"")


def test_the_record_of_an_attempt(directory: RunDirectory) -> None:
    attempt = begin(directory)
    (record,) = directory.attempts()
    assert (record["number"], record["state"], record["ended_at"]) == (1, "running", None)
    directory.append_event("train", step=12, loss=0.5, lr=0.1)
    block = bytearray(48 * 2**20)
    sum(range(10**6))
    attempt.finish("succeeded")
    (record,) = directory.attempts()
    assert (record["state"], record["steps_done"], record["device"], record["gpu_seconds"]) == (
        "succeeded",
        12,
        processor(),
        0,
    )
    assert record["ended_at"] >= record["started_at"]
    assert record["cpu_seconds"] > 0
    assert record["peak_memory_bytes"] > len(block)
    assert begin(directory).number == 2


def test_peak_memory_is_that_of_one_attempt(directory: RunDirectory) -> None:
    attempt = begin(directory)
    # Not from the heap, which may reuse memory of earlier tests.
    with mmap.mmap(-1, 200 * 2**20) as block:
        block[::4096] = b"x" * (200 * 2**20 // 4096)
    attempt.finish("succeeded")
    begin(directory).finish("succeeded")
    first, second = (record["peak_memory_bytes"] for record in directory.attempts())
    assert second < first - 150 * 2**20


class Unreadable(Exception):
    """An error of a plug-in that fails at its message."""

    def __str__(self) -> str:
        raise ValueError


@pytest.mark.parametrize(
    ("error", "state", "cause", "has_message"),
    [
        (InputError("data 'x' is not there"), "failed", "data 'x' is not there", False),
        (ZeroDivisionError("by\nzero"), "failed", "ZeroDivisionError: by zero", True),
        (KeyError(), "failed", "KeyError: no message", True),
        (OSError(28, "No space left on device", "/r/x.pt"), "failed", "No space left on device: /r/x.pt", True),
        (MemoryError(), "out_of_memory", "MemoryError: no message", True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "out_of_memory", None, True),
        (SystemExit(3), "failed", "SystemExit: 3", True),
        (KeyboardInterrupt(), "failed", "KeyboardInterrupt: no message", True),
        (Unreadable(), "failed", "Unreadable: its message cannot be read", True),
        (ValueError("file \udce9.png"), "failed", r"ValueError: file \udce9.png", True),
        (FileNotFoundError(2, "No such file", "\udce9"), "failed", r"No such file: \udce9", True),
        (InputError("file \udce9.png"), "failed", r"file \udce9.png", False),
    ],
)
def test_an_exception_decides_state_and_cause(
    directory: RunDirectory, error: BaseException, state: str, cause: str | None, has_message: bool
) -> None:
    begin(directory).fail(Failure.of(error))
    (record,) = directory.attempts()
    assert record["state"] == state
    assert cause is None or record["cause"] == cause
    assert (record["message"] is not None) == has_message
    assert "\n" not in record["cause"]
    assert (type(error).__name__ if has_message else str(cause)) in (directory.path / "log.txt").read_text()


def test_torchs_out_of_memory_error(directory: RunDirectory) -> None:
    import torch

    begin(directory).fail(Failure.of(torch.OutOfMemoryError("CUDA out of memory")))
    assert directory.attempts()[0]["state"] == "out_of_memory"


def test_an_attempt_without_a_recorded_end_is_lost(directory: RunDirectory) -> None:
    begin(directory)
    write_checkpoint(directory, 30)
    finalize_dead(directory)
    (record,) = directory.attempts()
    assert (record["state"], record["steps_done"]) == ("lost", 30)
    assert "killed" in record["cause"]
    assert record["started_at"] <= record["ended_at"]
    finalize_dead(directory)
    assert directory.attempts() == [record]


def test_an_attempt_does_not_end_before_it_starts(directory: RunDirectory) -> None:
    begin(directory)
    for file in directory.path.rglob("*"):
        os.utime(file, (0, 0))
    finalize_dead(directory)
    (record,) = directory.attempts()
    assert record["ended_at"] == record["started_at"]


def test_an_attempt_that_died_after_its_result_succeeded(directory: RunDirectory) -> None:
    begin(directory)
    directory.write_result({"metrics": {"test/accuracy": 1.0}})
    finalize_dead(directory)
    assert [record["state"] for record in directory.attempts()] == ["succeeded"]


def test_a_trial_with_progress_is_never_given_up(directory: RunDirectory) -> None:
    for attempt in range(3 * MAX_FRUITLESS_ATTEMPTS):
        begin(directory)
        if attempt % (MAX_FRUITLESS_ATTEMPTS - 1) == 0:
            write_checkpoint(directory, attempt + 1)
        finalize_dead(directory)
    assert {record["state"] for record in directory.attempts()} == {"lost"}
    assert checkpoint_step(directory) == 13


def test_a_trial_that_proceeds_within_an_evaluation_is_not_given_up(directory: RunDirectory) -> None:
    """Each attempt begins to evaluate; the first ones store further batches, the others none."""
    write_checkpoint(directory, 7)
    stored = [*range(1, 2 * MAX_FRUITLESS_ATTEMPTS), *[9] * (MAX_FRUITLESS_ATTEMPTS - 1)]
    for number, batches in enumerate(stored, 1):
        attempt = begin(directory)
        directory.append_event("resume", step=7, evaluated=0)
        if number <= batches:
            directory.append_event("evaluating", step=7, batches=batches)
        attempt.finish("timeout")
    states = [record["state"] for record in directory.attempts()]
    assert states == ["timeout"] * (len(stored) - 1) + ["failed"]
    assert [record["batches_evaluated"] for record in directory.attempts()] == stored


def test_a_damaged_attempt_file_does_not_stop_the_next(directory: RunDirectory) -> None:
    begin(directory).finish("preempted")
    (directory.path / "attempts" / "2.json").write_text('{"number": 2, "sta')
    assert begin(directory).number == 3
    finalize_dead(directory)
    assert [record["state"] for record in directory.attempts()] == ["preempted", "lost"]


def test_a_live_attempt_on_another_machine_is_left_alone(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Lease.take(directory.path)
    assert held is not None
    with held:
        begin(directory)
        half_written = directory.path / "attempts" / ".1.json.abc"
        half_written.touch()
        monkeypatch.setattr(lease, "machine", lambda: "another")
        finalize_dead(directory)
        assert [record["state"] for record in directory.attempts()] == ["running"]
        assert half_written.exists()
    finalize_dead(directory)
    assert [record["state"] for record in directory.attempts()] == ["lost"]
    assert not half_written.exists()
    assert not held.held(), "the process that was taken for dead would write nothing more"


@pytest.mark.parametrize(
    ("executor", "tasks", "cpus"), [("slurm", "3", 3), ("slurm", "abc", 1), ("slurm", "", 1), ("local", "3", 1)]
)
def test_the_cores_of_all_processes_of_a_job_on_slurm(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, executor: str, tasks: str, cpus: int
) -> None:
    monkeypatch.setenv("SLURM_NTASKS", tasks)
    attempt = Attempt(directory, submission="s", executor=executor, job_id="7")
    assert attempt.record["cpus"] == cpus
