"""Test that fine-tuning computes the losses of transformers' Trainer: same weights, batches, AdamW and schedule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from dropbench.tasks.text.whole_text import WholeTextTask
from tests.tasks.making import task_of, trial_of
from tests.tasks.test_weights import folder as bert  # noqa: F401 - used by pytest
from tests.training import curve, run

STEPS = 100
RECIPE: dict[str, Any] = {
    "steps": STEPS, "batch_size": 8, "max_length": 24, "evaluate_every": STEPS, "model.dropout": 0.0, "clip_norm": 1.0,
    "lr": 1e-4, "lr_schedule": "linear", "warmup": 0.1, "warmup_lr": 0.0, "optimizer": "adamw", "beta2": 0.999,
}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


class Batches(torch.utils.data.Dataset[dict[str, Any]]):
    """The batches of a task, in the order of training, as the library's models take them."""

    def __init__(self, task: WholeTextTask) -> None:
        self.task = task
        self.indices = [indices for epoch in range(STEPS) for indices in task.epoch(8, task.epoch_seed(epoch))][:STEPS]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, step: int) -> dict[str, Any]:
        inputs, labels = self.task.batch("train", self.indices[step])
        tokens, others = inputs if isinstance(inputs, tuple) else (inputs, {})
        mask = (tokens != self.task.tokenizer.padding).long()
        return {"input_ids": tokens, "attention_mask": mask, "labels": labels, **others}


class InOrder(transformers.Trainer):  # type: ignore[misc]
    """A Trainer that takes whole batches in order, and keeps the loss of each step."""

    losses: list[float]

    def get_train_dataloader(self) -> Any:
        assert isinstance(self.train_dataset, Batches)
        return torch.utils.data.DataLoader(self.train_dataset, batch_size=None)

    def compute_loss(self, *args: Any, **options: Any) -> Any:
        loss = super().compute_loss(*args, **options)
        self.losses.append((loss[0] if isinstance(loss, tuple) else loss).item())
        return loss


@pytest.mark.parametrize(
    ("task", "data", "classes"),
    [
        ("text-classification", "cola-synthetic", 2),
        ("textual-entailment", "snli-synthetic", 3),
        ("text-regression", "sts-b-synthetic", 1),
    ],
)
def test_losses_are_those_of_the_trainer(
    tmp_path: Path, request: pytest.FixtureRequest, task: str, data: str, classes: int
) -> None:
    folder = request.getfixturevalue("bert")
    plain = transformers.BertForSequenceClassification.from_pretrained(folder, num_labels=classes, **NO_DROPOUT)
    plain.save_pretrained(tmp_path / "weights")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "weights")
    trial = trial_of(task, data, "transformers-encoder", RECIPE, weights=str(tmp_path / "weights"))
    run(tmp_path, trial)
    ours = [event["loss"] for event in curve(tmp_path, trial) if event["event"] == "train"]
    own = task_of(WholeTextTask, trial)
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path / "trainer"), max_steps=STEPS, learning_rate=1e-4, lr_scheduler_type="linear",
        warmup_steps=STEPS // 10, weight_decay=0.0, max_grad_norm=1.0, use_cpu=True, report_to=[], save_strategy="no",
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    trainer = InOrder(plain, arguments, train_dataset=Batches(own))
    trainer.losses = []
    trainer.train()
    assert len(ours) == STEPS
    assert ours == pytest.approx(trainer.losses, rel=1e-5)
