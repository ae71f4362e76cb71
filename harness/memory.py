"""Memory: of the process, and of what layers keep for the backward pass."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt (malloc.h of glibc)."""
LARGEST_MMAP_THRESHOLD = 32 << 20
"""In bytes: glibc accepts no larger one, and maps each larger tensor by itself."""


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next allocations; elsewhere, do nothing.

    By default glibc gives freed tensors back to the kernel, and the next step pays a page fault for each 4 KiB of them:
    up to a tenth of the time of a step on CPUs. The peak of resident memory changes by less than a tenth.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, -1)
        mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)


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
