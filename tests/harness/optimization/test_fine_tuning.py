"""The recipe keys of fine-tuning: each changes what is trained, and a trial with it resumes bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.seeding import derive, seed_all
from dropbench.harness.training.regularization import bind_trial
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.classifier import Classifier
from dropbench.tasks.preset_task import PresetTask
from dropbench.tasks.weights import require_fitting_weights
from tests.input_errors import one_line
from tests.tasks.making import CPU, TEXTS, task_of, trial_of
from tests.tasks.test_weights import folder as bert  # noqa: F401 - used by pytest
from tests.training import assert_resumes

SMALL: dict[str, Any] = {"steps": 4, "batch_size": 8, "max_length": 24, "evaluate_every": 4}
VIT: dict[str, Any] = {
    "steps": 4, "batch_size": 16, "evaluate_every": 4, "model.depth": 2, "model.embed_dim": 16, "model.num_heads": 2,
}  # fmt: skip


def fine_tuned(bert: Path, task: str = "text-classification", **overrides: Any) -> Trial:  # noqa: F811
    return trial_of(task, TEXTS[task], "transformers-encoder", {**SMALL, **overrides}, weights=str(bert))


def vit(**overrides: Any) -> Trial:
    return trial_of("image-classification", "digits", "vit-digits", {**VIT, **overrides}, regularizer="dropkey")


def trained(runs: Path, trial: Trial) -> dict[str, Tensor]:
    """Train with two stops; return how much each parameter has changed."""
    result = assert_resumes(runs, trial, stops=(2, 2))
    weights = torch.load(
        runs / "whole" / trial.id / "checkpoint" / f"weights-{result['selected_step']:09d}.pt", weights_only=True
    )["state_dict"]
    task: Any = task_of(PresetTask, trial)
    seed_all(derive(task.seed_of("init"), "model"))
    model: nn.Module = task.build_model()
    bind_trial(model, trial)
    return {name: (weights[name] - value).abs().sum() for name, value in model.state_dict().items()}


KEYS: dict[str, dict[str, Any]] = {
    "layer_decay": {"layer_decay": 0.5},
    "head_lr": {"head_lr": 0.1},
    "freeze": {"freeze": "embeddings,layer.0"},
    "class_weights": {"class_weights": "balanced"},
    "lr_schedule": {"lr_schedule": "polynomial", "lr_options.power": 2, "warmup": 1},
    "lora": {"lora.r": 2, "lora.dropout": 0.1},
    "optimizer": {"optimizer": "lamb"},
}


@pytest.mark.parametrize("key", KEYS)
def test_a_trial_of_a_pretrained_model_resumes_exactly(key: str, bert: Path, tmp_path: Path) -> None:  # noqa: F811
    trial = fine_tuned(bert, **KEYS[key])
    assert trial.id != fine_tuned(bert).id
    changes = trained(tmp_path, trial)
    changed = {name for name, change in changes.items() if change > 0}
    if key == "freeze":
        assert changed == {name for name in changes if "embeddings" not in name and "layer.0" not in name}
    if key == "lora":
        assert changed == {name for name in changes if "lora_" in name or "classifier" in name}
        environment = RunDirectory(tmp_path / "whole" / trial.id).read("environment.json")
        head, rank, width = 6 * 16 + 6, 2, 16
        assert environment["trained_parameters"] == head + 2 * 2 * rank * 2 * width  # of q and v in two layers
        assert environment["parameters"] > 10 * environment["trained_parameters"] / 2


@pytest.mark.parametrize("keys", [{"layer_decay": 0.5, "head_lr": 0.1}, {"lora.r": 2, "lora.targets": "qkv,fc1"}])
def test_a_trial_of_timm_resumes_exactly(keys: dict[str, Any], tmp_path: Path) -> None:
    changes = trained(tmp_path, vit(**keys))
    if "lora.r" in keys:
        changed = {name for name, change in changes.items() if change > 0}
        assert changed == {name for name in changes if "lora_" in name or name.startswith("head.")}


def test_layers_below_the_head_change_less(bert: Path, tmp_path: Path) -> None:  # noqa: F811
    changes = trained(tmp_path, fine_tuned(bert, layer_decay=0.1, head_lr=1e-2, lr=1e-3, optimizer="sgd"))
    first, second = (changes[f"model.bert.encoder.layer.{layer}.output.dense.weight"] for layer in (0, 1))
    assert changes["model.classifier.weight"] > second > first > 0


@pytest.mark.parametrize("task", ["text-classification", "sequence-labelling"])
def test_the_loss_of_a_batch_weights_its_classes(task: str, bert: Path) -> None:  # noqa: F811
    weighted: Any = task_of(PresetTask, fine_tuned(bert, task, class_weights="balanced"))
    model = weighted.build_model().eval()
    batch = weighted.batch("train", range(12))
    loss, logits = weighted.loss_and_logits(model, batch)
    tags = batch["tags"].flatten() if isinstance(batch, dict) else batch[1]
    labels = tags[tags >= 0]
    targets = torch.cat(weighted.tags["train"]) if isinstance(batch, dict) else weighted.labels["train"]
    balanced = torch.ones(len(weighted.classes))
    present = targets.unique().numpy()
    balanced[present] = torch.as_tensor(
        compute_class_weight("balanced", classes=present, y=targets.numpy()), dtype=torch.float32
    ) * (len(present) / len(balanced))
    losses = cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(loss, (losses * balanced[labels]).sum() / balanced[labels].sum())
    assert weighted.num_loss_terms(batch) == pytest.approx(float(balanced[labels].sum()))
    # Of two micro-batches, weighted by their terms:
    parts = [weighted.batch("train", part) for part in (range(5), range(5, 12))]
    terms = [weighted.num_loss_terms(part) for part in parts]
    both = sum(weighted.loss(model, part) * number for part, number in zip(parts, terms, strict=True)) / sum(terms)
    torch.testing.assert_close(both, loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "expected"), [("1,2,3,4,5,6", [1.0, 2, 3, 4, 5, 6]), ("number:2.5", [1.0, 1, 1, 1, 1, 2.5])]
)
def test_weights_by_order_and_by_name(given: str, expected: list[float], bert: Path) -> None:  # noqa: F811
    task = task_of(Classifier, fine_tuned(bert, class_weights=given))
    names = list(task.classes)
    by_name = [2.5 if name == "number" else 1.0 for name in names]
    assert cast(Tensor, task.loss_weights).tolist() == (by_name if ":" in given else expected)


@pytest.mark.parametrize(
    ("given", "message"),
    [("1,2", "class_weights=1.0,2.0: expected 6 numbers, one per class"), ("numbr:2", "'numbr': did you mean number")],
)
def test_weights_of_other_classes_are_refused_before_a_trial_is_queued(given: str, message: str) -> None:
    trial = trial_of("text-classification", "trec-synthetic", "text-transformer", {"class_weights": given})
    with one_line(message):
        require_fitting_weights(trial, CPU)


def test_micro_batches_of_weighted_classes_train_as_a_whole_batch(tmp_path: Path) -> None:
    weights: list[dict[str, Tensor]] = []
    for accumulate in (1, 4):
        trial = trial_of(
            "image-classification",
            "digits",
            "vit-digits",
            {**VIT, "class_weights": "balanced", "accumulate": accumulate},
        )
        assert_resumes(tmp_path, trial)
        path = tmp_path / "whole" / trial.id / "checkpoint" / f"weights-{4:09d}.pt"
        weights.append(torch.load(path, weights_only=True)["state_dict"])
    for name, value in weights[0].items():
        torch.testing.assert_close(weights[1][name], value, rtol=1e-3, atol=1e-4)


def test_absent_keys_are_no_part_of_a_trial() -> None:
    recipe = vit().recipe
    assert not {"head_lr", "layer_decay", "freeze", "lora", "lr_options", "class_weights"} & recipe.keys()
