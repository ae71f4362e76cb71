"""Feeding the loop: every batch is a function of (seed, step) alone, made ahead of time where processes are given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset

from harness.errors import InputError
from harness.seeding import derive, seed_all
from harness.settings import Settings
from harness.task import Task

if TYPE_CHECKING:
    from accelerate import Accelerator


class StepBatches(Dataset[list[Any]]):
    """Item `step` is the batch of that optimizer step, in micro-batches; it does not depend on what came before."""

    def __init__(self, task: Task, seed: int, rank: int = 0, ranks: int = 1) -> None:
        self.task, self.seed, self.rank, self.ranks = task, seed, rank, ranks
        self.size = task.recipe.batch_size
        self._epoch: tuple[int, list[list[int]]] = (-1, [])

    def __getitem__(self, step: int) -> list[Any]:
        epoch, position = divmod(step, self.task.steps_an_epoch(self.size))
        if self._epoch[0] != epoch:
            self._epoch = (epoch, list(self.task.epoch(self.size, self.task.epoch_seed(epoch))))
        indices = self._epoch[1][position]
        parts = self.task.micro_batches(indices, self.task.recipe.accumulate)
        batch = []
        for micro, part in enumerate(parts):
            share = part[self.rank :: self.ranks]
            if not share:
                raise InputError(f"a micro-batch of {len(part)} samples is too small for {self.ranks} processes")
            seed_all(derive(self.seed, "data", step, micro, self.rank))
            batch.append(self.task.batch("train", share))
        return batch


def feed(batches: StepBatches, step: int, steps: int, settings: Settings, accelerator: Accelerator) -> Iterator[Any]:
    """The batches of steps `step` to `steps` on the device, loaded by `settings.loaders` processes."""
    batches.rank, batches.ranks = accelerator.process_index, accelerator.num_processes
    cuda = accelerator.device.type == "cuda"
    loader: DataLoader[Any] = DataLoader(
        batches,
        batch_size=None,
        sampler=range(step, steps),
        num_workers=settings.loaders,
        pin_memory=cuda,
        persistent_workers=False,
    )
    for batch in loader:
        yield to_device(batch, accelerator.device)


def to_device(batch: Any, device: torch.device) -> Any:
    """A nest of tuples, lists and dicts with its tensors on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
