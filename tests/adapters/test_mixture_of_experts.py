"""The mixture of experts: its size, the loss that balances it, causality, attention regularizers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn.functional import one_hot

from adapters.decoder import build_decoder
from adapters.mixture_of_experts import MixtureOfExperts, build_mixture
from harness.binding import bind
from harness.errors import InputError
from harness.models import MODELS
from harness.penalty import penalty

NAME = "learned-dropout-lm-moe"
SMALL = {"layers": 2, "dim": 12, "heads": 3, "experts": 4, "active": 2, "feedforward": 10}


def make(**options: Any) -> MixtureOfExperts:
    torch.manual_seed(0)
    model = build_mixture(NAME, {**SMALL, **options}, vocabulary=31, context=12)
    assert isinstance(model, MixtureOfExperts)
    return model


def tokens() -> torch.Tensor:
    return torch.randint(0, 31, (2, 12), generator=torch.Generator().manual_seed(7))


def test_as_many_parameters_are_active_as_learned_dropout_has() -> None:
    with torch.device("meta"):
        model = build_mixture(NAME, {}, vocabulary=50_257, context=200)
    assert isinstance(model, MixtureOfExperts)
    total = sum(parameter.numel() for parameter in model.parameters())
    assert (total, total - model.inactive_parameters) == (30_105_504, 15_335_424)


def test_the_mini_recipes_are_as_equal() -> None:
    from adapters.decoder import Decoder, parameter_count
    from tasks.making import read_recipes

    options = {name: entry["mini"]["model"] for name, entry in read_recipes("language-modelling")["models"].items()}
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
    assert active == parameter_count(masked)
    assert parameter_count(plain) == pytest.approx(active, rel=0.03)


def test_what_is_inactive_is_what_a_token_does_not_reach() -> None:
    model = make()
    model(tokens()[:1, :1]).sum().backward()
    reached = [
        (parameter.grad.flatten(1) != 0).any(dim=1).sum().item()
        for name, parameter in model.named_parameters()
        if name.endswith("experts.down_proj") and parameter.grad is not None
    ]
    assert reached == [2, 2]  # of four experts in each of two layers
    assert model.inactive_parameters == 2 * 2 * 3 * 12 * 10


def test_the_load_of_the_experts_is_balanced_as_switch_transformers_do() -> None:
    model = make(balance=0.5).train()
    seen: list[torch.Tensor] = []
    for layer in model.decoder.model.layers:
        layer.mlp.gate.register_forward_hook(lambda module, inputs, out: seen.append(out[0].detach()))
    model(tokens())
    probabilities = torch.cat(seen).softmax(dim=-1)
    chosen = one_hot(probabilities.topk(2).indices, 4).sum(dim=1).double()
    wanted = 0.5 * 4 * (chosen.mean(dim=0) * probabilities.mean(dim=0)).sum()
    found = penalty(model, 0)
    assert found is not None
    assert found.requires_grad
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)
    assert penalty(model, 0) is None  # asked for once
    model.eval()(tokens())
    assert penalty(model, 0) is None


def test_the_penalty_of_masks_is_a_mean_to_which_the_models_own_loss_is_added() -> None:
    class Both(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mixture = make()
            self.decoder = build_decoder(
                "learned-dropout-lm", {"layers": 2, "dim": 12, "heads": 3}, vocabulary=31, context=12
            )

    both = Both().train()
    bind(both.decoder, "learned-dropout")
    parts = []
    for model in (both.mixture, both.decoder):
        torch.manual_seed(1)
        model(tokens())
        parts.append(penalty(model, 0))
    for model in (both.mixture, both.decoder):
        torch.manual_seed(1)
        model(tokens())
    whole = penalty(both, 0)
    assert whole is not None
    assert parts[0] is not None
    assert parts[1] is not None
    torch.testing.assert_close(whole, parts[0] + parts[1])


def test_no_token_knows_of_later_ones() -> None:
    model = make().eval()
    changed = tokens()
    changed[:, 7:] = (changed[:, 7:] + 1) % 31
    first, second = model(tokens()), model(changed)
    torch.testing.assert_close(first[:, :7], second[:, :7])
    assert not torch.allclose(first[:, 7:], second[:, 7:])


def test_attention_regularizers_work_on_it_in_training_alone() -> None:
    plain, model = make().eval(), make()
    report = bind(model, "dropkey", ratio=0.5)
    assert [site.kind for site in report.bound] == ["decoder-self"] * 2
    assert torch.equal(model.eval()(tokens()), plain(tokens()))
    assert not torch.equal(model.train()(tokens()), plain(tokens()))


def test_a_trained_one_can_be_copied() -> None:
    model = make().train()
    model(tokens())
    assert torch.equal(copy.deepcopy(model).eval()(tokens()), model.eval()(tokens()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expert": 3}, f"unknown option of model {NAME} 'expert': did you mean experts"),
        ({"dim": 9}, "dim=9 is no even multiple of heads=3"),
        ({"active": 5}, "active=5 of experts=4"),
        ({"balance": -1.0}, "balance=-1.0: input should be greater than or equal to 0"),
    ],
)
def test_impossible_options_are_one_clear_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make(**options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_text_longer_than_the_context_is_refused() -> None:
    with pytest.raises(InputError, match="a text of 13 tokens: expected at most 12"):
        make()(torch.zeros(1, 13, dtype=torch.long))


def test_it_serves_language_modelling() -> None:
    assert MODELS.entry(NAME).facts["tasks"] == ("language-modelling",)
