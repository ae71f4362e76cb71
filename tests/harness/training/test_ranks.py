"""Test that the processes of a trial decide alike: their buffers, metrics and selected steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch import nn

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial
from dropbench.harness.training.trainer import Trainer
from dropbench.harness.trials.task import Split
from tests.harness.training.ranks import run_ranks
from tests.tasks.making import VOLO
from tests.training import make_trial

BATCH_NORM: dict[str, Any] = {"data": "cifar10-synthetic", "model": "volo-cifar", "batch_size": 12, "lr": 0.01, **VOLO}


def settings_of(directory: RunDirectory) -> Settings:
    return Settings(runs=directory.path.parent, device="cpu", threads=1)


def train_noting(directory: RunDirectory) -> list[Any]:
    """Train; return what this rank evaluated: metrics, buffers and the step selected so far; and the result."""
    evaluate, notes = Trainer.evaluate, list[Any]()

    def noted(self: Trainer, model: nn.Module, split: Split, step: int) -> dict[str, float]:
        metrics = evaluate(self, model, split, step)
        buffers = [float(buffer.double().sum()) for buffer in model.buffers()]
        notes.append((split, metrics, buffers, self.state.selected))
        return metrics

    Trainer.evaluate = noted  # type: ignore[assignment,method-assign]
    notes.append(run_trial(directory, settings_of(directory)))
    return notes


@pytest.mark.slow
@pytest.mark.parametrize("align", ["none", "finetune"])
def test_ranks_evaluate_and_select_alike(tmp_path: Path, align: str) -> None:
    """Batch statistics differ between ranks; without a common decision, so do metrics, best steps and patience."""
    options = {"steps": 6, "evaluate_every": 1, "patience": 2, "ema": 0.5, "finetune_epochs": 1, **BATCH_NORM}
    trial = make_trial("dropkey:ratio=0.3", align=align, **{**options, "batch_size": 160})
    first, *others = run_ranks(3, train_noting, RunDirectory.create(tmp_path, trial))
    assert len(first) > 3
    assert others == [first, first]
