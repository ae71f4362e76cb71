"""Small models of fairseq: translation, post-norm and pre-norm, a language model, and single attention modules."""

from __future__ import annotations

from argparse import Namespace
from functools import partial
from typing import Any

import torch
from fairseq import models
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from dropbench.adapters.libraries.fairseq_models import build_translation_model, symbols
from tests.adapters.families import (
    SAMPLES,
    TOKENS,
    VOCABULARY,
    Family,
    Inputs,
    Leak,
    changed,
    future,
    tokens,
    vectors,
)

PADDING = 1
SMALL = {"encoder_layers": 2, "decoder_layers": 3, "dim": 8, "feedforward": 16, "heads": 2, "dropout": 0.0}


def translation(**options: Any) -> nn.Module:
    """Return a model of DropBench's builder, without the duplicates."""
    return build_translation_model(
        "transformer-wmt-en-de", {**SMALL, **options}, source=VOCABULARY, target=VOCABULARY, joined=True
    )


def stock(arch: str = "transformer_wmt_en_de", **options: Any) -> nn.Module:
    """Return a model of fairseq's registry, with the duplicates."""
    shape: dict[str, Any] = {
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "max_target_positions": 32,
        "tokens_per_sample": 32,
    }
    for side in ("encoder", "decoder"):
        shape |= {
            f"{side}_layers": 2,
            f"{side}_embed_dim": 8,
            f"{side}_ffn_embed_dim": 16,
            f"{side}_attention_heads": 2,
        }
    arguments = Namespace(arch=arch, max_source_positions=32, **{**shape, **options})
    models.ARCH_CONFIG_REGISTRY[arch](arguments)
    dictionary = symbols(VOCABULARY)
    model: nn.Module = models.build_model(
        arguments, Namespace(source_dictionary=dictionary, target_dictionary=dictionary)
    )
    return model


def sentences() -> Inputs:
    """Return sources, with two tokens of padding in the first one, and targets shifted to the right."""
    source = tokens("src_tokens", None)
    source["src_tokens"][0, 4:] = PADDING
    return {
        **source,
        "src_lengths": source["src_tokens"].ne(PADDING).sum(dim=1),
        "prev_output_tokens": tokens(seed=1)["input_ids"],
    }


def outputs(out: tuple[Tensor, Any]) -> Tensor:
    return out[0]


class OneAttention(nn.Module):
    """A single MultiheadAttention."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = MultiheadAttention(8, 2, **options)

    def forward(self, **inputs: Tensor) -> Tensor:
        out, weights = self.attention(**inputs)
        assert weights is not None
        return torch.as_tensor(out)


def cross_inputs() -> Inputs:
    """Return inputs with the sequence first, keys of another width, a float mask and a padding mask."""
    hidden = torch.zeros(SAMPLES, TOKENS, dtype=torch.bool)
    hidden[0, 4:] = True
    return {
        "query": vectors(3, SAMPLES, 8),
        "key": vectors(TOKENS, SAMPLES, 5, seed=1),
        "value": vectors(TOKENS, SAMPLES, 5, seed=2),
        "key_padding_mask": hidden,
        "attn_mask": vectors(3, TOKENS, seed=4),
    }


def self_inputs() -> Inputs:
    x = vectors(TOKENS, SAMPLES, 8)
    return {"query": x, "key": x, "value": x, "key_padding_mask": cross_inputs()["key_padding_mask"]}


def padding(*keys: str) -> Leak:
    """Return the leak of padded keys and values (S, B, C) into the first sample; the second has no padding."""
    return Leak(
        "padding",
        changed((slice(4, None), 0), *keys),
        lambda out: out[:4, 0],
        changed((slice(4, None), 1), *keys),
        lambda out: out[:4, 1],
    )


BOTH = {"encoder-self": 2, "decoder-self": 2, "cross": 2}

FAMILIES = [
    Family(
        "fairseq-translation",
        partial(translation),
        sentences,
        {"encoder-self": 2, "decoder-self": 3, "cross": 3},
        output=outputs,
        leaks=(future("prev_output_tokens"),),
    ),
    Family("fairseq-stock", stock, sentences, BOTH, output=outputs, leaks=(future("prev_output_tokens"),)),
    Family(
        "fairseq-prenorm",
        partial(stock, encoder_normalize_before=True, decoder_normalize_before=True),
        sentences,
        BOTH,
        output=outputs,
        leaks=(future("prev_output_tokens"),),
    ),
    Family(
        "fairseq-language-model",
        partial(stock, "transformer_lm", decoder_output_dim=8, decoder_input_dim=8),
        lambda: {"src_tokens": tokens()["input_ids"]},
        {"decoder-self": 2},
        output=outputs,
        leaks=(future("src_tokens"),),
    ),
    Family(
        "fairseq-attention",
        partial(OneAttention, self_attention=True),
        self_inputs,
        {"encoder-self": 1},
        leaks=(padding("query", "key", "value"),),
    ),
    Family(
        "fairseq-cross-attention",
        partial(OneAttention, kdim=5, vdim=5, encoder_decoder_attention=True),
        cross_inputs,
        {"cross": 1},
        leaks=(padding("key", "value"),),
    ),
]
