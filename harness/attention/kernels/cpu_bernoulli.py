"""The random numbers of dropout, faster and bit for bit torch's: the Python side of ``cpu_bernoulli.c``."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from harness.attention.kernels.c_library import load_function, load_library, overridden

CHECKED = (0.1, 0.5, 1 / 3, 1.0)
"""Probabilities with which draws are compared to torch's before any is replaced."""


@contextmanager
def fast_bernoulli() -> Iterator[None]:
    """Let `Tensor.bernoulli_`, and with it dropout, draw the same numbers faster on a CPU, in all threads.

    Nothing changes without a C compiler, or where torch's draws are others: with Intel's library on Intel's processors,
    which is as fast.
    """
    if not _draws_equal():
        yield
        return
    with overridden("bernoulli_.float", lambda _, *args, **kwargs: draw_bernoulli(*args, **kwargs)):
        yield


def draw_bernoulli(out: Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Tensor:
    """Set the elements of a tensor of any shape to 1 with probability p, else to 0, as `Tensor.bernoulli_` does.

    Raises:
        RuntimeError: p is not in 0 … 1.
    """
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    generator = torch.default_generator if generator is None else generator
    draws = out if out.dtype == torch.float32 and out.is_contiguous() else torch.empty_like(out, dtype=torch.float32)
    state = generator.get_state()
    load_function("cpu_bernoulli", "bernoulli")(
        ctypes.c_void_p(state.data_ptr()), ctypes.c_void_p(draws.data_ptr()), ctypes.c_int64(draws.numel()),
        ctypes.c_uint64(math.ceil(p * 2**53)),
    )  # fmt: skip
    generator.set_state(state)
    return out if draws is out else out.copy_(draws)


@cache
def _draws_equal() -> bool:
    """Return whether `draw_bernoulli` draws what torch does and leaves its generator in the same state."""
    if load_library("cpu_bernoulli") is None:
        return False
    own, theirs = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    for p in CHECKED:
        # An odd number of words before it, and more draws than a generator makes words at once.
        for generator in (own, theirs):
            torch.empty(1).uniform_(generator=generator)
        drawn, expected = torch.empty(1000), torch.empty(1000)
        draw_bernoulli(drawn, p, generator=own)
        expected.bernoulli_(p, generator=theirs)
        if not torch.equal(drawn, expected) or not torch.equal(own.get_state(), theirs.get_state()):
            return False
    return True
