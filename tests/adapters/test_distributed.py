"""Test regularizers under DistributedDataParallel and activation checkpointing, as transformers' Trainer does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from transformers import BertConfig, BertForSequenceClassification

from dropbench import regularize, training_loss

pytestmark = pytest.mark.filterwarnings(
    "ignore:regularize. attendout", "ignore:`gradient_checkpointing_enable` is deprecated"
)


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def gradients(spec: str, *, checkpointing: bool, find_unused: bool | None) -> list[Tensor]:
    """Return the gradients after some steps; without `find_unused`, of the model alone."""
    sizes: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "vocab_size": 20}
    torch.manual_seed(0)
    model: Any = BertForSequenceClassification(BertConfig(num_hidden_layers=3, **sizes)).train()
    regularize(model, spec, quiet=True)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    called = model
    if find_unused is not None:
        called = nn.parallel.DistributedDataParallel(model, find_unused_parameters=find_unused)

    def forward(batch: Tensor) -> tuple[Tensor, Tensor]:
        out = called(batch, labels=torch.tensor([0, 1]))
        return out.loss, out.logits

    for step in range(3):
        torch.manual_seed(step)
        model.zero_grad()
        training_loss(model, forward, torch.arange(10).view(2, 5), step=step, progress=0.1).backward()
    return [torch.zeros_like(each) if each.grad is None else each.grad for each in model.parameters()]


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize(("spec", "find_unused"), [("attendout", False), ("layerdrop:ratio=0.5", True)])
def test_gradients_are_those_of_one_process(spec: str, find_unused: bool, checkpointing: bool, group: None) -> None:
    alone = gradients(spec, checkpointing=False, find_unused=None)
    assert any(grad.any() for grad in alone)
    torch.testing.assert_close(gradients(spec, checkpointing=checkpointing, find_unused=find_unused), alone)
