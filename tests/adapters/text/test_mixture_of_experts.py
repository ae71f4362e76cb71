"""Test the mixture of experts: size, load-balancing loss, causality, attention regularizers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import one_hot

from dropbench.adapters.text.decoder import build_decoder
from dropbench.adapters.text.mixture_of_experts import MixtureOfExperts, build_mixture
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.auxiliary_loss import penalty

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
    from dropbench.adapters.text.decoder import Decoder
    from dropbench.tasks.language.language_modelling import count_parameters
    from dropbench.tasks.preset_task import read_recipes

    options = {name: entry[preset]["model"] for name, entry in read_recipes("language-modelling")["models"].items()}
    with torch.device("meta"):
        plain, masked = (
            build_decoder(name, options[name], vocabulary=2000, context=64)
            for name in ("learned-dropout-lm-baseline", "learned-dropout-lm")
        )
        model = build_mixture(NAME, options[NAME], vocabulary=2000, context=64)
    assert isinstance(plain, Decoder)
    assert isinstance(masked, Decoder)
    assert isinstance(model, MixtureOfExperts)
    bind(masked, "learned-dropout")
    active = sum(parameter.numel() for parameter in model.parameters()) - model.inactive_parameters
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
    model.eval()(tokens())
    assert penalty(model, 0) is None


def test_auxiliary_losses_of_masks_and_experts_are_added() -> None:
    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixture = make()
            self.decoder = build_decoder(
                "learned-dropout-lm", {"layers": 2, "dim": 12, "heads": 3}, vocabulary=31, context=12
            )

    both = Both().train()
    bind(both.decoder, "learned-dropout")
    separate = []
    for model in (both.mixture, both.decoder):
        torch.manual_seed(1)
        model(tokens())
        separate.append(penalty(model, 0))
    for model in (both.mixture, both.decoder):
        torch.manual_seed(1)
        model(tokens())
    combined = penalty(both, 0)
    assert combined is not None
    assert separate[0] is not None
    assert separate[1] is not None
    torch.testing.assert_close(combined, separate[0] + separate[1])


def test_a_model_can_be_copied_after_a_training_step() -> None:
    model = make().train()
    model(tokens())
    assert torch.equal(copy.deepcopy(model).eval()(tokens()), model.eval()(tokens()))


def test_the_model_supports_language_modeling() -> None:
    assert MODELS.entry(NAME).facts["tasks"] == ("language-modelling",)
