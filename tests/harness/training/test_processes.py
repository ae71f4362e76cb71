"""Test training in two processes over gloo: gradients, and parts of the model that a step leaves out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from dropbench.harness.errors import Interrupted
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.methods.layers import LayerDrop
from dropbench.harness.runs.predictions import load_predictions
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training import checkpoint
from dropbench.harness.training.engine import run_trial
from dropbench.harness.trials.trial import Trial
from tests.harness.training.ranks import run_ranks
from tests.harness.training.test_regularization import CERTAIN, COMPOSITION, VISION
from tests.training import after, make_trial, run


def train_noting(directory: RunDirectory) -> tuple[dict[str, Any], list[bool]]:
    """Train; return the result, and which layers ran in the order of LayerDrop's decisions."""
    draws, run_layer = list[bool](), LayerDrop.run_layer

    def noted(self: LayerDrop, layer: Callable[[], Tensor], x: Tensor, site: Site) -> Tensor:
        draws.append(False)

        def run_it() -> Tensor:
            draws[-1] = True
            return layer()

        return run_layer(self, run_it, x, site)

    LayerDrop.run_layer = noted  # type: ignore[method-assign]
    return run_trial(directory, Settings(runs=directory.path.parent, device="cpu", threads=1)), draws


def run_pair(folder: Path, trial: Trial) -> tuple[dict[str, Any], list[list[bool]]]:
    """Return the result, and the draws of each process."""
    (result, first), (_, second) = run_ranks(2, train_noting, RunDirectory.create(folder, trial))
    return result, [first, second]


def train_unless(directory: RunDirectory, unreadable: int | None) -> int:
    """Train to the end and return the number of steps; a process of the rank `unreadable` cannot read checkpoints."""

    def fail(path: Path) -> dict[str, Any]:
        raise checkpoint.Damaged(f"{path.name} cannot be read")

    if os.environ["RANK"] == str(unreadable):
        checkpoint.read = fail
    return int(run_trial(directory, Settings(runs=directory.path.parent, device="cpu", threads=1))["steps"])


@pytest.mark.slow
def test_a_process_that_cannot_read_a_checkpoint_deletes_none(tmp_path: Path) -> None:
    trial = make_trial("none", steps=6, **VISION)
    with pytest.raises(Interrupted):
        run(tmp_path, trial, after(3))
    directory = RunDirectory(tmp_path / trial.id)
    files = sorted((directory.path / "checkpoint").iterdir())
    with pytest.raises(AssertionError, match=r"(?s)rank 1: .*not every process can read it: step-.* cannot be read"):
        run_ranks(2, train_unless, directory, 1)
    assert sorted((directory.path / "checkpoint").iterdir()) == files
    assert run_ranks(2, train_unless, directory, None) == [6, 6]


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", [COMPOSITION, CERTAIN])
def test_two_processes_train(tmp_path: Path, regularizer: str) -> None:
    trial = make_trial(regularizer, steps=6, **VISION)
    pair, _ = run_pair(tmp_path / "pair", trial)
    predictions = load_predictions(RunDirectory(tmp_path / "pair" / trial.id), "test")
    assert predictions is not None
    assert [row["index"] for row in predictions.rows] == list(range(359))  # each example once
    assert predictions.metrics()["accuracy"] == pytest.approx(pair["metrics"]["test/accuracy"])
    alone = run(tmp_path / "alone", trial)
    exact = regularizer == CERTAIN  # nothing is drawn by chance
    loss = alone["metrics"]["train/loss"]
    assert pair["metrics"]["train/loss"] == pytest.approx(loss, rel=1e-4 if exact else 0.1)
    assert exact or pair["metrics"]["train/loss"] != pytest.approx(loss, rel=1e-6)  # each process draws on its own


@pytest.mark.slow
@pytest.mark.parametrize(
    "regularizer",
    [
        "layerdrop:ratio=0.5",
        "layerdrop:ratio=0.5 + r-drop:alpha=1 + dropkey:ratio=0.3",
        "stochastic-depth:ratio=0.5",
        "patchdropout:ratio=0.5",
        "drophead:ratio=0.5",
        "headmask-important",
        "attendout:ratio=0.3,over=late@0.5",
    ],
)
def test_two_processes_train_with_parts_of_the_model_left_out(tmp_path: Path, regularizer: str) -> None:
    options = {**VISION, "steps": 6, "accumulate": 2}
    trial = make_trial(regularizer, **options)
    pair, draws = run_pair(tmp_path / "pair", trial)
    assert pair["steps"] == 6
    own = [rank[-len(rank) // 2 :] for rank in draws]  # after the check of the first batch
    assert own[0] == own[1]
    assert ("layerdrop" in regularizer) == bool(draws[0])
    assert "layerdrop" not in regularizer or {True, False} == {*own[0]}


@pytest.mark.slow
def test_two_processes_average_gradients_as_one_does(tmp_path: Path) -> None:
    """At a ratio that drops nothing, LayerDrop, whose trials average gradients, trains what `none` does."""
    options = {**VISION, "steps": 6}
    pair, draws = run_pair(tmp_path / "pair", make_trial("layerdrop:ratio=0.000000001", **options))
    assert all(draws[0][-12:])  # after the check of the first batch: two layers in six steps
    alone = run(tmp_path / "alone", make_trial("none", **options))
    assert pair["metrics"] == pytest.approx(alone["metrics"], rel=1e-4)
