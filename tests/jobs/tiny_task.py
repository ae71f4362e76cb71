"""A plug-in with a task of a few numbers, which the real engine trains in well under a second.

Settings that change no result come from the environment, so that a test can change them between two attempts.
TINY_PAUSE is a file with the seconds per step, or "hold": from the fifth loss on, wait until it says something else.
TINY_FAULT is a file with a fault: "raise 5" raises at step 5, "raise 5
1" only with seed 1, "raise 5 1 -1 2" also only in process 2 of a group; "memory" runs out of memory, "short 2" does
with more than two samples at a time; "hog" allocates two GiB, "hog 5 0 2" with more than two samples; "linger 6" takes
six seconds for the test set; "slow 3" takes three seconds for each batch of an evaluation, and adds a line to the file
TINY_FAULT.batches; "disk" fills the disk with the file TINY_FILL; "input 0" finds invalid data; "import 0" kills every
worker that loads this file.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe import Recipe, complete_recipe
from dropbench.harness.trials.task import TASKS, Split, Task
from dropbench.harness.trials.trial import DataRef, Trial, TrialRequest

if TYPE_CHECKING:
    from torch import Tensor, nn

SIZES = {"train": 64, "dev": 32, "test": 32}


@TASKS.register("tiny")
class Tiny(Task):
    """Classify points in four dimensions with one attention layer."""

    name = "tiny"
    metrics = (Metric("accuracy"), Metric("loss", higher_is_better=False, unit=""))

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        recipe = complete_recipe(
            Recipe, [{"steps": 40, "batch_size": 8, "evaluate_every": 10, "lr": 0.05}, request.overrides]
        )
        return Trial(
            task=cls.name,
            data=DataRef(name=request.data, fingerprint="0" * 12),
            model=request.model,
            regularizer=RegularizerSpec(name=request.regularizer, params=request.params),
            schedule=request.schedule,
            preset=request.preset,
            overrides=request.overrides,
            recipe=recipe.model_dump(mode="json", exclude_none=True),
            seed=request.seed,
        )

    def setup(self) -> None:
        import torch

        self.step = 0
        self.fault("input")
        draw = torch.Generator().manual_seed(0)
        self.points: dict[str, Tensor] = {}
        self.labels: dict[str, Tensor] = {}
        for split, size in SIZES.items():
            self.points[split] = torch.randn(size, 3, 4, generator=draw)
            self.labels[split] = (self.points[split].sum(dim=(1, 2)) > 0).long()

    def build_model(self) -> nn.Module:
        from torch import nn

        from dropbench.harness.models.attention import attend
        from dropbench.harness.regularizers.base import Site

        ratio = float(self.recipe.model.get("dropout", 0.1))

        class TinyModel(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.qkv = nn.Linear(4, 12)
                self.out = nn.Linear(4, 2)
                self.dropout = nn.Dropout(ratio)
                self.site = Site("attention", "encoder-self", 0, 1, 1)

            def forward(self, points: Tensor) -> Tensor:
                q, k, v = self.qkv(points)[:, None].chunk(3, dim=-1)
                output = attend(q, k, v, self.site, training=self.training)
                logits: Tensor = self.out(self.dropout(output.mean(dim=(1, 2))))
                return logits

        return TinyModel()

    def size(self, split: Split) -> int:
        return SIZES[split]

    def batch(self, split: Split, indices: Sequence[int]) -> Any:
        return {"points": self.points[split][indices], "labels": self.labels[split][indices]}

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        from torch.nn.functional import cross_entropy

        if not model.training:  # the pass before training that counts attention
            return cross_entropy(model(batch["points"]), batch["labels"])
        self.step += 1
        for kind in ("raise", "memory", "short", "hog", "disk"):
            self.fault(kind, len(batch["labels"]))
        while (pause := _content("TINY_PAUSE")) == "hold" and self.step >= 5:
            time.sleep(0.01)
        time.sleep(0 if pause == "hold" else float(pause or 0))
        return cross_entropy(model(batch["points"]), batch["labels"])

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        from torch.nn.functional import cross_entropy

        if split == "test" and _content("TINY_FAULT").startswith("linger"):
            time.sleep(float(_content("TINY_FAULT").split()[1]))
        right, loss = 0, 0.0

        def score(batch: Any) -> tuple[int, float]:
            if _content("TINY_FAULT").startswith("slow"):
                time.sleep(float(_content("TINY_FAULT").split()[1]))
                with open(os.environ["TINY_FAULT"] + ".batches", "a") as file:
                    file.write(f"{split}\n")
            logits = model(batch["points"])
            number = int((logits.argmax(dim=1) == batch["labels"]).sum())
            return number, float(cross_entropy(logits, batch["labels"], reduction="sum"))

        for number, value in self.map_batches(score, batches):
            right += number
            loss += value
        return {"accuracy": 100 * right / SIZES[split], "loss": loss / SIZES[split]}

    def fault(self, kind: str, samples: int = 0) -> None:
        requested, *rest = _content("TINY_FAULT").split() or [""]
        number, seed, max_samples, rank = [*map(int, rest), None, None, None, None][:4]
        if requested != kind or seed not in (None, self.trial.seed) or rank not in (None, int(os.getenv("RANK", "0"))):
            return
        if kind == "short":
            if samples > (number or 0):
                raise MemoryError
            return
        if number != self.step or samples <= (max_samples or -1):
            return
        if kind == "raise":
            raise ZeroDivisionError("the tiny task divides by zero")
        if kind == "memory":
            raise MemoryError
        if kind == "hog":
            self.held = b"x" * 2**31
            time.sleep(20)
            return
        if kind == "disk":
            with open(os.environ["TINY_FILL"], "wb") as file:
                while True:
                    file.write(b"\0" * 65536)
        raise InputError("data 'tiny': line 3: expected a label")


def _content(variable: str) -> str:
    file = os.environ.get(variable)
    return Path(file).read_text(encoding="utf-8") if file and Path(file).exists() else ""


if _content("TINY_FAULT").startswith("import") and "SUBMITIT_EXECUTOR" in os.environ:
    os.kill(os.getpid(), signal.SIGKILL)
