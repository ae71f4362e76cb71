"""The probe of a trial: some of its steps, which are not lost."""

from __future__ import annotations

import pytest

from dropbench.jobs.worker import probe
from tests.jobs.worker.training import Work
from tests.jobs.workplace import Tiny, Workplace


def test_a_probe_stops_after_its_steps_and_the_trial_continues_from_there(
    place: Workplace, work: Work, tiny: Tiny
) -> None:
    (trial,) = tiny()
    place.pause.write_text("0.01")
    work([trial], probe=True)()
    (directory,) = place.directories()
    (attempt,) = directory.attempts()
    assert (attempt["state"], attempt["cause"]) == ("interrupted", "probe: stopped after 30 steps")
    assert (attempt["steps_done"], attempt["steps"]) == (30, 40)
    assert 0 < attempt["steps_per_second"] < 100
    assert directory.result() is None
    work([trial])()
    assert [attempt["state"] for attempt in directory.attempts()] == ["interrupted", "succeeded"]
    assert [event["step"] for event in directory.events() if event["event"] == "resume"] == [0, 30]


def test_a_trial_shorter_than_the_probe_ends(place: Workplace, work: Work, tiny: Tiny) -> None:
    work(tiny(overrides={"steps": 20}), probe=True)()
    (attempts,) = place.attempts().values()
    assert [attempt["state"] for attempt in attempts] == ["succeeded"]


def test_the_warm_up_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ten steps take 100 s each, the others 2 s."""
    clock = iter([1000.0, 1040.0])
    monkeypatch.setattr(probe, "_time", lambda: next(clock))
    stop = probe.Probe(lambda: False)
    for _ in range(29):
        stop.count()
        assert not stop()
    stop.count()
    assert stop()
    assert stop.rate == 0.5


def test_a_stop_request_ends_a_probe_without_a_rate() -> None:
    stop = probe.Probe(lambda: True)
    assert stop()
    assert stop.rate is None
