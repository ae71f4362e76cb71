"""Test fairseq's models: compatible weights, removed parameters, refused modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.sparse_multihead_attention import SparseMultiheadAttention
from torch import Tensor, nn

from dropbench import InputError, unregularize
from dropbench.adapters.libraries import fairseq_attention
from dropbench.adapters.libraries.fairseq_models import (
    ARCHITECTURES,
    DUPLICATES,
    build_translation_model,
    without_duplicates,
)
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch
from tests.adapters.families import Inputs, tokens
from tests.adapters.libraries.fairseq_families import FAMILIES, sentences, stock, translation

FAMILY = {family.name: family for family in FAMILIES}
pytestmark = pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask")


def test_the_base_model_has_the_published_size_without_untrained_parameters() -> None:
    with torch.device("meta"):
        base = build_translation_model("transformer-wmt-en-de", {}, source=32_768, target=32_768, joined=True)
        layers = [layer for layer in stock_base().modules() if hasattr(layer, "in_proj_weight")]
    assert sum(parameter.numel() for parameter in base.parameters()) == 60_915_712
    untrained = sum(getattr(layer, name).numel() for layer in layers for name in DUPLICATES)
    assert 60_915_712 + untrained == 79_817_728
    report = bind(base, "dropattention-c", ratio=0.2)
    assert [site.kind for site in report.bound].count("cross") == 6
    assert len(report.bound) == 18


def test_no_weight_is_left_uninitialized() -> None:
    torch.use_deterministic_algorithms(True)  # fills new memory with NaN
    try:
        model = translation()
        model.load_state_dict(model.state_dict())  # fairseq puts a new tensor of open value into each state
    finally:
        torch.use_deterministic_algorithms(False)
    assert not [name for name, value in model.state_dict().items() if value.isnan().any()]


def stock_base() -> nn.Module:
    sizes: dict[str, Any] = {
        "encoder_layers": 6,
        "encoder_embed_dim": 512,
        "encoder_ffn_embed_dim": 2048,
        "encoder_attention_heads": 8,
    }
    return stock(**sizes, decoder_layers=1, decoder_embed_dim=512)


def unpadded() -> Inputs:
    """Return sentences without padding, with which fairseq's native call fails in torch."""
    return {**sentences(), "src_tokens": tokens()["input_ids"]}


def test_weights_are_compatible_in_both_directions() -> None:
    theirs, ours = stock().eval(), without_duplicates(stock()).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    assert set(theirs.state_dict()) - set(ours.state_dict()) == {
        f"encoder.layers.{layer}.{name}" for layer in range(2) for name in DUPLICATES
    }
    ours.load_state_dict(theirs.state_dict())
    run = FAMILY["fairseq-stock"].run
    expected = run(theirs)
    assert torch.equal(run(ours), expected)
    reloaded = stock().eval()
    reloaded.load_state_dict(ours.state_dict())
    # Loaded and never trained, each of its encoder layers is one native call.
    torch.testing.assert_close(run(reloaded, unpadded()), run(ours, unpadded()), atol=1e-5, rtol=1e-5)
    again = without_duplicates(stock()).eval()
    again.load_state_dict(ours.state_dict())
    assert torch.equal(run(again), expected)


def test_a_loaded_stock_model_keeps_its_native_call_unless_watched() -> None:
    run = FAMILY["fairseq-stock"].run
    model = stock()
    model.load_state_dict(stock().state_dict())
    model.eval()
    before, classes = run(model, unpadded()), [type(module) for module in model.modules()]
    called: list[str] = []
    bind(model, "dropkey", ratio=0.5)
    assert torch.equal(run(model, unpadded()), before)
    with watch(model, lambda site, weights: called.append(site.name)):
        torch.testing.assert_close(run(model, unpadded()), before, atol=1e-5, rtol=1e-5)
    assert len(called) == 6
    assert torch.equal(run(model, unpadded()), before)
    unregularize(model)
    assert [type(module) for module in model.modules()] == classes
    assert torch.equal(run(model, unpadded()), before)


def test_weights_returned_in_training_are_those_before_dropping() -> None:
    family = FAMILY["fairseq-attention"]
    model = family.model().train()
    inputs = family.inputs()
    attention: Any = model.attention
    plain = attention(**inputs)[1]
    heads = attention(**inputs, need_head_weights=True)[1]
    bind(model, "dropkey", ratio=0.5)
    for seed in range(2):
        torch.manual_seed(seed)
        torch.testing.assert_close(attention(**inputs)[1], plain)
        out, weights = attention(**inputs, need_head_weights=True)
        assert weights.shape == (2, 2, 6, 6)
        torch.testing.assert_close(weights.mean(dim=0), plain)
        assert out.shape == inputs["query"].shape
    assert heads is not None


@pytest.mark.parametrize(
    ("name", "joint"),
    [
        ("fairseq-translation", [3, 3, *([3, 2] * 3)]),
        ("fairseq-attention", [3]),
        ("fairseq-cross-attention", []),  # queries, keys and values differ
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_joint_projections_equal_those_of_the_modules(
    name: str, joint: list[int], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = FAMILY[name]
    jointly: list[int] = []
    project = fairseq_attention._project_jointly

    def counted(x: Tensor, projections: tuple[nn.Linear, ...]) -> Tensor:
        jointly.append(len(projections))
        return project(x, projections)

    monkeypatch.setattr(fairseq_attention, "_project_jointly", counted)
    results = []
    for hooked in (False, True):
        model = family.model().train()
        attentions = [module for module in model.modules() if isinstance(module, MultiheadAttention)]
        for attention in attentions:
            for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
                projection.bias = projection.bias if bias else None
            if hooked:
                attention.v_proj.register_forward_hook(lambda *call: None)
        bind(model, "dropkey", ratio=0.5)
        out = family.run(model)
        grads = torch.autograd.grad(
            (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum(), [*model.parameters()]
        )
        results.append((out, grads, [*jointly]))
        jointly.clear()
    torch.testing.assert_close(results[0][:2], results[1][:2], rtol=1e-4, atol=1e-5)
    assert results[0][2] == joint
    assert not results[1][2]


@pytest.mark.parametrize(
    "module",
    [
        MultiheadAttention(8, 2, add_bias_kv=True),
        MultiheadAttention(8, 2, add_zero_attn=True),
        SparseMultiheadAttention(8, 2, self_attention=True, is_bidirectional=True),
    ],
    ids=["bias_k", "zero", "sparse"],
)
def test_subclasses_and_added_keys_are_regularized(module: Any) -> None:
    x = torch.randn(5, 2, 8)

    def run() -> Tensor:
        return torch.as_tensor(module(x, x, x)[0])

    plain = run()
    bind(nn.ModuleList([module]), "none")
    torch.testing.assert_close(run(), plain)
    bind(nn.ModuleList([module]), "dropkey", ratio=0.5)
    assert not torch.allclose(run(), plain)
    module.eval()
    assert torch.equal(run(), plain)


def test_a_regularizer_of_keys_replaces_the_models_attention_dropout() -> None:
    model = stock(attention_dropout=0.9).train()
    run = FAMILY["fairseq-stock"].run
    bind(model, "dropkey", ratio=0.0)
    assert torch.equal(run(model, seed=1), run(model, seed=2))
    unregularize(model)
    assert not torch.equal(run(model, seed=1), run(model, seed=2))


@pytest.mark.parametrize(
    ("options", "joined", "message"),
    [
        ({"heads": 3}, True, r"model transformer-wmt-en-de: heads=3 does not divide dim=8"),
        ({"width": 3}, True, r"unknown option of model transformer-wmt-en-de 'width'"),
        ({"share": "some"}, True, r"model transformer-wmt-en-de: share"),
        ({}, False, r"share=all needs a joint dictionary of both languages: expected decoder or none"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, Any], joined: bool, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_translation_model(
            "transformer-wmt-en-de", {"dim": 8, "heads": 2, **options}, source=20, target=20, joined=joined
        )


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_model_has_attention_dropout_of_its_own(name: str) -> None:
    small = {"encoder_layers": 1, "decoder_layers": 1, "dim": 8, "heads": 2, "feedforward": 8}
    model = build_translation_model(name, small, source=20, target=20, joined=True)
    own: list[Any] = [module for module in model.modules() if isinstance(module, MultiheadAttention)]
    assert [module.dropout_module.p for module in own] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("share", ["all", "decoder", "none"])
def test_embeddings_are_shared_as_configured(share: str) -> None:
    model: Any = translation(share=share)
    source, target = model.encoder.embed_tokens.weight, model.decoder.embed_tokens.weight
    assert (source is target) == (share == "all")
    assert (model.decoder.output_projection.weight is target) == (share != "none")


def test_watching_beam_search_does_not_hide_nan() -> None:
    model = FAMILY["fairseq-attention"].model()
    attention: Any = model.attention
    bind(model, "dropkey", ratio=0.5)
    query = torch.randn(1, 2, 8)
    query[0, 0, 0] = float("nan")
    with watch(model, lambda site, weights: None):
        out = attention(query, query, query, incremental_state={})[0]
    assert out[0, 0].isnan().all()
    assert not out[0, 1].isnan().any()
