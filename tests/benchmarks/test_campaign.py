from __future__ import annotations

from benchmarks.campaign import step_seconds


def test_the_time_of_steps_ends_with_each_train_event() -> None:
    kinds = ("resume", 10.0), ("start", 10.5), ("train", 12.0), ("evaluate", 15.0), ("train", 16.0), ("train", 16.5)
    events = [{"event": kind, "time": time} for kind, time in (*kinds, ("end", 20.0))]
    assert step_seconds(events) == 1.5 + 1.0 + 0.5
