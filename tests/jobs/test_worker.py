"""The worker in this process, with the real engine."""

from __future__ import annotations

import hashlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.rundir import CANCELLED, RunDirectory
from harness.trial import Trial
from jobs.attempts import Attempt
from jobs.retry import HALVINGS
from jobs.wishes import STOP
from jobs.worker import Worker
from tests.patience import wait

if TYPE_CHECKING:
    from tests.jobs.workplace import Workplace


@pytest.fixture
def work(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Worker]]:
    """Makes a worker for trials, with their run directories."""
    import torch

    threads = torch.get_num_threads()
    monkeypatch.setenv("TINY_PAUSE", str(place.pause))
    monkeypatch.setenv("TINY_FAULT", str(place.trouble))
    folder = place.folder / "submission"
    folder.mkdir()

    def make(trials: list[Trial], submission: str = "s1", **changes: Any) -> Worker:
        settings = replace(place.settings, device="cpu", **changes)
        directories = [str(RunDirectory.create(settings.runs, trial).path) for trial in trials]
        return Worker(directories, settings.to_payload(), submission=submission, folder=str(folder), executor="local")

    yield make
    torch.set_num_threads(threads)


def states(place: Workplace) -> dict[str, list[str]]:
    return {id: [attempt["state"] for attempt in attempts] for id, attempts in place.attempts().items()}


def later(place: Workplace, act: Callable[[], object]) -> threading.Thread:
    """Do something once a trial is being trained."""

    def when_training() -> None:
        wait(place.running, "a trial in training")
        act()

    thread = threading.Thread(target=when_training)
    thread.start()
    return thread


def test_every_trial_of_the_list(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)]
    trials = tiny(2)
    work(trials)()
    assert states(place) == {trial.id: ["succeeded"] for trial in trials}
    for directory in place.directories():
        result = directory.result()
        assert result is not None
        assert result["steps"] == 40
        assert "step 40/40" in (directory.path / "log.txt").read_text()
        assert list((directory.path / "checkpoint").glob("step-*")) == [], "training states of a finished trial"
        assert not directory.locked()
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)]
    work(trials, "s2")()
    assert states(place) == {trial.id: ["succeeded"] for trial in trials}, "a finished trial was run again"


def test_a_failing_trial_stops_no_other(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    trials = tiny(4)
    place.trouble.write_text("raise 5 1")
    work(trials[:2])()
    place.trouble.write_text("memory 3 2")
    work(trials[2:3])()
    place.trouble.write_text("input 0 3")
    work(trials[3:])()
    assert [states(place)[trial.id] for trial in trials] == [
        ["succeeded"],
        ["failed"],
        [*["out_of_memory"] * HALVINGS, "failed"],
        ["failed"],
    ]
    attempt = place.attempts()[trials[1].id][0]
    assert attempt["cause"] == "ZeroDivisionError: the tiny task divides by zero"
    assert "tiny_task.py" in attempt["message"]
    assert attempt["message"].splitlines()[-1] == attempt["cause"]
    assert attempt["steps_done"] == 4
    assert "Traceback" in (place.runs / trials[1].id / "log.txt").read_text()
    wrong = place.attempts()[trials[3].id][0]
    assert (wrong["cause"], wrong["message"]) == ("data 'tiny': line 3: expected a label", None)


def test_what_has_too_little_memory_goes_on_in_pieces(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    (trial,) = tiny(overrides={"model.dropout": 0.0})
    work([trial], runs=place.folder / "whole")()
    place.trouble.write_text("short 2")  # of the eight of a batch
    work([trial])()
    attempts = place.attempts()[trial.id]
    assert [(one["state"], one["pieces"]) for one in attempts] == [
        ("out_of_memory", 1),
        ("out_of_memory", 2),
        ("succeeded", 4),
    ]
    whole, pieces = (RunDirectory(folder / trial.id).result() for folder in (place.folder / "whole", place.runs))
    assert whole is not None
    assert pieces is not None
    assert pieces["metrics"] == pytest.approx(whole["metrics"], rel=1e-5)


def test_too_little_memory_for_any_piece_fails(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    (small,) = tiny(overrides={"batch_size": 4})
    (large,) = tiny(overrides={"batch_size": 64})
    place.trouble.write_text("short 0")
    work([small, large])()
    assert states(place)[small.id] == ["out_of_memory"] * 3 + ["failed"]
    assert place.attempts()[small.id][-1]["cause"] == (
        "memory is short even for micro-batches of one sample; the recipe has 4"
    )
    assert states(place)[large.id] == ["out_of_memory"] * HALVINGS + ["failed"]
    told = place.attempts()[large.id][-1]["cause"]
    assert told == f"out of memory even with each micro-batch in {2**HALVINGS} pieces; MemoryError: no message"
    # Tried again, it begins with whole ones: perhaps where there is more memory.
    place.trouble.write_text("")
    work([large], "s2")()
    assert (states(place)[large.id][-1], place.attempts()[large.id][-1]["pieces"]) == ("succeeded", 1)


def test_a_failed_trial_is_left_alone_by_its_submission_and_tried_by_the_next(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    trials = tiny()
    place.trouble.write_text("raise 5")
    work(trials)()
    work(trials)()
    assert states(place) == {trials[0].id: ["failed"]}
    place.trouble.write_text("")
    work(trials, "s2")()
    assert states(place) == {trials[0].id: ["failed", "succeeded"]}


def test_a_plug_in_that_is_gone(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    trials = tiny()
    work(trials, plugins=(place.folder / "gone.py",))()
    (attempt,) = place.attempts()[trials[0].id]
    assert attempt["cause"].startswith(f"plug-in {place.folder / 'gone.py'}: No such file")


def test_a_plug_in_that_has_changed(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    (trial,) = tiny()
    digest = hashlib.sha256(place.settings.plugins[0].read_bytes()).hexdigest()
    right = trial.model_copy(update={"plugins": {"tiny_task.py": digest}})
    changed = trial.model_copy(update={"plugins": {"tiny_task.py": "0" * 64}})
    work([Trial.model_validate(one.model_dump()) for one in (right, changed)])()
    causes = {attempts[0]["state"]: attempts[0]["cause"] for attempts in place.attempts().values()}
    said = "plug-in tiny_task.py: is not given, or has changed since the trial was asked for"
    assert causes == {"succeeded": None, "failed": said}


def test_what_is_locked_or_gone_or_cancelled_is_passed_over(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    trials = tiny(4)
    worker = work(trials)
    first, second, third, fourth = (RunDirectory(Path(path)) for path in worker.directories)
    (second.path / CANCELLED).touch()
    (third.path / "trial.json").unlink()
    third.path.rename(place.folder / "elsewhere")
    with first.lock() as mine:
        assert mine
        worker()
    assert states(place) == {first.id: [], second.id: [], fourth.id: ["succeeded"]}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_writes_a_checkpoint_and_ends_the_worker(
    place: Workplace,
    work: Callable[..., Worker],
    tiny: Callable[..., list[Trial]],
    number: signal.Signals,
) -> None:
    trials = tiny(2)
    place.pause.write_text("0.02")
    thread = later(place, lambda: os.kill(os.getpid(), number))
    work(trials)()
    thread.join()
    assert states(place) == {trials[0].id: ["interrupted"], trials[1].id: []}
    assert place.attempts()[trials[0].id][0]["cause"] == f"stopped by {number.name}"
    place.pause.write_text("0")
    work(trials, "s2")()
    assert states(place) == {trials[0].id: ["interrupted", "succeeded"], trials[1].id: ["succeeded"]}
    events = RunDirectory(place.runs / trials[0].id).events()
    assert [event["step"] for event in events if event["event"] == "resume"][-1] > 0


def test_preemption_goes_on_to_submitit_after_the_checkpoint(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    called: list[list[str]] = []

    def preempt() -> None:  # as SLURM does
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGUSR2, lambda number, frame: called.append(states(place)[trials[0].id]))
    try:
        trials = tiny()
        place.pause.write_text("0.02")
        thread = later(place, preempt)
        work(trials)()
        thread.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert called == [["preempted"]], "Submitit's handler is called once, when the attempt has been noted"
    place.pause.write_text("0")
    work(trials)()
    assert states(place) == {trials[0].id: ["preempted", "succeeded"]}, "the same submission goes on with it"


def test_the_stop_file_ends_the_worker_and_cancelling_only_the_trial(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    trials = tiny(3)
    place.pause.write_text("0.02")
    worker = work(trials)

    def cancel_then_stop() -> None:
        (place.runs / trials[0].id / CANCELLED).touch()
        wait(lambda: [one.id for one in place.running()] == [trials[1].id], "the second trial")
        (Path(worker.folder) / STOP).touch()

    thread = later(place, cancel_then_stop)
    worker()
    thread.join()
    assert states(place) == {trials[0].id: ["cancelled"], trials[1].id: ["interrupted"], trials[2].id: []}
    assert place.attempts()[trials[0].id][0]["cause"] == "cancelled by the user"
    started = time.monotonic()
    work(trials[2:])()
    assert states(place)[trials[2].id] == [], f"began although it was to stop ({time.monotonic() - started:.1f} s)"


def test_a_dead_predecessor_is_noted_and_its_litter_swept(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    worker = work(tiny())
    directory = RunDirectory(Path(worker.directories[0]))
    Attempt(directory, submission="s0", executor="local", job_id=None)
    (directory.path / "checkpoint").mkdir()
    (directory.path / "checkpoint" / ".step-000000007.pt.x").write_bytes(b"half of it")
    worker()
    assert states(place)[directory.id] == ["lost", "succeeded"]
    assert list(directory.path.rglob(".*")) == []


PRINTING = """
import os, sys, warnings
from pathlib import Path
from harness.rundir import RunDirectory
from jobs.worker import _log
for number in (1, 2):
    with _log(RunDirectory(Path(sys.argv[1])), number):
        print("from Python")
        os.system("echo from a child")
        print("to standard error", file=sys.stderr)
        warnings.warn("a warning")
print("afterwards")
"""


def test_output_and_warnings_of_all_kinds_go_to_the_log(place: Workplace) -> None:
    done = place.call(str(place.folder), program=["-W", "default", "-c", PRINTING])
    assert (done.stdout, done.stderr) == ("afterwards\n", "")
    log = (place.folder / "log.txt").read_text()
    for text in ("from Python", "from a child", "to standard error", "UserWarning: a warning", "--- attempt"):
        assert log.count(text) == 2, log


def test_a_run_directory_deleted_while_it_is_trained(
    place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]
) -> None:
    trials = tiny(2)
    place.pause.write_text("0.02")
    thread = later(place, lambda: (place.runs / trials[0].id).rename(place.folder / "gone"))
    worker = work(trials)
    worker()
    thread.join()
    assert states(place) == {trials[1].id: ["succeeded"]}


def test_no_place_no_work(place: Workplace, work: Callable[..., Worker], tiny: Callable[..., list[Trial]]) -> None:
    worker = work(tiny())
    worker.place = str(place.folder / "given-away")
    worker()
    assert list(states(place).values()) == [[]]
