"""Training loops of peers: one written by hand, and that of timm's ``train.py``, which no package contains."""

from __future__ import annotations

from itertools import count, islice
from typing import Any

import timm
import torch
from timm.optim._optim_factory import create_optimizer_v2
from timm.scheduler.scheduler_factory import create_scheduler_v2
from timm.utils.clip_grad import dispatch_clip_grad
from timm.utils.metrics import AverageMeter
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from benchmarks.attention import RATIO, algorithm_1
from dropbench.harness.seeding import derive, seed_all
from dropbench.harness.training.data_loading import StepBatches
from dropbench.harness.trials.optimization import learning_rate
from dropbench.harness.trials.task import Task

ALGORITHM_1 = "dropkey-algorithm-1"
"""The name of the paper's DropKey among the attention functions of transformers."""


def register_algorithm_1() -> None:
    """Add the paper's DropKey to the attention functions of transformers."""

    def attend(
        module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **_: Any
    ) -> tuple[Tensor, Tensor | None]:
        return algorithm_1(q, k, v, mask).transpose(1, 2).contiguous(), None

    AttentionInterface.register(ALGORITHM_1, attend)
    AttentionMaskInterface.register(ALGORITHM_1, eager_mask)


class Logits(nn.Module):
    """An image classifier of transformers that returns logits."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Classify images (B, 3, H, W) → logits (B, classes)."""
        logits: Tensor = self.model(pixel_values=images).logits
        return logits


class PlainLoop:
    """A training loop written by hand, without a regularizer, with torch's default AdamW."""

    def __init__(self, task: Task, steps: int) -> None:
        self.task, self.batches, self.at, self.steps = task, StepBatches(task, 0), count(), steps
        seed_all(derive(0, "model"))
        self.model = self.build()
        self.optimizer = self.build_optimizer()

    def build(self) -> nn.Module:
        """Return the model."""
        return self.task.build_model()

    def build_optimizer(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        recipe = self.task.recipe
        return torch.optim.AdamW(self.model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)

    def run(self) -> None:
        """Do some more steps."""
        self.model.train()
        for step in islice(self.at, self.steps):
            for group in self.optimizer.param_groups:
                group["lr"] = learning_rate(self.task.recipe, step, 10_000)
            part = self.batches[step][0].batch
            self.task.loss(self.model, part).backward()
            if self.task.recipe.clip_norm:
                nn.utils.clip_grad_norm_(self.model.parameters(), self.task.recipe.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)


class TimmTraining(PlainLoop):
    """The step of timm's ``train.py`` without mixup: its model, optimizer, schedule, clipping and meters."""

    def build(self) -> nn.Module:
        return timm.create_model("vit_small_patch16_224", num_classes=1000, attn_drop_rate=RATIO)

    def build_optimizer(self) -> torch.optim.Optimizer:
        recipe = self.task.recipe
        optimizer = create_optimizer_v2(self.model, opt="adamw", lr=recipe.lr, weight_decay=recipe.weight_decay)
        self.schedule, _ = create_scheduler_v2(optimizer, num_epochs=100, updates_per_epoch=100, step_on_epochs=False)
        self.losses: Any = AverageMeter()  # type: ignore[no-untyped-call]
        return optimizer

    def run(self) -> None:
        self.model.train()
        for step in islice(self.at, self.steps):
            part = self.batches[step][0].batch
            with torch.autocast("cpu", torch.bfloat16, enabled=self.task.recipe.amp == "bf16"):
                loss = self.task.loss(self.model, part)
            loss.backward()
            if self.task.recipe.clip_norm:
                dispatch_clip_grad(self.model.parameters(), self.task.recipe.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.update(loss.item(), self.task.recipe.batch_size)
            self.schedule.step_update(num_updates=step + 1, metric=self.losses.avg)
