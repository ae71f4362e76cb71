"""The optimizers of timm: which keys they read, and that each resumes as it would have gone on."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from timm.optim._optim_factory import get_optimizer_info, list_optimizers
from torch import nn

from dropbench.harness.optimization.catalog import OPTIMIZERS
from dropbench.harness.training.checkpoint import load_parts
from dropbench.harness.trials.optimization import build_optimizer, set_rate
from dropbench.harness.trials.recipe import Recipe

ABSENT = {"adahessian", "kron", "kronc", "kronw", "momentum"}
"""Those with second derivatives, those that recommend another package, and another name of torch's SGD."""
OF_OTHERS = ("bnb", "fused")


def test_every_optimizer_of_timm_is_registered_with_the_keys_that_it_reads() -> None:
    names = {
        name for name in map(str, list_optimizers()) if not name.startswith(OF_OTHERS) and not name.endswith("legacy")
    }
    assert {*OPTIMIZERS} - ABSENT == names - ABSENT
    for name in names - ABSENT - {"adam", "adamw", "sgd"}:
        info = get_optimizer_info(name)
        betas = ("beta1", "beta2") if info.has_betas and info.num_betas == 2 else ()
        assert OPTIMIZERS.entry(name).facts["reads"] == (*betas, *(("momentum",) if info.has_momentum else ())), name


def built(name: str, **keys: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3))
    return model, build_optimizer(model, Recipe(steps=1, lr=1e-2, weight_decay=0.01, optimizer=name, **keys))


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    inputs = torch.randn(16, 6, generator=torch.Generator().manual_seed(1))
    for step in steps:
        torch.manual_seed(step)
        set_rate(optimizer, 1e-2 / (step + 1))
        nn.functional.cross_entropy(model(inputs), torch.arange(16) % 3).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


FAST = {"lamb", "lion", "adan", "adafactor", "muon", "nadam", "rmsprop", "adamw"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in OPTIMIZERS]
)
def test_an_optimizer_trains_and_resumes_exactly(name: str) -> None:
    model, optimizer = built(name)
    begun = copy.deepcopy(model.state_dict())
    train(model, optimizer, range(2))
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, range(2, 4))
    resumed, other = built(name)
    load_parts(saved, {"model": resumed, "optimizer": other})
    train(resumed, other, range(2, 4))
    for key, value in model.state_dict().items():
        assert torch.equal(resumed.state_dict()[key], value), key
        assert value.isfinite().all(), key
        assert not torch.equal(begun[key], value), key


def test_the_betas_of_the_recipe_are_those_of_the_optimizer() -> None:
    assert built("lion", beta1=0.8, beta2=0.7)[1].defaults["betas"] == (0.8, 0.7)
    assert built("rmsprop", momentum=0.3)[1].defaults["momentum"] == 0.3
