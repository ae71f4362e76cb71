"""Learned Dropout in whole models: binding, parameters, copies, penalties, statistics."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from dropbench.harness.errors import InputError
from dropbench.harness.models.mask_recorder import mask_statistics, mean_statistics
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import sites
from dropbench.harness.regularizers.learned_dropout.mask import EmbeddingAttention
from tests.harness.regularizers.learned_dropout.tiny_decoder import (
    CONTEXT,
    LAYERS,
    decoder,
    learned,
    loss_of,
    masks,
    tokens,
)


@pytest.mark.parametrize(
    ("options", "kinds"),
    [
        ({}, {"feed-forward": LAYERS}),
        ({"where": "attention"}, {"decoder-self": LAYERS}),
        (
            {"where": "everywhere"},
            {"embedding": 1, "decoder-self": LAYERS, "attention-output": LAYERS, "feed-forward": LAYERS},
        ),
        ({"dropout_input": "embed"}, {"mask-input": 1, "feed-forward": LAYERS}),
    ],
)
def test_where_it_stands(options: dict[str, Any], kinds: dict[str, int]) -> None:
    model = decoder()
    report = bind(model, "learned-dropout", **options)
    bound = [site.kind for site in report.bound]
    assert {kind: bound.count(kind) for kind in set(bound)} == kinds
    assert len(report.bound) + len(report.skipped) == len(sites(model)) == 2 + 3 * LAYERS
    assert len(masks(model)) == sum(count for kind, count in kinds.items() if kind != "mask-input")
    loss_of(model).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


def test_attention_regularizers_leave_its_sites_alone_and_it_leaves_theirs() -> None:
    model = decoder()
    reasons = {site.kind: reason for site, reason in bind(model, "dropkey", ratio=0.3).skipped}
    assert reasons["feed-forward"] == "it does not regularize feed-forward sites"
    assert set(reasons) == {"feed-forward", "attention-output", "embedding", "mask-input"}
    reasons = {site.kind: reason for site, reason in bind(model, "learned-dropout").skipped}
    assert reasons["decoder-self"] == "where=feed-forward does not act on decoder-self sites"
    assert reasons["mask-input"] == "masks come from hidden states"


def test_it_takes_the_place_of_the_models_own_dropout() -> None:
    model = decoder(dropout=0.9)
    bind(model, "learned-dropout", where="everywhere", mask_rounding="none")
    model.train()
    assert torch.equal(model(tokens()), model(tokens()))  # nothing is left that draws
    bind(model, "learned-dropout", mask_rounding="none")
    assert not torch.equal(model(tokens()), model(tokens()))  # the other dropouts are the model's again


def test_a_copy_stands_on_its_own() -> None:
    model = learned(where="everywhere")
    loss_of(model)
    model(tokens())  # a penalty that nobody has asked for yet
    copied = copy.deepcopy(model)
    reference = model.eval()(tokens())
    with torch.no_grad():
        for module in masks(copied).values():
            module.shift.fill_(3.14159)
    assert not torch.equal(copied.eval()(tokens()), reference)
    assert torch.equal(model(tokens()), reference)
    copied.load_state_dict(model.state_dict())
    assert torch.equal(copied(tokens()), reference)


def test_detached_embeddings_leave_their_attention_untrained_and_it_says_so() -> None:
    model = learned(dropout_input="embed", detached_input=True)
    (shared,) = (module for module in model.modules() if isinstance(module, EmbeddingAttention))
    assert not any(parameter.requires_grad for parameter in shared.parameters())
    trained = learned(dropout_input="embed")
    loss_of(trained).backward()
    (shared,) = (module for module in trained.modules() if isinstance(module, EmbeddingAttention))
    assert all(parameter.grad is not None for parameter in shared.parameters())


def test_statistics_of_a_model_in_training_and_in_evaluation() -> None:
    model = learned(shift_init=3.14159)
    with mask_statistics(model.eval()) as counted:
        model(tokens())
        model(tokens())
    assert list(counted) == [f"blocks.{layer}.feedforward_dropout" for layer in range(LAYERS)]
    assert mean_statistics(counted)["kept"] == 0
    assert mean_statistics(counted)["near_zero"] == 1
    assert next(iter(counted.values())).elements == 2 * 2 * CONTEXT * 12
    model(tokens())
    assert next(iter(counted.values())).elements == 2 * 2 * CONTEXT * 12  # it is over


def test_a_cache_of_keys_is_refused() -> None:
    from dropbench.harness.models.attention import attend

    model = learned(where="attention")
    site = next(site for site in sites(model) if site.kind == "decoder-self")
    q, k = torch.randn(1, 3, 1, 4), torch.randn(1, 3, 5, 4)
    with pytest.raises(InputError, match="turn the key-value cache off"):
        attend(q, k, k, site, training=False)
