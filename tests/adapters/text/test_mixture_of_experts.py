"""Test the mixture of experts: size, load-balancing loss, causality, attention regularizers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import one_hot

from dropbench.adapters.text.mixture_of_experts import MixtureOfExperts, build_mixture
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.auxiliary_loss import penalty
from dropbench.tasks.language.language_modelling import count_parameters
from dropbench.tasks.preset_task import read_recipes

NAME = "learned-dropout-lm-moe"
SMALL = {"layers": 2, "dim": 12, "heads": 3, "experts": 4, "active": 2, "feedforward": 10}


def make(**options: Any) -> MixtureOfExperts:
    torch.manual_seed(0)
    model = build_mixture(NAME, {**SMALL, **options}, vocabulary=31, context=12)
    assert isinstance(model, MixtureOfExperts)
    return model


def tokens() -> torch.Tensor:
    return torch.randint(0, 31, (2, 12), generator=torch.Generator().manual_seed(7))


@pytest.mark.parametrize("preset", ["mini", "small"])
def test_the_models_of_small_recipes_have_similar_sizes(preset: str) -> None:
    recipes = read_recipes("language-modelling")["models"]
    with torch.device("meta"):
        plain, masked, mixture = (
            MODELS.get(name)(name, recipes[name][preset]["model"], vocabulary=2000, context=64)
            for name in ("learned-dropout-lm-baseline", "learned-dropout-lm", NAME)
        )
    assert isinstance(mixture, MixtureOfExperts)
    bind(masked, "learned-dropout")
    active = count_parameters(mixture) - mixture.inactive_parameters
    assert active == count_parameters(masked)
    assert count_parameters(plain) == pytest.approx(active, rel=0.03)


def test_inactive_parameters_have_no_gradient_from_a_single_token() -> None:
    model = make()
    model(tokens()[:1, :1]).sum().backward()
    reached = [
        (parameter.grad.flatten(1) != 0).any(dim=1).sum().item()
        for name, parameter in model.named_parameters()
        if name.endswith("experts.down_proj") and parameter.grad is not None
    ]
    assert reached == [2, 2]  # of four experts in each of two layers
    assert model.inactive_parameters == 2 * 2 * 3 * 12 * 10


def test_the_load_balancing_loss_is_that_of_switch_transformers() -> None:
    model = make(balance=0.5).train()
    router_logits: list[torch.Tensor] = []
    for layer in model.decoder.model.layers:
        layer.mlp.gate.register_forward_hook(lambda module, inputs, out: router_logits.append(out[0].detach()))
    model(tokens())
    probabilities = torch.cat(router_logits).softmax(dim=-1)
    chosen = one_hot(probabilities.topk(2).indices, 4).sum(dim=1).double()
    expected = 0.5 * 4 * (chosen.mean(dim=0) * probabilities.mean(dim=0)).sum()
    loss = penalty(model, 0)
    assert loss is not None
    assert loss.requires_grad
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert penalty(model, 0) is None  # returned once per forward pass
    model(tokens())
    copied = copy.deepcopy(model).eval()  # with a penalty that was not asked for
    assert torch.equal(copied(tokens()), model.eval()(tokens()))
    assert penalty(copied, 0) is None
