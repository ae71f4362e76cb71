"""Several seeds trained one after the other, as trials are, against one batched model of all of them.

The batched model is `torch.func.stack_module_state` with `vmap`, and one fused optimizer. Both do the plain training
step on one thread, without a regularizer.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.measure import Measurement, compare
from harness.seeding import seed_all
from harness.settings import Settings
from harness.training.data_loading import StepBatches
from harness.trials.task import TASKS, Task
from harness.trials.trial import TrialRequest

SEEDS, ROUNDS = 5, 20
WHAT = {
    "text Transformer": {"task": "text-classification", "data": "trec-synthetic", "model": "text-transformer"},
    "ViT on digits": {"task": "image-classification", "data": "digits", "model": "vit-digits"},
}


def stacked() -> list[Measurement]:
    """Compare a step of all seeds; below 1, separate models are faster."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_measure(name, fields) for name, fields in WHAT.items()]
    finally:
        torch.set_num_threads(threads)


def _measure(name: str, fields: dict[str, Any]) -> Measurement:
    settings = Settings.from_environment(device="cpu", num_workers=0)
    kind = TASKS.get(fields["task"])
    request = TrialRequest(**fields, preset="mini", overrides={"steps": 1000, "evaluate_every": 1000})
    task: Task = kind(kind.trial_for(request, settings), settings)
    task.setup()
    models = []
    for seed in range(SEEDS):
        seed_all(seed)
        models.append(task.build_model().train())
    together = Stacked(task, models)
    optimizers = [torch.optim.AdamW(model.parameters(), fused=True) for model in models]
    batches, numbers = StepBatches(task, 0), {"apart": count(), "together": count()}

    def apart() -> None:
        (batch,) = batches[next(numbers["apart"])]
        for model, optimizer in zip(models, optimizers, strict=True):
            task.loss(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)

    return compare(
        f"a step of {SEEDS} seeds, {name}", apart, "one model of all, by torch.func.vmap",
        lambda: together.step(*batches[next(numbers["together"])]), limit=None, rounds=ROUNDS,
        detail={"threads": 1},
    )  # fmt: skip


class Stacked:
    """Models of one architecture as a batched one."""

    def __init__(self, task: Task, models: list[nn.Module]) -> None:
        parameters, self.buffers = stack_module_state(models)
        self.parameters = {name: values.detach().clone() for name, values in parameters.items()}
        self.optimizer = torch.optim.AdamW(self.parameters.values(), fused=True)
        architecture = copy.deepcopy(models[0])

        def loss(parameters: Mapping[str, Tensor], buffers: Mapping[str, Tensor], batch: Any) -> Tensor:
            return task.loss(Called(architecture, {**parameters, **buffers}), batch)

        self.gradients = vmap(grad(loss), in_dims=(0, 0, None), randomness="different")

    def step(self, batch: Any) -> None:
        """Train all models by one step on the same batch."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "There is a performance drop")  # attention has no rule for batching
            gradients = self.gradients(self.parameters, self.buffers, batch)
        for name, values in self.parameters.items():
            values.grad = gradients[name]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Called(nn.Module):
    """A module that is called with other parameters and buffers than its own."""

    def __init__(self, module: nn.Module, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._call: Callable[..., Any] = lambda *inputs: functional_call(module, dict(values), inputs)

    def forward(self, *inputs: Any) -> Any:
        """Call the module."""
        return self._call(*inputs)
