"""Test regularizers of the loss in the engine: resuming, several processes, repeated batches, and refused tasks."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.data_loading import repeat_batch
from dropbench.harness.training.trainer import Trainer
from dropbench.harness.trials.task import TASKS, Task
from dropbench.harness.trials.trial import Trial
from tests.patience import PATIENCE
from tests.training import assert_resumes, curve, make_trial, run

COMPOSITION = "dropkey:ratio=0.3 + drophead:ratio=0.1 + r-drop:alpha=1"
CERTAIN = "ad-drop:ratio=0.999999999,alternate=false"
REGULARIZERS = (
    COMPOSITION,
    "attendout:ratio=0.3 + headmask-important:draw=sample",
    "ad-drop:integral_steps=2,alternate=false + layerdrop",
)
SMALL: dict[str, Any] = {"model.layers": 1, "model.dim": 24, "model.heads": 2}
LANGUAGE: dict[str, Any] = {"context": 16, "vocabulary": 300, "batch_size": 8, "evaluation_batches": 2, **SMALL}
LANGUAGE["model.heads"] = 3
TRANSLATION: dict[str, Any] = {
    "pieces": 120, "max_tokens": 300, "model.encoder_layers": 1, "model.decoder_layers": 1, "model.dim": 32,
    "model.feedforward": 64, "model.dropout": 0.0,
}  # fmt: skip
TEXT: dict[str, Any] = {"task": "text-classification", "data": "trec-synthetic", "model": "text-transformer"}
SHORT: dict[str, Any] = {**TEXT, "steps": 8, "batch_size": 32, "evaluate_every": 4, "model.dropout": 0.1}
SPLIT: dict[str, Any] = {"micro_batch_splits": 2}
VISION: dict[str, Any] = {"model.depth": 2, "model.embed_dim": 16, "batch_size": 32}


def small(regularizer: str) -> Trial:
    """A trial of a few steps whose model has dropout, which makes the passes differ."""
    return make_trial(regularizer, **SHORT)


KILLED = """
import os, signal, sys
from pathlib import Path
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial

directory = RunDirectory(Path(sys.argv[1]))
calls = iter(range(10**6))

def stop():
    if next(calls) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return False

run_trial(directory, Settings(runs=directory.path.parent, device="cpu", threads=1, checkpoint_seconds=0.0), stop)
"""


@pytest.mark.parametrize("regularizer", REGULARIZERS)
def test_a_run_resumes_bit_for_bit(tmp_path: Path, regularizer: str) -> None:
    assert_resumes(tmp_path, small(regularizer), stops=[5])


@pytest.mark.slow
def test_a_run_resumes_bit_for_bit_after_sigkill(tmp_path: Path) -> None:
    trial = small(COMPOSITION)
    result = run(tmp_path / "whole", trial)
    directory = RunDirectory.create(tmp_path / "killed", trial)
    command = [sys.executable, "-c", KILLED, str(directory.path)]
    killed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    assert sorted((directory.path / "checkpoint").glob("step-*.pt"))
    assert run(tmp_path / "killed", trial) == result
    assert curve(tmp_path / "killed", trial) == curve(tmp_path / "whole", trial)


@pytest.mark.parametrize(
    ("regularizer", "factors"),
    [
        ("dropkey:ratio=0.4,over=curriculum@5", [1 - math.exp(-5 * step / 8) for step in range(8)]),
        ("drophead:ratio=0.4,over=v@0.5", [1.0, 0.75, 0.5, 0.25, 0.0, 0.25, 0.5, 0.75]),
        ("dropkey:ratio=0.4,over=early@0.5", [1.0] * 4 + [0.0] * 4),
    ],
)
def test_a_schedule_over_steps_is_followed_in_a_run_and_after_a_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regularizer: str, factors: list[float]
) -> None:
    ratios, step = [], Trainer.step

    def noted(trainer: Trainer, batch: list[Any]) -> torch.Tensor:
        loss = step(trainer, batch)
        ratios.append(trainer.bound_sites[0].ratio)
        return loss

    monkeypatch.setattr(Trainer, "step", noted)
    trial = small(regularizer)
    assert_resumes(tmp_path, trial, stops=(3, 2))  # after steps 3 and 5
    assert ratios[:8] == pytest.approx([0.4 * factor for factor in factors])
    assert ratios[8:] == ratios[:8]


@pytest.mark.slow
def test_a_composition_trains_on_real_texts(tmp_path: Path) -> None:
    """On the questions of TREC, if DROPBENCH_DATA has them: better than the most frequent of the six classes."""
    root = Path(os.environ.get("DROPBENCH_DATA", ""))
    if not (root / "trec").is_dir():
        pytest.skip("no trec in DROPBENCH_DATA")
    folders = {"trec": root / "trec"}
    trial = make_trial(
        COMPOSITION, folders=folders, steps=60, batch_size=32, evaluate_every=60, lr=0.003, **{**TEXT, "data": "trec"}
    )
    assert run(tmp_path, trial, folders=folders)["metrics"]["test/accuracy"] > 35.0


@pytest.mark.parametrize("regularizer", ["r-drop:alpha=0", "dropkey:ratio=0 + r-drop:alpha=0"])
def test_weight_0_equals_none_bit_for_bit(tmp_path: Path, regularizer: str) -> None:
    plain, weightless = small("none"), small(regularizer)
    if "dropkey" in regularizer:  # which replaces the dropout of attention
        plain, weightless = (make_trial(name, **{**SHORT, "model.dropout": 0.0}) for name in ("none", regularizer))
    assert run(tmp_path, weightless)["metrics"] == run(tmp_path, plain)["metrics"]
    assert curve(tmp_path, weightless) == curve(tmp_path, plain)


def test_micro_batches_and_their_splits_train_what_whole_batches_do(tmp_path: Path) -> None:
    """AD-DROP with a ratio of almost 1 draws nothing by chance, so that only rounding differs."""
    options: dict[str, Any] = {"steps": 6, **VISION}
    whole = run(tmp_path / "whole", make_trial(CERTAIN, **options))
    for name, trial, changes in (
        ("micro", make_trial(CERTAIN, accumulate=4, **options), {}),
        ("split", make_trial(CERTAIN, **options), SPLIT),
    ):
        result = run(tmp_path / name, trial, **changes)
        assert result["metrics"]["train/loss"] == pytest.approx(whole["metrics"]["train/loss"], rel=1e-4)


BATCHES: dict[str, dict[str, Any]] = {
    "text-classification": TEXT,
    "sequence-labelling": {**TEXT, "data": "conll2000-synthetic", "features": "suffix3,case,characters,pos"},
    "language-modelling": {"data": "text-synthetic", "model": "learned-dropout-lm", **LANGUAGE},
    "translation": {"data": "multi30k-synthetic", "model": "transformer-wmt-en-de", **TRANSLATION},
    "image-classification": VISION,
    "image-classification: token labels": {
        "data": "cifar10-synthetic",
        "model": "volo-cifar",
        "token_labels": "image",
        "model.layers": "1,1",
        "model.embed_dim": 16,
        "model.num_heads": 2,
        "model.stem_dim": 4,
        "model.mlp_ratio": 1,
    },
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_repeated_batch_has_the_same_loss_and_the_logits_twice(name: str) -> None:
    task = task_of(make_trial(**{**BATCHES[name], "task": name.partition(":")[0]}))
    assert task.gives_logits()
    torch.manual_seed(0)
    model = task.build_model().eval()
    batch = task.batch("train", next(iter(task.epoch(8, 0)))[:8])
    with torch.no_grad():
        torch.manual_seed(1)
        loss, logits = task.loss_and_logits(model, batch)
        torch.manual_seed(1)
        twice_loss, twice = task.loss_and_logits(model, repeat_batch(batch, 2))
    assert float(twice_loss) == pytest.approx(float(loss), rel=1e-5)
    for half in twice.chunk(2):
        torch.testing.assert_close(half, logits, rtol=1e-4, atol=1e-5)
    terms = task.num_loss_terms(batch)
    assert task.num_loss_terms(repeat_batch(batch, 2)) == (None if terms is None else 2 * terms)


def task_of(trial: Trial) -> Task:
    task = TASKS.get(trial.task)(trial, Settings(device="cpu", threads=1))
    task.setup()
    return task


def test_a_task_without_class_scores_refuses_them_before_anything_is_queued() -> None:
    with pytest.raises(InputError, match="r-drop: it needs class scores, which task 'mesh-recovery' does not give"):
        make_trial("r-drop", task="mesh-recovery", data="humbi-synthetic", model="metro")


def test_the_order_of_writing_makes_another_trial_only_if_parts_do_not_commute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parts = COMPOSITION.split(" + ")
    assert small(" + ".join(reversed(parts))).id == small(COMPOSITION).id
    assert "other order" not in capsys.readouterr().err
    first, second = "dropkey:ratio=0.3", "dropattention-c:ratio=0.1"
    assert small(f"{first} + {second}").id != small(f"{second} + {first}").id
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "dropkey + dropattention-c: applied as written: the other order is another trial",
        "dropattention-c + dropkey: applied as written: the other order is another trial",
    ]
    small(f"{first} + {second}")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("regularizer", ["masksub", "dropkey + masksub"])
def test_a_part_that_fits_no_site_is_refused(regularizer: str) -> None:
    with pytest.raises(InputError, match=r"'masksub' fits none of the"):
        small(regularizer)
