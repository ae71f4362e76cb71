"""Test the contract of every registered regularizer, alone, on models that together have all kinds of sites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dropbench import REGULARIZERS, InputError, regularize, training_loss, unregularize
from dropbench.harness.memory import checkpoint_activations
from dropbench.harness.models.regularize import OBJECTIVE, bind
from dropbench.harness.models.sites import sites
from dropbench.harness.regularizers import BASELINES
from dropbench.harness.regularizers.spec import build_regularizer, fields, strengths
from dropbench.harness.training.regularization import layers_of
from tests.adapters.families import Family
from tests.adapters.test_contract import FAMILIES

MODELS = ("timm-vit", "text-transformer", "transformers-bert")
NAMES = [name for name in REGULARIZERS if name not in BASELINES]
STRONG: dict[str, dict[str, Any]] = {"ad-drop": {"alternate": False}, "attentiondrop-blur": {"sigma": 3.0}}
IN_EVALUATION = {"learned-dropout"}
"""Regularizers that change what a model computes in evaluation before it is trained."""
PRECISIONS: dict[str, tuple[torch.dtype, torch.dtype | None]] = {
    "bfloat16": (torch.bfloat16, None),
    "autocast to float16": (torch.float32, torch.float16),
}
"""The type of the parameters, and that of autocast: no float32 fits the first, and no large number the second."""
COMPARES_PASSES = {"r-drop", "attentiondrop-consistency"}


@cache
def fits(family: str, name: str) -> bool:
    try:
        bind(FAMILIES[family].model(), name)
    except InputError as error:
        return "fits none of the" not in str(error)
    return True


def family_for(name: str, families: Sequence[str] = MODELS) -> Family:
    """Return a family that a regularizer fits: one after the other, so that each family meets a share of all."""
    fitting = [family for family in families if fits(family, name)]
    assert fitting, f"{name} fits none of {families}"
    return FAMILIES[fitting[NAMES.index(name) % len(fitting)]]


def bound(family: Family, name: str, dtype: torch.dtype = torch.float32, **params: Any) -> nn.Module:
    """Return a regularized model."""
    model = family.model().to(dtype)
    regularizer = build_regularizer(name, **{**STRONG.get(name, {}), **params})
    bind(model, regularizer)
    if regularizer.has_objective:
        vars(model)[OBJECTIVE] = regularizer
    return model


def loss_of(model: nn.Module, family: Family, seed: int) -> Tensor:
    """Return the loss of a seed; the output of a model, or of its first token, has the class scores."""

    def forward(batch: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        out = family.output(model(**batch))
        scores = out if out.dim() == 2 else out[:, 0]
        return cross_entropy(scores, torch.arange(len(scores)) % scores.shape[1]), scores

    torch.manual_seed(seed)
    dtype = next(model.parameters()).dtype
    inputs = {key: x.to(dtype) if x.is_floating_point() else x for key, x in family.inputs().items()}
    return training_loss(model, forward, inputs, epoch=1)


def gradients(model: nn.Module, loss: Tensor) -> list[Tensor]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return list(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))


def named_gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Return the gradients of the parameters that have one, by their names without parametrizations."""
    loss.backward()
    named = {key: parameter.grad for key, parameter in model.named_parameters()}
    plain = {re.sub(r"parametrizations\.(.*)\.original", r"\1", key): gradient for key, gradient in named.items()}
    return {key: gradient for key, gradient in plain.items() if gradient is not None}


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_is_as_before_and_removal_restores_the_model(name: str) -> None:
    family = family_for(name)
    plain, model = family.model(), bound(family, name)
    with torch.no_grad():
        expected = family.run(plain)
        if name not in IN_EVALUATION:
            torch.testing.assert_close(family.run(model), expected, atol=1e-4, rtol=1e-4)
            assert name == "sigma-reparam" or torch.equal(family.run(model), expected)
        unregularize(model)
        torch.testing.assert_close(family.run(model), expected, atol=1e-4, rtol=1e-4)
        assert name == "sigma-reparam" or torch.equal(family.run(model), expected)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert OBJECTIVE not in vars(model)


@pytest.mark.parametrize("name", NAMES)
def test_training_changes_the_loss_with_finite_gradients(name: str) -> None:
    family = family_for(name)
    plain, model = family.model().train(), bound(family, name).train()
    if name == "mixout":  # it acts once the weights differ from the initial ones
        for each in (plain, model):
            torch.manual_seed(0)
            with torch.no_grad():
                for parameter in each.parameters():
                    parameter.add_(torch.randn_like(parameter) * 0.2)
    differs = False
    for seed in range(8):
        loss = loss_of(model, family, seed)
        assert torch.isfinite(loss)
        own = gradients(model, loss)
        assert all(torch.isfinite(gradient).all() for gradient in own)
        expected = loss_of(plain, family, seed)
        difference = abs(float(loss.detach()) - float(expected.detach()))
        if name == "sigma-reparam":  # γ is σ at first: the gradients differ
            norms = [sum(float(gradient.norm()) for gradient in each) for each in (own, gradients(plain, expected))]
            difference = abs(norms[0] - norms[1])
        differs |= difference > 1e-6
        if differs and seed > 0:
            break
    assert differs == (name not in COMPARES_PASSES)  # these models have no dropout: passes are equal


@pytest.mark.parametrize("name", NAMES)
def test_layers_that_run_again_have_the_same_losses_and_gradients(name: str) -> None:
    family = family_for(name)
    plain, checkpointed = bound(family, name), bound(family, name)
    checkpoint_activations(layers_of(checkpointed))
    plain.train()
    checkpointed.train()
    for seed in range(3):
        losses = [loss_of(model, family, seed) for model in (plain, checkpointed)]
        assert torch.equal(*losses)
        for own, expected in zip(gradients(checkpointed, losses[1]), gradients(plain, losses[0]), strict=True):
            assert torch.equal(own, expected)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("name", NAMES)
def test_it_trains_in_every_precision_and_keeps_the_types_of_the_model(name: str, precision: str) -> None:
    dtype, autocast = PRECISIONS[precision]
    family = family_for(name)
    model = bound(family, name, dtype).train()
    types = {key: value.dtype for key, value in (*model.named_parameters(), *model.named_buffers())}
    for enabled in (autocast is not None, False):  # a step after one in autocast may be in full precision
        with torch.autocast("cpu", autocast or torch.bfloat16, enabled=enabled):
            loss = loss_of(model, family, 0)
        assert loss.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients(model, loss))
    assert {key: value.dtype for key, value in (*model.named_parameters(), *model.named_buffers())} == types


@pytest.mark.parametrize("name", NAMES)
def test_strength_0_equals_none(name: str) -> None:
    family = family_for(name)
    zero: dict[str, Any] = dict.fromkeys(strengths(name) & {*fields(name)}, 0)
    if not zero:
        assert name in ("learned-dropout", "sigma-reparam")
        return
    model, plain = bound(family, name, **zero).train(), family.model().train()
    bind(plain, "none")
    loss, expected = loss_of(model, family, 0), loss_of(plain, family, 0)
    assert torch.equal(loss, expected)
    own, others = named_gradients(model, loss), named_gradients(plain, expected)
    assert {*own} == {*others}
    assert all(torch.equal(own[key], others[key]) for key in others)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "learned-dropout"])  # which needs a model of ours
def test_activation_checkpointing_changes_no_gradient(name: str) -> None:
    results = []
    family = family_for(name, ["timm-vit", "transformers-bert"])
    for checkpoints in (False, True):
        model: Any = bound(family, name).train()
        if checkpoints and family.name == "timm-vit":
            model.set_grad_checkpointing()
        elif checkpoints:
            model.activation_checkpointing_enable()
        steps = []
        for seed in range(2):  # the second step finds what the first one has left
            loss = loss_of(model, family, seed)
            steps += [loss, *gradients(model, loss)]
        results.append(steps)
    for plain, own in zip(*results, strict=True):
        torch.testing.assert_close(own, plain)


def test_layers_that_run_again_count_as_one_pass() -> None:
    model = regularize(FAMILIES["text-transformer"].model(), "dropkey", quiet=True).train()
    checkpoint_activations(layers_of(model))
    loss_of(model, FAMILIES["text-transformer"], 0).backward()
    attending = [site for site in sites(model) if site.reach is not None]
    assert attending
    assert all(site.reach.calls[site.name] == 1 for site in attending if site.reach is not None)
