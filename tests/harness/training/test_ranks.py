"""Test that the processes of a trial decide alike: their buffers, metrics and selected steps."""

from __future__ import annotations

import gzip
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from dropbench.harness.errors import Interrupted
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.predictions.store import predictions_path
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import deal
from dropbench.harness.training.engine import FINAL_SPLITS, run_trial
from dropbench.harness.training.regularization import monte_carlo
from dropbench.harness.training.trainer import Trainer
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.locate import locate
from dropbench.tasks.images.image_classification import ImageClassification
from tests.harness.training.ranks import run_ranks
from tests.harness.training.step_gradient import SGD, TRIALS, plain_trial, step_gradient, task_in
from tests.harness.training.test_regularization import VISION
from tests.tasks.making import CPU, VOLO
from tests.training import after, curve, make_trial, run

pytestmark = pytest.mark.usefixtures("few")
BATCH_NORM: dict[str, Any] = {"data": "cifar10-synthetic", "model": "volo-cifar", "batch_size": 12, "lr": 0.01, **VOLO}


def settings_of(directory: RunDirectory) -> Settings:
    return Settings(runs=directory.path.parent, device="cpu", threads=1)


def train_noting(directory: RunDirectory) -> list[Any]:
    """Train; return what this rank evaluated: metrics, buffers and the step selected so far; and the result."""
    evaluate, notes = Trainer.evaluate, list[Any]()

    def noted(self: Trainer, model: nn.Module, split: Split, step: int, *name: str) -> dict[str, float]:
        metrics = evaluate(self, model, split, step, *name)
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


DRAWING = {"accumulate": 4, "batch_size": 12, "erase": 0.5, "mixup": 0.8, "cutmix": 1.0, "model.drop_path_rate": 0.5}
"""Draws of data and model, which depend on the micro-batch and not on the rank that computes it."""


def gradients(directory: RunDirectory, steps: int, settings: Settings) -> list[Any]:
    """Return the gradient of each step over all ranks."""
    return [step_gradient(directory, step=step, settings=settings).numpy() for step in range(steps)]


def require_gradient_of_one(directory: RunDirectory, ranks: int, steps: int = 1, settings: Settings = CPU) -> None:
    alone = gradients(directory, steps, settings)
    for shared in run_ranks(ranks, gradients, directory, steps, settings):
        for ours, whole in zip(shared, alone, strict=True):
            assert np.linalg.norm(ours - whole) <= 1e-6 * np.linalg.norm(whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "ranks", "options"),
    [
        ("object-detection", 2, {"batch_size": 3}),
        ("interaction-detection", 2, {"accumulate": 3}),
        ("language-modelling", 3, {"accumulate": 4}),
        ("text-classification", 3, {"batch_size": 2}),
        ("image-classification", 2, DRAWING),
    ],
)
def test_ranks_have_the_gradient_of_one(tmp_path: Path, task: str, ranks: int, options: dict[str, Any]) -> None:
    """Also if ranks have fewer samples than others, or none."""
    require_gradient_of_one(RunDirectory.create(tmp_path, plain_trial(task, **options)), ranks)


@pytest.mark.slow
def test_layers_that_run_again_make_the_draws_that_ranks_share(tmp_path: Path) -> None:
    keys: list[dict[str, Any]] = [{}, {"checkpoint_activations": True}]
    trials = [make_trial("layerdrop:ratio=0.5", **VISION, **SGD, **key) for key in keys]
    results = [run_ranks(2, gradients, RunDirectory.create(tmp_path, trial), 3, CPU) for trial in trials]
    np.testing.assert_array_equal(results[0], results[1])
    assert np.linalg.norm(results[0][0][0]) > 0


@pytest.mark.slow
def test_eight_ranks_translate_what_one_does(tmp_path: Path) -> None:
    """A corpus of 6 mod 8 pairs, whose epochs end with fewer micro-batches than ranks."""
    folder = tmp_path / "corpus"
    shutil.copytree(locate("multi30k-synthetic").folder, folder)
    for file in folder.glob("train.*"):
        lines = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
        file.write_bytes(gzip.compress(b"".join(lines[:-2])))
    settings = replace(CPU, folders={"multi30k": folder})
    trial = plain_trial("translation", settings, accumulate=8, max_tokens=300)
    directory = RunDirectory.create(tmp_path, trial)
    task = task_in(directory, settings)
    parts = [task.micro_batches(batch, 8) for batch in task.epoch(0, task.epoch_seed(0))]
    assert task.size("train") % 8 == 6
    assert [len(step) for step in parts] == [8, 8, 3]
    assert deal(parts[0], 3, 8) == [(parts[0][3], 3, None)]
    require_gradient_of_one(directory, 8, len(parts), settings)


def test_micro_batches_are_dealt_whole_and_the_rest_is_shared() -> None:
    parts = [[*range(start, start + 4)] for start in range(0, 20, 4)]
    assert [deal(parts, rank, 2) for rank in (0, 1)] == [
        [(parts[0], 0, None), (parts[2], 2, None), ([16, 18], 4, 0)],
        [(parts[1], 1, None), (parts[3], 3, None), ([17, 19], 4, 1)],
    ]
    assert [deal(parts[:2], rank, 5) for rank in range(5)] == [
        [([0, 3], 0, 0)], [([4, 6], 1, 0)], [([1], 0, 1)], [([5, 7], 1, 1)], [([2], 0, 2)],
    ]  # fmt: skip
    assert deal([[7]], 1, 3) == [([], 0, 1)]
    assert deal(parts, 0, 1) == [(part, number, None) for number, part in enumerate(parts)]


def train_losses(whole: RunDirectory, parts: RunDirectory, calls: int) -> list[float]:
    """Return the train loss of a trial that is not stopped, and of one that stops at the given call and resumes."""
    with pytest.raises(Interrupted):
        run_trial(parts, settings_of(parts), after(calls))
    return [run_trial(directory, settings_of(directory))["metrics"]["train/loss"] for directory in (whole, parts)]


@pytest.mark.slow
def test_the_train_loss_after_a_resume_is_that_of_all_ranks(tmp_path: Path) -> None:
    trial = make_trial(steps=200, evaluate_every=200, **{**VISION, "batch_size": 4})
    directories = [RunDirectory.create(tmp_path / name, trial) for name in ("whole", "parts")]
    for whole, parts in run_ranks(2, train_losses, *directories, 199):  # it is logged every second step
        assert parts == pytest.approx(whole, rel=1e-12)


def evaluations(directories: list[RunDirectory]) -> list[Any]:
    """Return the metrics and the recorded rows of each untrained trial, and how many batches this rank evaluated."""
    results: list[Any] = []
    for directory in directories:
        task, calls = task_in(directory, CPU), [0]
        trainer = Trainer(task, directory, settings_of(directory), lambda: False)
        model = trainer.eval_model()
        counter = model.register_forward_hook(lambda *_, calls=calls: calls.__setitem__(0, calls[0] + 1))
        recorder = Recorder()
        with monte_carlo(model, trainer.mc_samples):
            for split in FINAL_SPLITS:
                task.recorder = recorder = Recorder()
                metrics = trainer.evaluate(model, split, 0)
                results.append((metrics, recorder.rows, calls[0]))
        counter.remove()
        with torch.no_grad():
            results.append((task.summary(model), recorder.rows, 0))
    return results


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_share_an_evaluation_and_have_the_metrics_of_one(tmp_path: Path, ranks: int) -> None:
    uneven: dict[str, Any] = {"image-classification": {"batch_size": 7}, "translation": {"beam": 2, "max_len_b": 10}}
    trials = [plain_trial(task, **uneven.get(task, {})) for task in TRIALS]
    trials.append(make_trial("dropkey:ratio=0.3", align="monte-carlo-2", steps=1, **VISION))
    directories = [RunDirectory.create(tmp_path, trial) for trial in trials]
    alone = evaluations(directories)
    shared = run_ranks(ranks, evaluations, directories)
    for number, (metrics, rows, calls) in enumerate(alone):
        drawing = number >= 3 * len(TRIALS)
        assert rows or number % 3 == 2
        for results in shared:
            assert results[number][0] == pytest.approx(metrics, rel=1e-12, abs=0)
            assert results[number][1] == rows
        if not drawing:
            assert sum(results[number][2] for results in shared) == calls
            assert max(results[number][2] for results in shared) <= calls // ranks + 2


def train_with_a_fault(directory: RunDirectory) -> Any:
    """Train; the last rank fails to record predictions."""
    if os.environ["RANK"] == "1":
        Recorder.add = None  # type: ignore[assignment,method-assign]
    return run_trial(directory, settings_of(directory))


@pytest.mark.slow
def test_a_fault_in_the_predictions_of_one_rank_leaves_the_metrics(tmp_path: Path) -> None:
    trial = make_trial(steps=1, **VISION)
    directory = RunDirectory.create(tmp_path, trial)
    results = run_ranks(2, train_with_a_fault, directory)
    assert results[0]["metrics"] == results[1]["metrics"]
    lost = [note for note in results[0]["notes"] if "no predictions for" in note]
    assert [note.partition(" are kept")[0] for note in lost] == ["no predictions for dev", "no predictions for test"]
    assert not any(predictions_path(directory.path, split).exists() for split in FINAL_SPLITS)


def losses_with_an_unused_parameter(directory: RunDirectory) -> list[float]:
    """Train a model with a parameter that its loss does not depend on; return the losses."""
    build = ImageClassification.build_model

    def with_mask_token(self: ImageClassification) -> nn.Module:
        model = build(self)
        model.mask_token = nn.Parameter(torch.zeros(2))
        return model

    ImageClassification.build_model = with_mask_token  # type: ignore[method-assign]
    run_trial(directory, settings_of(directory))
    return [event["loss"] for event in directory.events() if event["event"] == "train"]


@pytest.mark.slow
def test_ranks_train_a_model_with_a_parameter_that_nothing_uses(tmp_path: Path) -> None:
    """DistributedDataParallel refuses it, in the second step."""
    trial = make_trial("dropkey:ratio=0.3", steps=4, evaluate_every=4, accumulate=2, **VISION)
    run(tmp_path / "without", trial)
    losses = [event["loss"] for event in curve(tmp_path / "without", trial) if event["event"] == "train"]
    for shared in run_ranks(2, losses_with_an_unused_parameter, RunDirectory.create(tmp_path / "with", trial)):
        assert shared == pytest.approx(losses, rel=1e-5)


def reductions(directory: RunDirectory) -> list[list[int]]:
    """Train; return the sizes of the tensors that each step exchanges by itself, DistributedDataParallel's apart."""
    steps, step, reduce, gather = list[list[int]](), Trainer.step, dist.all_reduce, dist.all_gather

    def noted_step(self: Trainer, batch: Any) -> Any:
        steps.append([])
        loss = step(self, batch)
        steps.append([])
        return loss

    def noted_reduce(tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        if steps:
            steps[-1].append(tensor.numel())
        return reduce(tensor, *arguments, **options)

    def noted_gather(results: list[Tensor], tensor: Tensor, *arguments: Any, **options: Any) -> Any:
        if steps:
            steps[-1].append(tensor.numel())
        return gather(results, tensor, *arguments, **options)

    Trainer.step, dist.all_reduce, dist.all_gather = noted_step, noted_reduce, noted_gather  # type: ignore[method-assign,assignment]
    run_trial(directory, settings_of(directory))
    return steps


@pytest.mark.slow
@pytest.mark.parametrize("regularizer", ["none", "layerdrop:ratio=0.5"])
def test_a_step_waits_once_and_reduces_gradients_at_once(tmp_path: Path, regularizer: str) -> None:
    """Requests to stop are sent with the loss terms; the parameters without a gradient, with the gradients."""
    trial = make_trial(regularizer, steps=4, evaluate_every=4, **VISION)
    for steps in run_ranks(2, reductions, RunDirectory.create(tmp_path, trial)):
        in_steps, between = steps[::2], steps[1:-1:2]
        assert [len(sizes) for sizes in in_steps] == [1 if regularizer == "none" else 2] * 4
        assert all(sizes[0] == 4 and all(size > 1000 for size in sizes[1:]) for sizes in in_steps)
        assert all(sizes == [1] for sizes in between), "the loss that is logged"
