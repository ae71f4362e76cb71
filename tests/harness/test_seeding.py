"""Seeding covers each generator that models draw from, and leaves a device alone that a forked process must not use."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dropbench.harness import seeding
from dropbench.harness.seeding import seed_all


def test_equal_seeds_give_equal_draws_of_every_generator() -> None:
    draws = []
    for seed in (3, 3, 4):
        seed_all(seed)
        draws.append((random.random(), np.random.rand(), torch.rand(1).item()))
    assert draws[0] == draws[1]
    assert all(a != b for a, b in zip(draws[1], draws[2], strict=True))


@pytest.mark.parametrize(("forked", "seeds"), [(False, [3]), (True, [])])
def test_an_accelerator_is_seeded_unless_the_process_is_a_fork(
    forked: bool, seeds: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    device = SimpleNamespace(
        manual_seed=lambda seed: None, manual_seed_all=seen.append, _is_in_bad_fork=lambda: forked
    )  # fmt: skip
    monkeypatch.setattr(seeding, "_has_accelerator", lambda: True)
    monkeypatch.setattr(torch, "get_device_module", lambda: device)
    seed_all(3)
    assert seen == seeds
