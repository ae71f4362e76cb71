"""Penalties do not depend on how far the sentences of a decoder are padded."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import BartConfig, BartModel, T5Config, T5Model

from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.auxiliary_loss import penalty

WORDS = torch.randint(3, 20, (2, 6), generator=torch.Generator().manual_seed(0))
TARGET = torch.randint(3, 20, (2, 5), generator=torch.Generator().manual_seed(1))
SIZES: dict[str, Any] = {"d_model": 8, "vocab_size": 20, "decoder_start_token_id": 2}


def bart() -> nn.Module:
    sizes = {f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")}
    own: dict[str, Any] = {**SIZES, **sizes, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "dropout": 0.0}
    # With the default, 0.02, all attention is nearly uniform.
    model: nn.Module = BartModel(BartConfig(max_position_embeddings=16, attention_dropout=0.0, init_std=0.5, **own))
    return model


def t5() -> nn.Module:
    model: nn.Module = T5Model(T5Config(**SIZES, d_kv=4, d_ff=16, num_layers=2, num_heads=2, dropout_rate=0.0))
    return model


def term(model: nn.Module, pads: int) -> Tensor:
    """Return the penalty of a training pass whose second sentence has two words less; `pads` are added to both."""
    words = torch.nn.functional.pad(TARGET, (0, pads), value=1)
    mask = (torch.arange(5 + pads) < torch.tensor([[5], [3]])).long()
    model(input_ids=WORDS, decoder_input_ids=words, decoder_attention_mask=mask)
    found = penalty(model, 0)
    assert found is not None
    return found.detach()


@pytest.mark.parametrize("name", ["attention-entropy", "disagreement", "diverse-attention:of=tokens,layers=all"])
@pytest.mark.parametrize("build", [bart, t5])
def test_padding_of_a_decoder_does_not_count(build: Any, name: str) -> None:
    torch.manual_seed(0)
    model = build().double().train()
    bind(model, name)
    torch.testing.assert_close(term(model, 3), term(model, 0), rtol=1e-12, atol=0.0)
