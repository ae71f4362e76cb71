"""One rule for the attention dropout that a model brings along: what a regularizer replaces is replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import timm
import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2Model

from dropbench.harness.errors import count_of
from dropbench.harness.models.regularize import bind

RATE = 0.4
X = torch.randn(3, 10, 8, generator=torch.Generator().manual_seed(0))
WORDS = torch.randint(1, 20, (3, 10), generator=torch.Generator().manual_seed(1))
PIXELS = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(2))


def bert(rate: float, implementation: str) -> nn.Module:
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2}
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": rate}
    options: dict[str, Any] = {**sizes, **rates, "vocab_size": 20, "attn_implementation": implementation}
    model: nn.Module = BertModel(BertConfig(**options))
    return model


def gpt2(rate: float) -> nn.Module:
    sizes: dict[str, Any] = {"n_embd": 8, "n_layer": 2, "n_head": 2, "vocab_size": 20, "embd_pdrop": 0.0}
    model: nn.Module = GPT2Model(GPT2Config(attn_pdrop=rate, resid_pdrop=0.0, **sizes))
    return model


def vit(rate: float) -> nn.Module:
    sizes: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return timm.create_model("vit_tiny_patch16_224", attn_drop_rate=rate, num_classes=5, **sizes)


def words(model: nn.Module) -> Tensor:
    hidden: Tensor = model(WORDS).last_hidden_state
    return hidden


def itself(model: nn.Module) -> Tensor:
    out: Tensor = model(X, X, X)[0]
    return out


Build = Callable[[float], nn.Module]
MODELS: dict[str, tuple[Build, Callable[[nn.Module], Tensor], int]] = {
    "torch": (lambda rate: nn.MultiheadAttention(8, 2, dropout=rate, batch_first=True), itself, 1),
    "timm": (vit, lambda model: model(PIXELS), 2),
    "fairseq": (lambda rate: MultiheadAttention(8, 2, dropout=rate, self_attention=True), itself, 1),
    "BERT by SDPA": (lambda rate: bert(rate, "sdpa"), words, 2),
    "BERT by softmax": (lambda rate: bert(rate, "eager"), words, 2),
    "GPT-2": (gpt2, words, 2),
}
"""How to build a model with a rate of attention dropout, and to run it; and the number of its attention sites."""
every = pytest.mark.parametrize("name", MODELS)


def trained(name: str, rate: float, regularizer: str | None = None) -> Tensor:
    """Return the output of a training pass; equal seeds give equal weights and draws."""
    build, run, _ = MODELS[name]
    torch.manual_seed(0)
    model = build(rate).train()
    if regularizer is not None:
        bind(model, regularizer)
    torch.manual_seed(1)
    return run(model).detach()


@every
def test_none_is_the_model_as_it_came(name: str) -> None:
    torch.testing.assert_close(trained(name, RATE, "none"), trained(name, RATE))
    assert not torch.allclose(trained(name, RATE), trained(name, 0.0))


@pytest.mark.parametrize("regularizer", ["no-attention-dropout", "dropkey:ratio=0", "temperature:spread=0"])
@every
def test_what_replaces_it_is_without_it_at_strength_0(name: str, regularizer: str) -> None:
    torch.testing.assert_close(trained(name, RATE, regularizer), trained(name, 0.0))


@pytest.mark.parametrize("regularizer", ["dropkey:ratio=0.3", "logit-noise", "dropkey:ratio=0.3 + drophead:ratio=0.3"])
@every
def test_a_regularizer_of_keys_or_logits_replaces_it(name: str, regularizer: str) -> None:
    if not ("softmax" in name and "drophead" in regularizer):  # heads need values, which a softmax has not
        assert torch.equal(trained(name, RATE, regularizer), trained(name, 0.0, regularizer))


@pytest.mark.parametrize("regularizer", ["drophead:ratio=0", "attention-entropy"])
@every
def test_other_regularizers_of_attention_keep_it(name: str, regularizer: str) -> None:
    torch.testing.assert_close(trained(name, RATE, regularizer), trained(name, RATE))


@every
def test_an_active_one_keeps_it_too(name: str) -> None:
    if name != "BERT by softmax":
        assert not torch.allclose(trained(name, RATE, "drophead:ratio=0.5"), trained(name, 0.0, "drophead:ratio=0.5"))


@every
def test_the_report_says_so(name: str) -> None:
    build, _, sites = MODELS[name]
    line = f"the model's own attention dropout of {RATE} at {count_of(sites, 'site')}: "
    for regularizer, outcome in {"none": "kept", "drophead": "kept", "no-attention-dropout": "replaced"}.items():
        if not ("softmax" in name and regularizer == "drophead"):
            assert line + outcome in str(bind(build(RATE), regularizer))
    assert "own attention dropout" not in str(bind(build(0.0), "dropkey"))


def test_only_the_sites_with_the_regularizer_lose_it() -> None:
    report = str(bind(bert(RATE, "sdpa"), "dropkey", include="encoder.layer.1.*"))
    assert f"the model's own attention dropout of {RATE} at 2 sites: replaced at 1 of them" in report
    assert "at 2 sites: kept" in str(bind(bert(RATE, "sdpa"), "hiddencut"))
