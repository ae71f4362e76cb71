"""Several seeds trained one after the other, as trials are, against one batched model of all of them.

The batched model is `torch.func.stack_module_state` with `vmap`, and one fused optimizer. Both do the plain training
step on one thread, without a regularizer.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from itertools import count
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from benchmarks.measure import Measurement, compare
from benchmarks.training.engine import ROUNDS, WHAT, made
from harness.seeding import seed_all
from harness.settings import Settings
from harness.training.data_loading import StepBatches
from harness.trials.task import Task

SEEDS = 5


def stacked() -> list[Measurement]:
    """Compare a step of all seeds; below 1, separate models are faster."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return [_measure(name, fields) for name, fields in WHAT.items()]
    finally:
        torch.set_num_threads(threads)


def _measure(name: str, fields: dict[str, Any]) -> Measurement:
    task = made({**fields, "preset": "mini"}, Settings.from_environment(device="cpu", num_workers=0))
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
            def model(*inputs: Any) -> Any:
                return functional_call(architecture, {**parameters, **buffers}, inputs)

            return task.loss(cast(Any, model), batch)

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
