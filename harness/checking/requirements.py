"""Requirements of the contract of a task: what its methods return, and what its data have to be."""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.data import default_convert

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.registry import PLUGIN_MODULES
from dropbench.harness.seeding import seed_all
from dropbench.harness.trials.metric import require_numbers
from dropbench.harness.trials.task import Split, Task

SPLITS: tuple[Split, ...] = ("train", "dev", "test")
PROBES = 16
"""Samples of each split that both readings are compared in."""
MAX_ROWS = 20_000
"""Rows of a split whose contents are compared with those of other splits."""
MAX_SECONDS = 4.0
"""Seconds for the contents of a split, and for its evaluation, which ends early after them."""


def has_own(task: Task, method: str) -> bool:
    """Return whether a plug-in defines a method of a task."""
    owner = next(base for base in type(task).__mro__ if method in vars(base))
    return owner.__module__.partition(".")[0] in PLUGIN_MODULES


def require_tensors(batch: Any) -> None:
    """Raise InputError for a batch with arrays, which stay on the CPU, or without any tensor."""
    leaves = tree_leaves(batch)
    if any(isinstance(leaf, np.ndarray | np.generic) for leaf in leaves):
        raise InputError("batch returned a NumPy array, which stays on the CPU: return tensors (`torch.from_numpy`)")
    if not any(isinstance(leaf, Tensor) for leaf in leaves):
        raise InputError(f"batch returned {batch!r:.60}: expected tensors, in any nest of tuples, lists and dicts")


def require_loss(loss: Any) -> None:
    """Raise InputError unless a loss is a finite scalar that depends on parameters."""
    if not isinstance(loss, Tensor):
        raise InputError(f"loss returned {loss!r:.60}: expected a tensor, without `.item()`")
    if loss.ndim:
        raise InputError(f"loss returned a tensor of shape {tuple(loss.shape)}: expected a scalar, as by `.mean()`")
    if not loss.isfinite():
        raise InputError(f"loss is {float(loss)}: expected a finite number")
    if not loss.requires_grad:
        raise InputError("loss has no gradient: compute it from the model's output, without `.item()` or `.detach()`")


def require_classes(task: Task, logits: Tensor) -> None:
    """Raise InputError for fewer logits than classes."""
    classes = len(getattr(task, "classes", ()))
    if classes and logits.shape[1] < classes:
        raise InputError(
            f"{count_of(logits.shape[1], 'logit')} for {count_of(classes, 'class', 'classes')}: expected the"
            f" model to return ({len(logits)}, {classes})"
        )


@contextmanager
def enough_logits(task: Task, model: nn.Module) -> Iterator[None]:
    """Raise InputError instead of an IndexError if the model has fewer logits than classes, or than labels."""
    outputs: list[Any] = []
    hook = model.register_forward_hook(lambda module, args, output: outputs.append(output))
    try:
        yield
    except IndexError as error:
        logits = outputs[-1] if outputs else None
        if not isinstance(logits, Tensor) or logits.ndim != 2 or "out of bounds" not in str(error):
            raise
        require_classes(task, logits)
        raise InputError(
            f"{error} The model returns {logits.shape[1]} logits: expected data with their `classes`, and labels from 0"
        ) from None
    finally:
        hook.remove()


@torch.no_grad()
def change_in_batch(task: Task, model: nn.Module, size: int) -> float | None:
    """Return by how much the logits of a sample change in a batch of this size; None: by rounding, or unknown."""
    indices = next(iter(task.evaluation_batches("dev", size)))
    batches = (default_convert(task.batch("dev", part)) for part in (indices, indices[:1]))
    together, alone = (task.loss_and_logits(model, batch)[1] for batch in batches)
    if len(together) != len(indices) or len(alone) != 1:
        return None
    change = float((together[0] - alone[0]).abs().max())
    return change if change > 1e-3 * max(1.0, float(alone.abs().max())) else None


def require_metrics(task: Task, split: Split, metrics: Any, *, complete: bool) -> None:
    """Raise InputError unless metrics are those that a task declares, and finite after a complete evaluation."""
    where = f"evaluate('{split}')"
    names = require_numbers(metrics, where).keys()
    declared = {metric.name: metric for metric in task.metrics}
    if unknown := [name for name in names if name not in declared]:
        raise InputError(f'{where} returned {", ".join(unknown)}: declare `Metric("{unknown[0]}")` in `metrics`')
    expected = [metric.name for metric in task.metrics if not metric.optional]
    if type(task).summary is not Task.summary and (split != "test" or not has_own(task, "summary")):
        expected = [task.selection_metric.name]  # the others may be measured once
    if missing := [name for name in expected if name not in names]:
        raise InputError(f"{where} returned {', '.join(names) or 'no metric'}: expected {', '.join(missing)} as well")
    for name, value in metrics.items() if complete else ():
        if not math.isfinite(value):
            raise InputError(f"{where}: {name} is {value}: expected a finite number")
        if declared[name].unit == "%" and declared[name].higher_is_better and value > 100.001:
            raise InputError(f'{where}: {name} is {value:.6g} %: expected 100 at most, or `unit=""`')


def _content(task: Task, split: Split, index: int) -> bytes:
    """Return a digest of a sample, with the same random numbers for each."""
    seed_all(0)
    digest = hashlib.sha256()
    for leaf in tree_leaves(task.batch(split, [index])):
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().cpu().contiguous()
            digest.update(f"{leaf.dtype} {tuple(leaf.shape)}".encode())
            digest.update(leaf.view(-1).view(torch.uint8).numpy().tobytes() if leaf.numel() and leaf.ndim else b"")
            digest.update(repr(leaf.item()).encode() if not leaf.ndim else b"")
        else:
            digest.update(repr(leaf).encode())
    return digest.digest()


def samples_of(task: Task) -> dict[str, str]:
    """Return digests of the classes of a task after `setup`, and of the size and some samples of each split."""
    digests = {"classes": hashlib.sha256(repr(getattr(task, "classes", ())).encode()).hexdigest()}
    for split in SPLITS:
        size = task.size(split)
        digest = hashlib.sha256(str(size).encode())
        for index in sorted({size * probe // PROBES for probe in range(PROBES)} | {size - 1}):
            digest.update(_content(task, split, index))
        digests[f"rows of {split}"] = digest.hexdigest()
    return digests


def require_equal_samples(first: Mapping[str, str], second: Mapping[str, str], where: str, remedy: str) -> None:
    """Raise InputError if two readings of the same files give other samples: those of a trial and its resumption."""
    if different := next((name for name in first if first[name] != second[name]), None):
        raise InputError(f"{where} gives other {different}: {remedy}")


def require_disjoint_splits(task: Task) -> None:
    """Raise InputError if most of dev or test is in another split, too, although rows are rarely equal within one."""
    contents: dict[Split, Counter[bytes]] = {}
    for split in SPLITS:
        end, size = time.monotonic() + MAX_SECONDS, task.size(split)
        if size > MAX_ROWS:
            return
        contents[split] = Counter()
        for index in range(size):
            contents[split][_content(task, split, index)] += 1
            if time.monotonic() > end:
                return
    repeated = 1 - len(contents["train"]) / task.size("train")
    pairs: tuple[tuple[Split, Split], ...] = (("dev", "train"), ("test", "train"), ("test", "dev"))
    for split, other in pairs:
        shared = sum(count for key, count in contents[split].items() if key in contents[other])
        if shared / task.size(split) - repeated > 0.5:
            raise InputError(
                f"{shared:,} of {count_of(task.size(split), 'row')} of {split} are also in {other}: split the rows"
                " so that each is in one split"
            )
