"""The line that tells of a trial that has ended, and how fast one that runs gets on."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.regularizers.spec import RegularizerSpec
from harness.rundir import RunDirectory
from harness.trial import DataRef, Trial
from jobs.progress import Pace, Progress, last_train_event, pace


def trial(task: str) -> Trial:
    return Trial(
        task=task, data=DataRef(name="trec", fingerprint="0" * 12), model="m", regularizer=RegularizerSpec(name="none"),
        preset="mini", recipe={}, seed=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("task", "metrics", "told"),
    [
        ("text-classification", {"dev/accuracy": 1.0, "test/a": 2.0, "test/accuracy": 88.4}, ", test/accuracy 88.40"),
        ("text-classification", {"test/f1": 3.0, "test/z": 2.0}, ", test/f1 3.00"),
        ("text-classification", {"dev/accuracy": 1.0}, ""),
        ("of a plug-in that is not here", {"test/accuracy": 88.4}, ""),
    ],
)
def test_the_first_metric_of_the_task_is_told(tmp_path: Path, task: str, metrics: dict[str, float], told: str) -> None:
    ended = trial(task)
    RunDirectory.create(tmp_path, ended).write_result({"format": 1, "metrics": metrics})
    row: Any = SimpleNamespace(id=ended.id, state="succeeded", reason=None)
    line = Progress(tmp_path, {ended.id: ended}, set()).ended(cast(Any, row))
    assert line.endswith(f"seed 0: succeeded{told}")


def write(directory: Path, *events: dict[str, Any] | str) -> Path:
    lines = [event if isinstance(event, str) else json.dumps(event) for event in events]
    directory.mkdir(exist_ok=True)
    (directory / "events.jsonl").write_text("\n".join(lines) + "\n")
    return directory


def train(step: int, time: float, **fields: Any) -> dict[str, Any]:
    return {"event": "train", "step": step, "time": time, "steps": 100, "loss": 0.5, **fields}


def test_the_pace_is_that_since_the_last_start(tmp_path: Path) -> None:
    events = [train(10, 1000.0), train(50, 1001.0), {"event": "resume", "step": 20, "time": 2000.0, "loss": None}]
    found = pace(write(tmp_path / "a", *events, train(30, 2005.0, loss=0.25), '{"event": "train", "st'))
    assert found == Pace(step=30, steps=100, rate=2.0, loss=0.25, at=2005.0)
    resumed = pace(write(tmp_path / "b", *events))
    assert resumed == Pace(step=20, steps=100, rate=None, loss=None, at=2000.0)


def test_another_phase_has_a_pace_of_its_own(tmp_path: Path) -> None:
    events = [train(100, 1000.0), train(10, 2000.0, phase="finetune"), train(20, 2001.0, phase="finetune")]
    found = pace(write(tmp_path / "a", *events))
    assert found is not None
    assert (found.step, found.rate) == (20, 10.0)


@pytest.mark.parametrize("events", [[], [{"event": "resume", "step": 0}], ["nonsense", '["train"]', "null"]])
def test_no_pace_before_the_first_step(tmp_path: Path, events: list[Any]) -> None:
    assert pace(write(tmp_path / "a", *events)) is None
    assert pace(tmp_path / "nothing") is None
    assert last_train_event(tmp_path / "a") is None


@pytest.mark.parametrize("time", [None, "now", 5.0])
def test_a_clock_that_stands_or_lies_gives_no_rate(tmp_path: Path, time: Any) -> None:
    found = pace(write(tmp_path / "a", train(1, time), train(2, time)))
    assert found is not None
    assert (found.step, found.rate) == (2, None)
