"""Fine-tuning with LoRA by transformers' Trainer: the regularizers act, in the model itself or around the adapters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

from dropbench import regularize, sites, training_loss

peft = pytest.importorskip("peft", reason="peft is not installed")
STEPS = 3
pytestmark = [
    pytest.mark.filterwarnings("ignore:regularize. .* changes the loss"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),  # peft calls it
]


def bert() -> nn.Module:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, num_labels=3,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.5,
    )  # fmt: skip
    model: nn.Module = BertForSequenceClassification(config)
    return model


def with_lora(model: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "value"], init_lora_weights=False)
    adapted: nn.Module = peft.get_peft_model(model, config)
    return adapted


class RegularizedTrainer(Trainer):  # type: ignore[misc]
    """A Trainer with the terms of the regularizer in its loss, which it keeps, with the number of passes per step."""

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **options: Any) -> Any:
        self.passes.append(0)

        def forward(batch: Any) -> tuple[Tensor, Tensor]:
            self.passes[-1] += 1
            outputs = model(**batch)
            return outputs.loss, outputs.logits

        loss = training_loss(model, forward, inputs, step=self.state.global_step)
        self.losses.append(loss.item())
        return loss


def train(model: nn.Module, folder: Path) -> tuple[list[float], list[int], dict[str, Tensor]]:
    """Train for some steps; return the losses, the passes per step, and how much each parameter has changed."""
    generator = torch.Generator().manual_seed(2)
    rows = [
        {"input_ids": torch.randint(30, (8,), generator=generator), "labels": torch.tensor(row % 3)}
        for row in range(12)
    ]
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    arguments = TrainingArguments(
        str(folder), per_device_train_batch_size=4, max_steps=STEPS, learning_rate=0.1, report_to=[], use_cpu=True,
        disable_tqdm=True, save_strategy="no", seed=3, logging_strategy="no", dataloader_pin_memory=False,
    )  # fmt: skip
    trainer: Any = RegularizedTrainer(model, arguments, train_dataset=rows)
    trainer.losses, trainer.passes = [], []
    trainer.train()
    changes = {name: (parameter - before[name]).abs().sum() for name, parameter in model.named_parameters()}
    return trainer.losses, trainer.passes, changes


@pytest.mark.parametrize(
    ("spec", "passes"), [("hiddenkey", 2), ("r-drop:alpha=5 + dropkey:ratio=0.3", 2), ("dropkey:ratio=0.3", 1)]
)
def test_a_regularizer_acts_on_lora_in_a_trainer(spec: str, passes: int, tmp_path: Path) -> None:
    plain, *_ = train(with_lora(bert()), tmp_path)
    losses, calls, changes = train(with_lora(regularize(bert(), spec, quiet=True)), tmp_path)
    around, *_ = train(regularize(with_lora(bert()), spec, quiet=True), tmp_path)
    assert losses == pytest.approx(around, rel=1e-6)
    assert all(abs(ours - other) > 1e-3 for ours, other in zip(losses, plain, strict=True))
    assert calls == [passes] * STEPS
    changed = {name for name, change in changes.items() if change > 0}
    assert changed == {name for name in changes if "lora_" in name or "modules_to_save" in name}


def test_the_loss_of_lora_has_the_divergence_of_two_passes(tmp_path: Path) -> None:
    """With the same draws of dropkey, the loss grows with the weight by the divergence."""
    first = [
        train(with_lora(regularize(bert(), f"r-drop:alpha={alpha} + dropkey:ratio=0.3", quiet=True)), tmp_path)[0][0]
        for alpha in (5.0, 10.0, 15.0)
    ]
    assert first[1] - first[0] > 1e-3
    assert first[2] - first[1] == pytest.approx(first[1] - first[0], rel=1e-3)


def test_hiddenkey_acts_on_keys_and_hidden_states_of_an_adapted_model() -> None:
    model = regularize(with_lora(bert()), "hiddenkey", quiet=True)
    acting = {site.kind for site in sites(model) if site.ratio > 0.0 or any(part.ratio > 0.0 for part in site.parts)}
    assert {"encoder-self", "feed-forward"} <= acting
