"""Workers that are asked to stop while they train, by signals and marker files."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.runs.run_directory import CANCELLED, RunDirectory
from dropbench.jobs.worker.stop_requests import STOP_FILE, StopRequests
from tests.jobs.worker.training import Work, run_when_training, states
from tests.jobs.workplace import Tiny, Workplace
from tests.patience import wait


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_writes_a_checkpoint_and_ends_the_worker(
    place: Workplace,
    work: Work,
    tiny: Tiny,
    number: signal.Signals,
) -> None:
    trials = tiny(2)
    thread = run_when_training(place, lambda: os.kill(os.getpid(), number))
    work(trials)()
    thread.join()
    assert states(place) == {trials[0].id: ["interrupted"], trials[1].id: []}
    assert place.attempts()[trials[0].id][0]["cause"] == f"stopped by {number.name}"
    place.pause.write_text("0")
    work(trials, "s2")()
    assert states(place) == {trials[0].id: ["interrupted", "succeeded"], trials[1].id: ["succeeded"]}
    events = RunDirectory(place.runs / trials[0].id).events()
    assert [event["step"] for event in events if event["event"] == "resume"][-1] > 0


def test_preemption_is_forwarded_to_submitit_after_the_checkpoint(place: Workplace, work: Work, tiny: Tiny) -> None:
    called: list[list[str]] = []

    def preempt() -> None:
        """Send the signals that SLURM sends."""
        os.kill(os.getpid(), signal.SIGUSR2)
        os.kill(os.getpid(), signal.SIGTERM)

    before = signal.signal(signal.SIGUSR2, lambda number, frame: called.append(states(place)[trials[0].id]))
    try:
        trials = tiny()
        thread = run_when_training(place, preempt)
        work(trials)()
        thread.join()
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert called == [["preempted"]], "Submitit's handler is called once, after the attempt's end is recorded"
    place.pause.write_text("0")
    work(trials)()
    assert states(place) == {trials[0].id: ["preempted", "succeeded"]}, "the same submission resumes the trial"


def test_the_stop_file_ends_the_worker_and_cancelling_only_the_trial(place: Workplace, work: Work, tiny: Tiny) -> None:
    trials = tiny(3, overrides={"steps": 199})  # with an event at each step
    worker = work(trials)

    def cancel_then_stop() -> None:
        (place.runs / trials[0].id / CANCELLED).touch()
        place.pause.write_text("0.02")
        wait(lambda: [directory.id for directory in place.running()] == [trials[1].id], "the second trial")
        (Path(worker.folder) / STOP_FILE).touch()

    thread = run_when_training(place, cancel_then_stop)
    worker()
    thread.join()
    assert states(place) == {trials[0].id: ["cancelled"], trials[1].id: ["interrupted"], trials[2].id: []}
    assert place.attempts()[trials[0].id][0]["cause"] == "cancelled by the user"
    work(trials[2:])()
    assert states(place)[trials[2].id] == [], "nothing starts while the stop file exists"


def test_a_worker_of_a_cluster_looks_once_in_five_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals are seen at once. Of processes that train together, one looks."""
    clock, looks = [0.0], list[str]()
    monkeypatch.setattr("dropbench.jobs.worker.stop_requests.time.monotonic", lambda: clock[0])

    def noted(look: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def counting(self: Any) -> Any:
            looks.append(look.__name__)
            return look(self)

        return counting

    monkeypatch.setattr(RunDirectory, "cancelled", noted(RunDirectory.cancelled))
    monkeypatch.setattr(Path, "exists", noted(Path.exists))

    def train(requests: StopRequests, seconds: float) -> bool:
        """Return whether a step of a twentieth of a second would be the last within this time."""
        end = clock[0] + seconds
        stopped = False
        while clock[0] < end and not stopped:
            clock[0] += 0.05
            stopped = requests()
        return stopped

    with StopRequests(tmp_path, local=False) as leader:
        leader.watch(RunDirectory(tmp_path))
        assert not train(leader, 1000)
        assert 2 <= len(looks) <= 0.2 * 1000 + 2
        (tmp_path / STOP_FILE).touch()
        assert train(leader, 10.1)
    (tmp_path / STOP_FILE).unlink()
    with StopRequests(tmp_path, local=False, looks=False) as follower:
        follower.watch(RunDirectory(tmp_path))
        looks.clear()
        assert not train(follower, 1000)
        assert not looks
        os.kill(os.getpid(), signal.SIGUSR2)
        assert follower(), "without another second"
