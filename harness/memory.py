"""Memory: of the process, and of what layers keep for the backward pass."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from mmap import PAGESIZE
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt (malloc.h of glibc)."""
LARGEST_MMAP_THRESHOLD = 32 << 20
"""In bytes: glibc accepts no larger one, and maps each larger tensor by itself."""
MAX_GROWTH = 8 * LARGEST_MMAP_THRESHOLD
"""In bytes. A smaller limit would give back what the next batch needs, for a page fault per 4 KiB."""


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next allocations; elsewhere, do nothing.

    By default glibc gives freed tensors back to the kernel, and the next step pays a page fault for each 4 KiB of them:
    up to a tenth of the time of a step on CPUs. The peak of resident memory changes by less than a tenth.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, -1)
        mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)


class FreedMemory:
    """The freed memory that a process keeps, such as the worker of a loader, which repeats the same work.

    With `keep_freed_memory` it may grow for long, as no later tensor fits between those that are still in use.
    """

    def __init__(self) -> None:
        self.size = anonymous_bytes()

    def limit(self) -> None:
        """Give it back to the kernel if the process has grown by `MAX_GROWTH` since the last time."""
        if anonymous_bytes() - self.size > MAX_GROWTH:
            ctypes.CDLL(None).malloc_trim(0)
            self.size = anonymous_bytes()


def anonymous_bytes() -> int:
    """Return the resident memory of this process without files and shared memory; 0 on other systems than glibc's."""
    if sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "malloc_trim"):
        return 0
    with open("/proc/self/statm", encoding="ascii") as file:
        _, resident, shared = map(int, file.read().split()[:3])
    return (resident - shared) * PAGESIZE


class CheckpointedForward:
    """The forward of a layer that keeps its inputs alone in training, and runs again in the backward pass.

    An object, and not a function, so that copies and pickles of the module have their own.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.forward = vars(module).get("forward")
        """The forward of its regularizer, if it has one."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.utils.checkpoint import checkpoint

        from dropbench.harness.seeding import repeated_draws

        forward: Any = self.forward or type(self.module).forward.__get__(self.module)
        if not (self.module.training and torch.is_grad_enabled() and getattr(forward, "may_repeat", True)):
            return forward(*args, **kwargs)
        contexts: dict[str, Any] = {} if torch.compiler.is_compiling() else {"context_fn": repeated_draws}
        return checkpoint(forward, *args, use_reentrant=False, **contexts, **kwargs)


def checkpoint_activations(layers: Iterable[nn.Module]) -> None:
    """Have layers recompute their activations in the backward pass, with the same draws; call it after `regularize`."""
    for layer in layers:
        vars(layer)["forward"] = CheckpointedForward(layer)
