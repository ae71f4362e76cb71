from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.trial import Trial
from jobs.attempts import Attempt, checkpoint_step, settle
from jobs.retry import GAVE_UP, LIMIT


@pytest.fixture
def directory(tmp_path: Path, tiny: Callable[..., list[Trial]]) -> RunDirectory:
    return RunDirectory.create(tmp_path, tiny()[0])


def begin(directory: RunDirectory) -> Attempt:
    return Attempt(directory, submission="s", executor="local", job_id="7")


def reach(directory: RunDirectory, step: int) -> None:
    (directory.path / "checkpoint").mkdir(exist_ok=True)
    (directory.path / "checkpoint" / f"step-{step:09d}.pt").write_bytes(b"")


def test_an_attempt_from_its_first_word_to_its_last(directory: RunDirectory) -> None:
    attempt = begin(directory)
    (told,) = directory.attempts()
    assert (told["number"], told["state"], told["ended_at"]) == (1, "running", None)
    directory.append_event("train", step=12, loss=0.5, lr=0.1)
    block = bytearray(48 * 2**20)
    sum(range(10**6))
    attempt.finish("succeeded")
    (told,) = directory.attempts()
    assert (told["state"], told["steps_done"], told["device"], told["gpu_seconds"]) == ("succeeded", 12, "cpu", 0)
    assert told["ended_at"] >= told["started_at"]
    assert 0 < told["cpu_seconds"] < 60
    assert told["peak_memory_bytes"] > len(block)
    assert begin(directory).number == 2


def test_peak_memory_is_this_attempts_alone(directory: RunDirectory) -> None:
    attempt = begin(directory)
    # Not from the heap, where earlier tests may have left as much to be used again.
    with mmap.mmap(-1, 200 * 2**20) as block:
        block[::4096] = b"x" * (200 * 2**20 // 4096)
    attempt.finish("succeeded")
    begin(directory).finish("succeeded")
    first, second = (told["peak_memory_bytes"] for told in directory.attempts())
    assert second < first - 150 * 2**20


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
    ],
)
def test_an_exception_decides_state_and_cause(
    directory: RunDirectory, error: BaseException, state: str, cause: str | None, has_message: bool
) -> None:
    begin(directory).failed(error)
    (told,) = directory.attempts()
    assert told["state"] == state
    assert cause is None or told["cause"] == cause
    assert (told["message"] is not None) == has_message
    assert "\n" not in told["cause"]
    assert str(error).split("\n")[-1] in (directory.path / "log.txt").read_text()


def test_torchs_own_out_of_memory(directory: RunDirectory) -> None:
    import torch

    begin(directory).failed(torch.OutOfMemoryError("CUDA out of memory"))
    assert directory.attempts()[0]["state"] == "out_of_memory"


def test_a_death_without_a_word_is_lost(directory: RunDirectory) -> None:
    begin(directory)
    reach(directory, 30)
    settle(directory)
    (told,) = directory.attempts()
    assert (told["state"], told["steps_done"]) == ("lost", 30)
    assert "killed" in told["cause"]
    assert told["started_at"] <= told["ended_at"]
    settle(directory)
    assert directory.attempts() == [told]


def test_an_attempt_does_not_end_before_it_begins(directory: RunDirectory) -> None:
    begin(directory)
    for file in directory.path.rglob("*"):
        os.utime(file, (0, 0))
    settle(directory)
    (told,) = directory.attempts()
    assert told["ended_at"] == told["started_at"]


def test_a_death_after_the_result_is_a_success(directory: RunDirectory) -> None:
    begin(directory)
    directory.write_result({"metrics": {"test/accuracy": 1.0}})
    settle(directory)
    assert [told["state"] for told in directory.attempts()] == ["succeeded"]


def test_who_always_dies_at_the_same_place_is_given_up(directory: RunDirectory) -> None:
    for _ in range(LIMIT):
        begin(directory)
        settle(directory)
    states = [told["state"] for told in directory.attempts()]
    assert states == ["lost"] * (LIMIT - 1) + ["failed"]
    assert directory.attempts()[-1]["cause"].startswith(f"{GAVE_UP} after {LIMIT} attempts")
    # After a `retry` it has as many again.
    begin(directory)
    settle(directory)
    assert directory.attempts()[-1]["state"] == "lost"


def test_who_gets_on_is_never_given_up(directory: RunDirectory) -> None:
    for attempt in range(3 * LIMIT):
        begin(directory)
        if attempt % (LIMIT - 1) == 0:
            reach(directory, attempt + 1)
        settle(directory)
    assert {told["state"] for told in directory.attempts()} == {"lost"}
    assert checkpoint_step(directory) == 13


def test_a_damaged_attempt_file_does_not_stop_the_next(directory: RunDirectory) -> None:
    begin(directory).finish("preempted")
    (directory.path / "attempts" / "2.json").write_text('{"number": 2, "sta')
    assert begin(directory).number == 3
    settle(directory)
    assert [told["state"] for told in directory.attempts()] == ["preempted", "lost"]
