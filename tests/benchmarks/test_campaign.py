from __future__ import annotations

import pytest

from benchmarks.campaign import step_seconds


def test_the_seconds_of_steps_are_those_before_train_events_and_as_many_for_steps_before_an_evaluation() -> None:
    events = [
        {"event": "resume", "time": 10.0, "step": 0},
        {"event": "start", "time": 10.5, "steps": 30},
        {"event": "train", "time": 12.0, "step": 10},
        {"event": "evaluate", "time": 15.0, "step": 15, "split": "dev"},
        {"event": "train", "time": 16.0, "step": 20},
        {"event": "train", "time": 16.5, "step": 30},
        {"event": "end", "time": 20.0, "step": 30},
    ]
    measured, steps_of_these = 1.5 + 1.0 + 0.5, 25
    assert step_seconds(events) == pytest.approx(measured * 30 / steps_of_these)
