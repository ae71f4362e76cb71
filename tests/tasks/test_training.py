"""Tasks learn from generated data, and a stopped trial ends like one that was not stopped."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tasks.making import DETR, LANGUAGE_MODEL, METRO, TEXTS, trial_of
from tests.training import assert_resumes, run

TEXT = {"lr": 3e-3, "word_dropout": 0.0, "model.dropout": 0.0, "model.layers": 1, "model.dim": 32, "model.heads": 2}
Metrics = dict[str, float]


@pytest.mark.parametrize(
    ("task", "options", "learned"),
    [
        ("text-classification", {"epochs": 15}, lambda metrics: metrics["test/accuracy"] > 3 * 100 / 6),
        ("sequence-labelling", {"epochs": 3, "batch_size": 8}, lambda metrics: metrics["test/accuracy"] > 60),
        ("textual-entailment", {"epochs": 6, "batch_size": 16}, lambda metrics: metrics["test/accuracy"] > 45),
    ],
)
def test_training_on_texts_learns(
    tmp_path: Path, task: str, options: dict[str, Any], learned: Callable[[Metrics], bool]
) -> None:
    result = run(tmp_path, trial_of(task, TEXTS[task], "text-transformer", {**TEXT, **options}))
    assert learned(result["metrics"]), result["metrics"]


def test_a_language_model_learns_more_than_unigram_frequencies(tmp_path: Path) -> None:
    options = {**LANGUAGE_MODEL, "steps": 150, "evaluate_every": 150, "batch_size": 16, "lr": 0.01, "model.dim": 48}
    trial = trial_of(
        "language-modelling", "text-synthetic", "learned-dropout-lm", options, regularizer="learned-dropout"
    )
    metrics = run(tmp_path, trial)["metrics"]
    assert metrics["test/loss"] < metrics["test/unigram-loss"] - 0.3
    assert metrics["test/perplexity"] == pytest.approx(math.exp(metrics["test/loss"]))
    assert 0 < metrics["test/kept"] < 1
    assert all(math.isfinite(value) for value in metrics.values())


STEPS = {"image_size": 32, "steps": 4, "evaluate_every": 4}
TRANSLATION = {
    "pieces": 120, "model.encoder_layers": 1, "model.decoder_layers": 2, "model.dim": 32, "model.feedforward": 64,
    "model.dropout": 0.1, "epochs": 2, "max_tokens": 500, "accumulate": 2, "beam": 1, "max_len_b": 10,
    "average_last": 2,
}  # fmt: skip


RESUMED: dict[str, tuple[str, str, dict[str, Any], str, tuple[int, ...], str]] = {
    "object-detection": ("coco-synthetic", "detr", {**DETR, **STEPS}, "none", (2,), "dev/ap test/ap test/ap50"),
    "mesh-recovery": (
        "humbi-synthetic", "metro", {**METRO, **STEPS, "rotate": 30, "noise": 0.4}, "dropkey", (2,),
        "dev/mpve test/mpve test/mpjpe test/pa-mpjpe",
    ),
    "translation": (
        "multi30k-synthetic", "transformer-wmt-en-de", TRANSLATION, "dropattention-c",
        (3, 5),  # before and after the end of an epoch
        "dev/loss test/bleu",
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", [pytest.param(t, marks=[pytest.mark.slow] * (t == "mesh-recovery")) for t in RESUMED])
def test_a_stopped_trial_ends_bit_for_bit_like_another(tmp_path: Path, task: str) -> None:
    data, model, options, regularizer, stops, metrics = RESUMED[task]
    whole = assert_resumes(tmp_path, trial_of(task, data, model, options, regularizer=regularizer), stops)
    assert {*metrics.split(), "train/loss"} <= set(whole["metrics"])
    assert whole["metrics"]["train/loss"] > 0
