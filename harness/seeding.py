"""Randomness as a function of (seed, step) alone, so that a run can be killed anywhere and go on bit for bit equal."""

from __future__ import annotations

import hashlib
import random
from functools import cache

import numpy as np
import torch


def derive(seed: int, *path: int | str) -> int:
    """A seed of 63 bits for what `path` names; different paths give independent seeds."""
    text = "/".join(str(part) for part in (seed, *path))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1


def seed_all(seed: int) -> None:
    """Seed every generator that models and augmentations draw from: Python's, NumPy's, torch's on each device."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    if _has_accelerator():
        torch.manual_seed(seed)
    else:  # which formats a call stack for each kind of accelerator that may come, at every step
        torch.default_generator.manual_seed(seed)


@cache
def _has_accelerator() -> bool:
    return torch.accelerator.is_available()
