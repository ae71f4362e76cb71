"""A training with DropKey, end to end, against what a user would run instead: libraries' loops, and their dropout.

Ours is the engine with DropKey, and its peers are given the engine's batches and loss. Each has the optimizer that it
has by default. timm's ``train.py`` is in no package: its step is written here from the functions that it calls.
Where the CPU multiplies bfloat16, ViT-S and BERT are also measured with mixed precision, on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import timm
import torch
from timm.optim._optim_factory import create_optimizer_v2
from timm.scheduler.scheduler_factory import create_scheduler_v2
from timm.utils.clip_grad import dispatch_clip_grad
from timm.utils.metrics import AverageMeter
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
)
from transformers.masking_utils import eager_mask

from benchmarks.attention import RATIO, algorithm_1
from benchmarks.measure import Measurement, compare
from benchmarks.training import translation
from benchmarks.training.engine import Ours, Trained
from harness.runs.run_directory import RunDirectory
from harness.seeding import derive, seed_all
from harness.settings import Settings
from harness.training import trainer
from harness.training.data_loading import StepBatches
from harness.trials.optimization import learning_rate
from harness.trials.task import TASKS, Task
from harness.trials.trial import TrialRequest
from tasks.text.text_classification import TextClassification

ROUNDS = 10
ALGORITHM_1 = "dropkey-algorithm-1"
"""The name of the paper's DropKey among the attention functions of transformers."""
VIT = {
    "task": "image-classification", "data": "imagenet-synthetic", "model": "vit-small",
    "overrides": {"batch_size": 8, "image_size": 224},
}  # fmt: skip
BERT_SMALL = {
    "task": "text-classification", "data": "yelp13-synthetic", "model": "bert-tiny",
    "overrides": {"batch_size": 16, "max_length": 256, "model.layers": 4, "model.dim": 512, "model.heads": 8,
                  "model.feedforward": 2048},
}  # fmt: skip
WORDS = 152
"""Words of a review in Yelp 2013: the mean of Tang et al. (2015, Table 1); generated ones have about ten."""
TEXT = {"task": "text-classification", "data": "trec-synthetic", "model": "text-transformer", "preset": "paper"}


def peers() -> list[Measurement]:
    """Measure steps of each in turns; a limit of 1 / 1.5 asks for 1.5 times the peer's steps per second."""
    with TemporaryDirectory() as folder:
        settings = Settings.from_environment(runs=Path(folder), device="cpu", num_workers=0)
        found = [case(settings) for case in (fairseq_attention_dropout, bare_text)]
        precisions = ("no", "bf16") if torch.cpu._is_avx512_bf16_supported() else ("no",)
        mixed = (transformers_vit, transformers_bert, timm_vit)
        return [*found, *(case(settings, amp) for amp in precisions for case in mixed)]


def transformers_vit(settings: Settings, amp: str) -> Measurement:
    """Compare with transformers' Trainer and its ViT-S at 224 px, with Algorithm 1."""
    register_algorithm_1()
    task = made(VIT, settings, amp=amp)
    sizes: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 6, "num_labels": 1000}
    config = ViTConfig(**sizes, intermediate_size=1536)
    config._attn_implementation = ALGORITHM_1
    model = Logits(ViTForImageClassification(config))
    peer = Trained(made(VIT, settings, amp=amp), settings.runs / f"vit-{amp}", model, steps=1)
    return against("ViT-S at 224 px", task, settings, "transformers' Trainer, Algorithm 1", peer.run, 1.5, steps=1)


def transformers_bert(settings: Settings, amp: str) -> Measurement:
    """Compare with transformers' Trainer and a BERT of four layers of 512, with Algorithm 1."""
    register_algorithm_1()
    task, theirs = (with_longer_texts(made(BERT_SMALL, settings, amp=amp)) for _ in range(2))
    model = theirs.build_model()
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.set_attn_implementation(ALGORITHM_1)
    peer = Trained(theirs, settings.runs / f"bert-{amp}", model, steps=1)
    return against("BERT-small", task, settings, "transformers' Trainer, Algorithm 1", peer.run, 1.3, steps=1)


def timm_vit(settings: Settings, amp: str) -> Measurement:
    """Compare with the step of timm's ``train.py`` and its ViT-S at 224 px, with dropout of attention weights."""
    peer = TimmTraining(made(VIT, settings, amp=amp), steps=1)
    name = "timm's training step, attention dropout"
    return against("ViT-S at 224 px", made(VIT, settings, amp=amp), settings, name, peer.run, 1.3, steps=1)


def fairseq_attention_dropout(settings: Settings) -> Measurement:
    """Compare with fairseq's Trainer, with dropout of attention weights."""
    updates = translation.UPDATES
    data, steps = "multi30k-synthetic", updates * (ROUNDS + 1)
    # In the default order, the optimizer is torch's fused Adam.
    task = translation.prepared(
        data, settings, "dropkey", max_tokens=translation.TOKENS, steps=steps, order="dropbench"
    )
    run = trainer.Trainer(task, RunDirectory.create(settings.runs, task.trial), settings, lambda: False)
    ours = translation.our_updates(run)
    arguments = ("--attention-dropout", str(RATIO))
    theirs = translation.fairseq_updates(translation.fairseq_train(task, settings.runs / "fairseq", *arguments))

    def turn(losses: Iterator[float]) -> Callable[[], None]:
        return lambda: [*islice(losses, updates)].clear()

    return compare(
        f"{updates} updates, transformer-wmt-en-de on {data}, DropKey",
        turn(ours),
        "fairseq's Trainer, attention dropout",
        turn(theirs),
        limit=round(1 / 1.15, 3),
        rounds=ROUNDS,
        detail={"threads": torch.get_num_threads()},
    )


def bare_text(settings: Settings) -> Measurement:
    """Compare with a loop written by hand, without a regularizer and with torch's default AdamW."""
    peer = PlainLoop(made(TEXT, settings), steps=10)
    name = "a bare loop, plain SDPA, torch's default AdamW"
    return against("text Transformer", made(TEXT, settings), settings, name, peer.run, 1.05, steps=10)


def made(fields: dict[str, Any], settings: Settings, amp: str = "no") -> Task:
    """Return the task of a trial with DropKey that is longer than all rounds, and its data."""
    overrides = {**fields.get("overrides", {}), "steps": 10_000, "evaluate_every": 10_000, "amp": amp}
    request = TrialRequest(**{**fields, "overrides": overrides}, regularizer="dropkey", params={"ratio": RATIO})
    kind = TASKS.get(request.task)
    task: Task = kind(kind.trial_for(request, settings), settings)
    task.setup()
    return task


def with_longer_texts(task: Task) -> Task:
    """Give a text task `WORDS` random words in each text of train."""
    assert isinstance(task, TextClassification)
    words, size = task.tokenizer.size, task.size("train")
    texts = torch.randint(task.tokenizer.unknown + 1, words, (size, WORDS), generator=torch.Generator().manual_seed(0))
    task.tokens["train"], task.lengths["train"] = [(text,) for text in texts], [WORDS] * size
    return task


def against(
    what: str, task: Task, settings: Settings, peer: str, run: Callable[[], None], least: float, *, steps: int
) -> Measurement:
    """Compare the engine with a peer that does `steps` steps per call; `least` times its steps per second are due."""
    ours = Ours(task, settings, steps)
    detail = {"threads": torch.get_num_threads(), "steps": steps, "batch": task.recipe.batch_size}
    what = what if task.recipe.amp == "no" else f"{what} with {task.recipe.amp}"
    name = f"{steps} steps, {what}, DropKey" if steps > 1 else f"a step, {what}, DropKey"
    return compare(name, ours.run, peer, run, limit=round(1 / least, 3), rounds=ROUNDS, detail=detail)


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
            (part,) = self.batches[step]
            self.task.loss(self.model, part).backward()
            if self.task.recipe.clip_norm is not None:
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
            (part,) = self.batches[step]
            with torch.autocast("cpu", torch.bfloat16, enabled=self.task.recipe.amp == "bf16"):
                loss = self.task.loss(self.model, part)
            loss.backward()
            if self.task.recipe.clip_norm is not None:
                dispatch_clip_grad(self.model.parameters(), self.task.recipe.clip_norm)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.losses.update(loss.item(), self.task.recipe.batch_size)
            self.schedule.step_update(num_updates=step + 1, metric=self.losses.avg)
