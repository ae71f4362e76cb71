"""Randomness as a function of (seed, step) alone, so that a run that is killed and resumed ends bit-for-bit equal."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache

import numpy as np
import torch
from torch import Tensor

_shared: torch.Generator | None = None
_of_all_parts: int | None = None
_has_accelerator = cache(torch.accelerator.is_available)


def derive(seed: int, *path: int | str) -> int:
    """Return a seed of 63 bits for `path`; different paths give independent seeds."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_all(seed: int) -> None:
    """Seed every generator that models and augmentations draw from: Python's, NumPy's, torch's on each device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    # `torch.manual_seed` would format a call stack per kind of accelerator that is not in use: milliseconds a step.
    torch.default_generator.manual_seed(seed)
    if _has_accelerator():
        module = torch.get_device_module()
        if not getattr(module, "_is_in_bad_fork", bool)():  # a data loading process, which must not use the device
            getattr(module, "manual_seed_all", module.manual_seed)(seed)


def has_drawn(device: torch.device) -> bool:
    """Return whether anything was drawn from a GPU's generator since `seed_all`; False for a CPU.

    Its numbers are other than those of the CPU's generator for the same seed.
    """
    return device.type == "cuda" and torch.cuda.default_generators[torch.cuda.current_device()].get_offset() > 0


def generator_states(device: torch.device) -> list[Tensor]:
    """Return the states of torch's generators from which a model on a device draws, as bytes on the CPU."""
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return [torch.get_rng_state(), *on_gpu]


def set_generator_states(states: list[Tensor], device: torch.device) -> None:
    """Set the generators to states that `generator_states` returned."""
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state, device)


@contextmanager
def shared_draws(seed: int) -> Iterator[None]:
    """Let all processes of a run make the same draws from `shared_generator` while the context is open."""
    global _shared
    _shared = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _shared = None


def shared_generator() -> torch.Generator | None:
    """Return the generator, on the CPU, for draws that processes share; None, torch's default, in other runs."""
    return _shared


def repeated_draws() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """Return contexts for a forward pass, which begins now, and for its repetition with the same shared draws.

    `torch.utils.checkpoint` itself repeats those of torch's own generators.
    """
    return nullcontext(), _drawing_again(None if _shared is None else _shared.get_state(), _of_all_parts)


@contextmanager
def _drawing_again(shared: Tensor | None, of_all_parts: int | None) -> Iterator[None]:
    global _shared, _of_all_parts
    before = _shared, _of_all_parts
    _shared, _of_all_parts = None, of_all_parts
    if shared is not None:
        _shared = torch.Generator()
        _shared.set_state(shared)
    try:
        yield
    finally:
        _shared, _of_all_parts = before


@contextmanager
def drawing_for(seed: int, purpose: str, step: int, number: int, part: int | None) -> Iterator[None]:
    """Seed all draws for a micro-batch, by its number in the step, or for a part of one; see `alike_in_all_parts`."""
    global _of_all_parts
    seed_all(derive(seed, purpose, step, number, part or 0))
    _of_all_parts = None if part is None else derive(seed, purpose, step, number, "all parts")
    try:
        yield
    finally:
        _of_all_parts = None


@contextmanager
def alike_in_all_parts() -> Iterator[None]:
    """Let torch's generator on the CPU draw alike in all parts of a micro-batch that memory or processes divide."""
    if _of_all_parts is None:
        yield
        return
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(_of_all_parts)
        yield


def random_subset(eligible: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Draw a share of each row's eligible positions, uniformly over all subsets of that size, as a mask (B, T).

    Args:
        eligible: boolean (B, T), on the CPU.
        share: in [0, 1], rounded to a count of positions; at least one eligible position per row is not drawn.
        generator: random generator on the CPU.
    """
    num_eligible = eligible.sum(dim=1, keepdim=True)
    num_drawn = (num_eligible * share).round().clamp(max=num_eligible - 1)
    rank = torch.rand(eligible.shape, generator=generator).masked_fill(~eligible, 2.0).argsort(dim=1).argsort(dim=1)
    return eligible & (rank < num_drawn)
