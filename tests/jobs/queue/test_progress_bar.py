"""The line about a trial that has ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.regularizers.spec import RegularizerSpec
from harness.runs.run_directory import RunDirectory
from harness.trials.trial import DataRef, Trial
from jobs.queue.progress_bar import ProgressBar


def trial(task: str) -> Trial:
    return Trial(
        task=task, data=DataRef(name="trec", fingerprint="0" * 12), model="m", regularizer=RegularizerSpec(name="none"),
        preset="mini", recipe={}, seed=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("task", "metrics", "reported"),
    [
        ("text-classification", {"dev/accuracy": 1.0, "test/a": 2.0, "test/accuracy": 88.4}, ", test/accuracy 88.40"),
        ("text-classification", {"test/f1": 3.0, "test/z": 2.0}, ", test/f1 3.00"),
        ("text-classification", {"dev/accuracy": 1.0}, ""),
        ("of a plug-in that is not loaded", {"test/accuracy": 88.4}, ""),
    ],
)
def test_the_first_metric_of_the_task_is_reported(
    tmp_path: Path, task: str, metrics: dict[str, float], reported: str
) -> None:
    ended = trial(task)
    RunDirectory.create(tmp_path, ended).write_result({"format": 1, "metrics": metrics})
    row: Any = SimpleNamespace(id=ended.id, state="succeeded", reason=None)
    line = ProgressBar(tmp_path, {ended.id: ended}, set()).describe_end(cast(Any, row))
    assert line.endswith(f"seed 0: succeeded{reported}")
