"""Data loading: every batch is a function of (seed, step) alone; worker processes prefetch batches for a GPU."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only
from torch.utils.data import DataLoader, Dataset, default_convert

from dropbench.harness.errors import InputError
from dropbench.harness.memory import FreedMemory
from dropbench.harness.seeding import drawing_for
from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import Split, Task, cut

PREFETCH_FACTOR = 2
"""Batches that each worker has ready."""
MAX_WORKERS = 16
"""Workers that are started unless a number is set."""
MIN_STEP_S = 0.005
"""Minimum seconds per step: workers that together make a batch in less time would wait."""
MIN_BENEFIT_S = 1.0
"""Seconds of data loading below which no workers are started: about the time it takes to start some."""
SHARED_MEMORY = "/dev/shm"
"""Prefetched batches are in shared memory. A container may have as little as 64 MiB of it."""


class MicroBatch(NamedTuple):
    """A micro-batch of one process.

    Attributes:
        batch: see `Task.batch`.
        size: its number of samples, divided by the mean number of samples of the step's micro-batches; 0 if the process
            has none, so that the loss of a sample of another process stands in and counts nothing.
        number: that of the micro-batch in the step.
        part: that of the part, if processes or memory divide the micro-batch.

    What is drawn for it depends on the seed, the step, `number` and `part`, so that the number of processes does not
    matter as long as they compute whole micro-batches.
    """

    batch: Any
    size: float
    number: int = 0
    part: int | None = None


class Part(NamedTuple):
    """The samples of a micro-batch, or of a part of one; see `MicroBatch`."""

    indices: list[int]
    number: int
    part: int | None = None


class StepBatches(Dataset[list[MicroBatch]]):
    """Item `step` is the batch of that optimizer step as a list of micro-batches, whatever items were taken before.

    Raises:
        InputError: when an item is taken, if all of its micro-batches have fewer samples than splits.
    """

    def __init__(self, task: Task, seed: int, rank: int = 0, ranks: int = 1, micro_batch_splits: int = 1) -> None:
        self.task, self.seed, self.micro_batch_splits = task, seed, micro_batch_splits
        self.rank, self.ranks = rank, ranks
        self.size = task.recipe.batch_size
        self._epoch: tuple[int, list[list[int]]] = (-1, [])

    def __getitem__(self, step: int) -> list[MicroBatch]:
        epoch, position = divmod(step, self.task.steps_per_epoch(self.size))
        if self._epoch[0] != epoch:
            self._epoch = (epoch, list(self.task.epoch(self.size, self.task.epoch_seed(epoch))))
        indices = self._epoch[1][position]
        parts = self.task.micro_batches(indices, self.task.recipe.accumulate)
        mean_size = len(indices) / len(parts)
        own = deal(parts, self.rank, self.ranks)
        if (splits := self.micro_batch_splits) > 1:
            largest = max(len(part.indices) for rank in range(self.ranks) for part in deal(parts, rank, self.ranks))
            if splits > largest:
                raise InputError(
                    f"out of memory even with micro-batches of one sample (the recipe has {largest}): use a larger GPU"
                )
            own = [split for part in own for split in split_part(part, splits)]
        batch = []
        for part in own:
            with drawing_for(self.seed, "data", step, part.number, part.part):
                content = self.task.batch("train", part.indices or indices[:1])
            batch.append(MicroBatch(content, len(part.indices) / mean_size, part.number, part.part))
        return batch


def deal(parts: list[list[int]], rank: int, ranks: int) -> list[Part]:
    """Return the micro-batches of one process: whole ones, and a share of what does not go round.

    Each micro-batch of that rest is shared by as many processes as possible. A share may be empty.
    """
    whole = len(parts) - len(parts) % ranks
    own = [Part(parts[number], number) for number in range(rank, whole, ranks)]
    if rest := parts[whole:]:
        which, share = rank % len(rest), rank // len(rest)
        shares = len(range(which, ranks, len(rest)))
        own.append(Part(rest[which][share::shares], whole + which, share if shares > 1 else None))
    return own


def split_part(part: Part, splits: int) -> list[Part]:
    """Split a part, unless it is empty, as `cut` does."""
    cuts, first = cut(part.indices, splits) if part.indices else [[]], splits * (part.part or 0)
    return [Part(each, part.number, first + number) for number, each in enumerate(cuts)]


class SplitBatches(Dataset[Any]):
    """The batches in which a split is evaluated; nothing in them is random."""

    def __init__(self, task: Task, split: Split, micro_batch_splits: int = 1) -> None:
        self.task, self.split = task, split
        batches = task.evaluation_batches(split, task.recipe.batch_size)
        self.parts = [part for batch in batches for part in cut(batch, micro_batch_splits)]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, number: int) -> Any:
        return self.task.batch(self.split, self.parts[number])


class LoadedBatches(Iterable[Any]):
    """The batches of a split on a device. Each iteration, over all or over a slice, loads them anew.

    In an iteration over all, `after_each` is called after each batch.
    """

    def __init__(
        self, batches: SplitBatches, settings: Settings, device: torch.device, after_each: Callable[[], None]
    ) -> None:
        self.batches, self.settings, self.device, self.after_each = batches, settings, device, after_each

    def __iter__(self) -> Iterator[Any]:
        for batch in self[:]:
            yield batch
            self.after_each()

    def __getitem__(self, which: slice) -> Iterator[Any]:
        return prefetch(self.batches, range(len(self.batches))[which], self.settings, self.device)


def prefetch(batches: Dataset[Any], keys: Sequence[int], settings: Settings, device: torch.device) -> Iterator[Any]:
    """Yield the batches of `keys` in order on the device, prefetched by `settings.num_workers` processes.

    By default there are no workers on a CPU, where the model uses all cores. Beside a GPU there are as many as spare
    cores, if the time that the first batch takes shows that workers pay.

    Raises:
        InputError: as the data raise it, from whichever process.
    """
    num_workers, first = settings.num_workers, []
    if num_workers is None:
        num_workers = spare_cores(settings) if device.type != "cpu" and len(keys) > 1 else 0
        if num_workers:
            start = time.perf_counter()
            first, keys = [batches[keys[0]]], keys[1:]
            seconds = time.perf_counter() - start
            useful = math.ceil(seconds / MIN_STEP_S) if seconds * len(keys) > MIN_BENEFIT_S else 0
            num_workers = min(num_workers, useful, max_workers_in_memory(first[0]))
    num_workers = min(num_workers, len(keys))
    if not num_workers and device.type == "cpu":  # a DataLoader would only add overhead
        yield from (default_convert(batches[key]) for key in keys)
        return
    loader: DataLoader[Any] = DataLoader(
        _BatchesOrErrors(batches),
        batch_size=None,
        sampler=keys,
        num_workers=num_workers,
        prefetch_factor=PREFETCH_FACTOR if num_workers else None,
        multiprocessing_context="fork" if num_workers else None,
        worker_init_fn=_ignore_first_sigterm,
        pin_memory=device.type == "cuda",
        # A generator of its own, so that the loader draws nothing from the model's.
        generator=torch.Generator(),
    )
    items = iter(loader)  # starts the workers
    try:
        for batch in first:
            yield to_device(batch, device)
        for item in items:
            if isinstance(item, InputError):
                raise item
            yield to_device(item, device)
    finally:
        del items  # stops the workers, even while a traceback keeps this frame; at exit they would be waited for


class _BatchesOrErrors(Dataset[Any]):
    """Batches, or the InputError that making one raised: raised in a worker, it would become a long traceback."""

    def __init__(self, batches: Dataset[Any]) -> None:
        self.batches, self.freed = batches, FreedMemory()

    def __getitem__(self, key: int) -> Any:
        try:
            return self.batches[key]
        except InputError as error:
            return error
        finally:
            self.freed.limit()


def spare_cores(settings: Settings) -> int:
    """Return how many cores are free for data loading for a GPU; one core is busy feeding it."""
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = settings.threads or len(os.sched_getaffinity(0)) // processes
    return min(MAX_WORKERS, max(0, cores - 1))


def max_workers_in_memory(batch: Any) -> int:
    """Return how many workers can hold batches like this one in half of the free shared memory."""
    try:
        free = os.statvfs(SHARED_MEMORY)
    except OSError:
        return 0
    size = sum(leaf.nbytes for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor))
    return free.f_bavail * free.f_frsize // 2 // max(1, PREFETCH_FACTOR * size)


def _ignore_first_sigterm(worker: int) -> None:
    """Ignore the first SIGTERM, after which the training process needs its workers to finish a step."""
    signal.signal(signal.SIGTERM, lambda number, frame: signal.signal(number, signal.SIG_DFL))


def to_device(batch: Any, device: torch.device) -> Any:
    """Return a nest of tuples, lists and dicts with its tensors on the device."""
    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device, non_blocking=True), batch)


def repeat_batch(batch: Any, number: int) -> Any:
    """Return a batch that contains the samples of another one several times, in the same order each time.

    Tensors are repeated along the first axis. Numbers, such as a count of tokens, are multiplied.
    """

    def repeat(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return torch.cat([leaf] * number)
        is_number = isinstance(leaf, torch.Tensor | int | float) and not isinstance(leaf, bool)
        return leaf * number if is_number else leaf

    return tree_map(repeat, batch)
