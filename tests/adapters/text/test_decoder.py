"""Test the language model of Learned Dropout: size, initialization, causality, dropout, evaluation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from dropbench.adapters.text.decoder import Decoder, build_decoder
from dropbench.harness.errors import InputError
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import sites
from tests.adapters.text.test_mixture_of_experts import make as make_mixture
from tests.input_errors import one_line

SMALL = {"layers": 2, "dim": 12, "heads": 3}


def make(name: str = "learned-dropout-lm", vocabulary: int = 31, context: int = 12, **options: Any) -> Decoder:
    torch.manual_seed(0)
    model = build_decoder(name, {**SMALL, **options}, vocabulary=vocabulary, context=context)
    assert isinstance(model, Decoder)
    return model


def tokens() -> torch.Tensor:
    return torch.randint(0, 31, (2, 12), generator=torch.Generator().manual_seed(7))


def test_embeddings_are_tied_and_initialized_as_in_the_source() -> None:
    model = make(vocabulary=2000, layers=4, dim=48)
    assert not any(name.endswith("bias") for name, _ in model.named_parameters())
    logits = model(torch.zeros(1, 3, dtype=torch.long))
    logits.sum().backward()
    assert model.token_embedding.weight.grad is not None
    # As output weights: as input embeddings only the first row would have gradients.
    assert model.token_embedding.weight.grad.ne(0).all()
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            expected = 0.02 / math.sqrt(2 * 4) if name.endswith("out.weight") else 0.02
            assert parameter.std().item() == pytest.approx(expected, rel=0.1), name
        else:
            assert parameter.eq(1).all()


@pytest.mark.parametrize(
    ("make", "regularizer", "params"),
    [
        (make, "none", {}),
        (make, "dropattention-c", {"ratio": 0.4}),
        (make, "learned-dropout", {"where": "everywhere"}),
        (make, "learned-dropout", {"dropout_input": "embed"}),
        (make_mixture, "none", {}),
    ],
)
@pytest.mark.parametrize("training", [True, False])
def test_outputs_do_not_depend_on_later_tokens(
    make: Callable[[], nn.Module], regularizer: str, params: dict[str, Any], training: bool
) -> None:
    model = make()
    bind(model, regularizer, **params)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10 if parameter.ndim == 2 else 1)
    model.train(training)
    changed = tokens()
    changed[:, 7:] = (changed[:, 7:] + 1) % 31
    logits = []
    for batch in (tokens(), changed):
        torch.manual_seed(1)
        logits.append(model(batch))
    torch.testing.assert_close(logits[0][:, :7], logits[1][:, :7])
    assert not torch.allclose(logits[0][:, 7:], logits[1][:, 7:])


@pytest.mark.parametrize("make", [make, make_mixture])
def test_attention_regularizers_are_active_only_in_training(make: Callable[[], nn.Module]) -> None:
    plain, model = make().eval(), make()
    report = bind(model, "dropkey", ratio=0.5)
    assert [site.kind for site in report.bound] == ["decoder-self"] * 2
    assert torch.equal(model.eval()(tokens()), plain(tokens()))
    assert not torch.equal(model.train()(tokens()), plain(tokens()))
    with pytest.raises(InputError, match="an input of 13 tokens: expected at most the model's context of 12"):
        model(torch.zeros(1, 13, dtype=torch.long))


def test_dropout_baselines_have_three_dropouts_per_block_and_one_on_the_embeddings() -> None:
    model = make(dropout=0.4)
    bind(model, "dropout", ratio=0.4)
    zero_shares = []

    def spy(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        zero_shares.append((output == 0).float().mean().item())

    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.register_forward_hook(spy)
    model.train()(tokens())
    assert len(zero_shares) == 2 * 2 + 1
    assert all(0.25 < share < 0.55 for share in zero_shares)
    assert [site.ratio for site in sites(model) if site.kind == "decoder-self"] == [0.4, 0.4]


def test_faithful_evaluation_keeps_only_attention_dropout_active() -> None:
    correct, faithful = make(dropout=0.4).eval(), make(dropout=0.4, evaluation="faithful").eval()
    for model in (correct, faithful):
        bind(model, "dropout", ratio=0.4)
    assert torch.equal(correct(tokens()), correct(tokens()))
    assert not torch.equal(faithful(tokens()), faithful(tokens()))
    torch.manual_seed(3)
    first = faithful(tokens())
    torch.manual_seed(3)
    assert torch.equal(faithful(tokens()), first)
    bind(faithful, "none")
    assert torch.equal(faithful(tokens()), correct(tokens()))  # the other dropouts are inactive


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (make, {"layer": 3}, "unknown option of model learned-dropout-lm 'layer': did you mean layers"),
        (make, {"dim": 13}, "heads=3 does not divide dim=13"),
        (make, {"evaluation": "wrong"}, "evaluation=wrong: input should be 'correct' or 'faithful'"),
        (make_mixture, {"dim": 9}, "dim=9 is no even multiple of heads=3"),
        (make_mixture, {"active": 5}, "active=5 of experts=4"),
    ],
)
def test_invalid_options_raise_an_error_of_one_line(
    make: Callable[..., nn.Module], options: dict[str, Any], message: str
) -> None:
    with one_line() as caught:
        make(**options)
    assert message in str(caught.value)


@pytest.mark.parametrize(("regularizer", "number"), [("hiddencut", 2), ("dropdim", 5), ("stochastic-depth", 4)])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_outputs_are_regularized_in_training_after_the_dropout_of_the_model(
    regularizer: str, number: int, dropout: float
) -> None:
    model = make(dropout=dropout)
    outputs = {}
    with torch.no_grad():
        for name in ("none", regularizer):
            if name != "none":
                assert len(bind(model, regularizer, ratio=0.5).bound) == number
            for training in (True, False):
                torch.manual_seed(1)
                outputs[name, training] = model.train(training)(tokens())
    assert not torch.equal(outputs[regularizer, True], outputs["none", True])
    assert torch.equal(outputs[regularizer, False], outputs["none", False])
