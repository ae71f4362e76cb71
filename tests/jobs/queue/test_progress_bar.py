"""Lines about trials that end, and about those that run."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.trial import DataRef, Trial
from dropbench.jobs.queue.progress_bar import ProgressBar


def trial() -> Trial:
    return Trial(
        task="x", data=DataRef(name="trec", fingerprint="0" * 12), model="m", regularizer=RegularizerSpec(name="none"),
        preset="mini", recipe={}, seed=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("metrics", "reported"),
    [
        ({"dev/matthews": 1.0, "test/accuracy": 88.4, "test/matthews": 61.2}, ", test/matthews 61.20"),
        ({"test/f1": 3.0, "test/z": 2.0}, ", test/f1 3.00"),
        ({"dev/matthews": 1.0}, ""),
    ],
)
def test_the_metric_that_selects_the_weights_is_reported(
    tmp_path: Path, metrics: dict[str, float], reported: str
) -> None:
    ended = trial()
    result = {"format": 1, "metrics": metrics, "selected_by": "matthews"}
    RunDirectory.create(tmp_path, ended).write_result(result)
    row: Any = SimpleNamespace(id=ended.id, state="succeeded", reason=None)
    line = ProgressBar(tmp_path, {ended.id: ended}, set()).describe_end(cast(Any, row))
    assert line == f"{ended.id} m, none, trec, seed 0: succeeded{reported}"


def train(directory: RunDirectory, *events: tuple[int, float, float]) -> None:
    """Write train events: step, time, loss."""
    lines = [{"event": "train", "step": step, "steps": 40, "time": at, "loss": loss} for step, at, loss in events]
    (directory.path / "events.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_running_trials_are_reported_at_intervals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = {run.id: run for run in (trial().model_copy(update={"seed": seed}) for seed in range(12))}
    for run in trials.values():
        train(RunDirectory.create(tmp_path, run), (1, 100.0, 2.5), (11, 102.0, 2.3125))
    rows: Any = {id: SimpleNamespace(id=id, state="running", reason=None) for id in trials}
    with ProgressBar(tmp_path, trials, set()) as bar:
        bar.update(rows)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr("dropbench.jobs.queue.progress_bar.REPORT_INTERVAL_S", 0.0)
        bar.update(rows)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 11
    assert lines[0].endswith(" m, none, trec, seed 0: step 11/40, loss 2.31, 5 steps/s")
    assert lines[-1] == "2 more trials running"


@pytest.mark.parametrize("model", ["vit-digits", "learned-dropout-lm-baseline"])
@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_shows_loss_and_rate_of_running_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int, model: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm")
    run = trial().model_copy(update={"model": model})
    train(RunDirectory.create(tmp_path, run), (1, 100.0, 2.5), (11, 102.0, 2.3125))
    parent, child = pty.openpty()
    row: Any = SimpleNamespace(id=run.id, state="running", reason=None)
    terminal = open(child, "w", encoding="utf-8")  # noqa: SIM115
    with terminal, ProgressBar(tmp_path, {run.id: run}, set(), file=terminal) as bar:
        bar.update({run.id: row})
        assert bar.bars is not None
        bar.bars.refresh()
    text = b""
    with contextlib.suppress(OSError):  # the other side is closed
        while part := os.read(parent, 100_000):
            text += part
    os.close(parent)
    shown = re.sub("\x1b\\[[0-9;?]*[a-zA-Z]", "", text.decode())
    lines = [line for line in re.split("[\r\n]+", shown) if "steps/s" in line]
    assert lines
    assert f"{run.id} {model}, none, " in lines[0]
    assert "11/40 loss 2.31, 5 steps/s" in lines[0]
    assert len(lines[0]) <= columns
