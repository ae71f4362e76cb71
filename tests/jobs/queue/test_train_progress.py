"""The progress of a running trial, from its events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dropbench.jobs.queue.train_progress import TrainProgress, train_progress


def write(directory: Path, *events: dict[str, Any] | str) -> Path:
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    directory.mkdir(exist_ok=True)
    (directory / "events.jsonl").write_text("\n".join(lines) + "\n")
    return directory


def train(step: int, time: float, **fields: Any) -> dict[str, Any]:
    return {"event": "train", "step": step, "time": time, "steps": 100, "loss": 0.5, **fields}


def test_the_rate_is_that_since_the_last_start(tmp_path: Path) -> None:
    events = [train(10, 1000.0), train(50, 1001.0), {"event": "resume", "step": 20, "time": 2000.0, "loss": None}]
    progress = train_progress(write(tmp_path / "a", *events, train(30, 2005.0, loss=0.25), '{"event": "train", "st'))
    assert progress == TrainProgress("a", step=30, steps=100, rate=2.0, loss=0.25, at=2005.0)
    assert progress.seconds == 35.0
    resumed = train_progress(write(tmp_path / "b", *events))
    assert resumed == TrainProgress("b", step=20, steps=100, rate=None, loss=None, at=2000.0)
    assert resumed.seconds is None


def test_each_phase_has_its_own_rate(tmp_path: Path) -> None:
    events = [train(100, 1000.0), train(10, 2000.0, phase="finetune"), train(20, 2001.0, phase="finetune")]
    progress = train_progress(write(tmp_path / "a", *events))
    assert (progress.step, progress.rate) == (20, 10.0)


@pytest.mark.parametrize("events", [[], [{"event": "resume", "step": 0}], ["nonsense", '["train"]', "null"]])
def test_no_progress_before_the_first_step(tmp_path: Path, events: list[Any]) -> None:
    assert train_progress(write(tmp_path / "a", *events)) == TrainProgress("a")
    assert train_progress(tmp_path / "missing") == TrainProgress("missing")


@pytest.mark.parametrize("time", [None, "now", 5.0])
def test_no_rate_without_valid_increasing_times(tmp_path: Path, time: Any) -> None:
    progress = train_progress(write(tmp_path / "a", train(1, time), train(2, time)))
    assert (progress.step, progress.rate) == (2, None)
