"""The line that tells of a trial that has ended."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.regularizers.spec import RegularizerSpec
from harness.rundir import RunDirectory
from harness.trial import DataRef, Trial
from jobs.progress import Progress


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
