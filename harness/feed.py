"""Feeding the loop: every batch is a function of (seed, step) alone, made ahead of time by processes where it pays."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.data import DataLoader, Dataset, default_convert

from harness.errors import InputError
from harness.seeding import derive, seed_all
from harness.settings import Settings
from harness.task import Split, Task, cut

if TYPE_CHECKING:
    from accelerate import Accelerator

AHEAD = 2
"""Batches that each process has ready."""

MOST = 16
"""Processes that are started without being asked for."""

STEP = 0.005
"""Seconds that a step takes at least: processes that together make a batch in less have nothing to do."""

PAYS = 1.0
"""Seconds of batch making below which no processes are started for it: about what it takes to start some."""

SHARED_MEMORY = "/dev/shm"
"""Where batches wait. A container may have as little as 64 MiB of it."""


class StepBatches(Dataset[list[Any]]):
    """Item `step` is the batch of that optimizer step, in micro-batches; it does not depend on what came before.

    Raises:
        InputError: on taking an item, one of its micro-batches has fewer samples than there are pieces and processes.
    """

    def __init__(self, task: Task, seed: int, rank: int = 0, ranks: int = 1, pieces: int = 1) -> None:
        self.task, self.seed, self.rank, self.ranks, self.pieces = task, seed, rank, ranks, pieces
        self.size = task.recipe.batch_size
        self._epoch: tuple[int, list[list[int]]] = (-1, [])

    def __getitem__(self, step: int) -> list[Any]:
        epoch, position = divmod(step, self.task.steps_an_epoch(self.size))
        if self._epoch[0] != epoch:
            self._epoch = (epoch, list(self.task.epoch(self.size, self.task.epoch_seed(epoch))))
        indices = self._epoch[1][position]
        parts = self.task.micro_batches(indices, self.task.recipe.accumulate)
        if self.pieces > 1:
            if self.pieces > (most := max(map(len, parts))):
                raise InputError(f"memory is short even for micro-batches of one sample; the recipe has {most}")
            parts = [piece for part in parts for piece in cut(part, self.pieces)]
        batch = []
        for micro, part in enumerate(parts):
            share = part[self.rank :: self.ranks]
            if not share:
                raise InputError(f"a micro-batch of {len(part)} samples is too small for {self.ranks} processes")
            seed_all(derive(self.seed, "data", step, micro, self.rank))
            batch.append(self.task.batch("train", share))
        return batch


class SplitBatches(Dataset[Any]):
    """The batches in which a split is evaluated. Nothing random is in them."""

    def __init__(self, task: Task, split: Split, pieces: int = 1) -> None:
        self.task, self.split = task, split
        batches = task.evaluation_batches(split, task.recipe.batch_size)
        self.parts = [piece for batch in batches for piece in cut(batch, pieces)]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, number: int) -> Any:
        return self.task.batch(self.split, self.parts[number])


def feed(batches: StepBatches, step: int, steps: int, settings: Settings, accelerator: Accelerator) -> Iterator[Any]:
    """The batches of steps `step` to `steps` on the device."""
    batches.rank, batches.ranks = accelerator.process_index, accelerator.num_processes
    batches.pieces = settings.pieces
    return ahead(batches, range(step, steps), settings, accelerator.device)


def ahead(batches: Dataset[Any], keys: Sequence[int], settings: Settings, device: torch.device) -> Iterator[Any]:
    """The batches of those keys in their order on the device, some of them made in advance by processes.

    Their number is `settings.loaders`. Where that is left open there are none on the CPU, whose cores the model has all
    to itself, and as many as there are cores to spare beside a GPU, if what the first batch takes says that they pay.

    Raises:
        InputError: as the data raise it, with its one line, from whichever process.
    """
    loaders, first = settings.loaders, []
    if loaders is None:
        spare = spare_cores(settings) if device.type != "cpu" and len(keys) > 1 else 0
        if spare:
            start = time.perf_counter()
            first = [batches[keys[0]]]
            keys = keys[1:]
            seconds = time.perf_counter() - start
            useful = math.ceil(seconds / STEP) if seconds * len(keys) > PAYS else 0
            spare = min(spare, useful, room_for(first[0]))
        loaders = spare
    loaders = min(loaders, len(keys))
    if not loaders and device.type == "cpu":  # where a DataLoader would only stand between
        yield from (default_convert(batches[key]) for key in keys)
        return
    loader: DataLoader[Any] = DataLoader(
        _Answers(batches),
        batch_size=None,
        sampler=keys,
        num_workers=loaders,
        prefetch_factor=AHEAD if loaders else None,
        multiprocessing_context="fork" if loaders else None,
        worker_init_fn=_outlive_a_warning,
        pin_memory=device.type == "cuda",
        # Of its own, so that making a loader takes nothing from the numbers that a model draws.
        generator=torch.Generator(),
    )
    answers = iter(loader)  # from here on, the processes are at work
    for batch in first:
        yield to_device(batch, device)
    for answer in answers:
        if isinstance(answer, InputError):
            raise answer
        yield to_device(answer, device)


class _Answers(Dataset[Any]):
    """Batches, or the error where the input is wrong: raised in another process, it would come out as a page."""

    def __init__(self, batches: Dataset[Any]) -> None:
        self.batches = batches

    def __getitem__(self, key: int) -> Any:
        try:
            return self.batches[key]
        except InputError as error:
            return error


def spare_cores(settings: Settings) -> int:
    """The cores of a trial that are free for making batches beside a GPU, one being busy with feeding it."""
    cores = settings.threads or len(os.sched_getaffinity(0))
    share = cores // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(MOST, max(0, share - 1))


def room_for(batch: Any) -> int:
    """How many processes may have batches like this one waiting, in half of the shared memory that is free."""
    try:
        free = os.statvfs(SHARED_MEMORY)
    except OSError:
        return 0
    return free.f_bavail * free.f_frsize // 2 // max(1, AHEAD * _bytes(batch))


def _bytes(batch: Any) -> int:
    if isinstance(batch, torch.Tensor):
        return batch.nbytes
    parts = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else ()
    return sum(_bytes(part) for part in parts)


def _outlive_a_warning(process: int) -> None:
    """Let a process that makes batches pass over its first SIGTERM.

    Schedulers send it to all processes of a job that has to go. The one that trains then ends its step and writes a
    checkpoint; it would fail if its batches stayed away.
    """
    signal.signal(signal.SIGTERM, lambda number, frame: signal.signal(number, signal.SIG_DFL))


def to_device(batch: Any, device: torch.device) -> Any:
    """A nest of tuples, lists and dicts with its tensors on the device."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, dict):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, list | tuple):
        return type(batch)(to_device(value, device) for value in batch)
    return batch
