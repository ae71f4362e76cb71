"""Small models of torch, timm, torchvision and DropBench."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import timm
import torch
from timm.models.eva import Eva
from timm.models.volo import VOLO
from torch import Tensor, nn
from torchvision.models import VisionTransformer

from dropbench.adapters.text.text_transformer import build_text_transformer
from tests.adapters.families import (
    SAMPLES,
    TOKENS,
    VOCABULARY,
    Family,
    Inputs,
    Leak,
    changed,
    future,
    padding,
    source_padding,
    tokens,
    vectors,
)


class OneAttention(nn.Module):
    """A single nn.MultiheadAttention that also computes its weights."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, **options)

    def forward(self, **inputs: Tensor) -> Tensor:
        out, weights = self.attention(**inputs)
        assert weights is not None
        return torch.as_tensor(out)


def self_inputs(batch_first: bool = True) -> Inputs:
    x = vectors(SAMPLES, TOKENS, 8) if batch_first else vectors(TOKENS, SAMPLES, 8)
    hidden = torch.zeros(SAMPLES, TOKENS, dtype=torch.bool)
    hidden[0, 4:] = True
    return {"query": x, "key": x, "value": x, "key_padding_mask": hidden}


def cross_inputs() -> Inputs:
    """Return inputs with the sequence first, other widths, and float masks: per sample and head, and of padding."""
    hidden = torch.zeros(SAMPLES, TOKENS)
    hidden[0, 4:] = float("-inf")
    return {
        "query": vectors(3, SAMPLES, 8),
        "key": vectors(TOKENS, SAMPLES, 5, seed=1),
        "value": vectors(TOKENS, SAMPLES, 3, seed=2),
        "key_padding_mask": hidden,
        "attn_mask": vectors(SAMPLES * 2, 3, TOKENS, seed=4),
    }


class Transformer(nn.Module):
    """nn.Transformer with a causal target and a padded source."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Transformer(8, 2, 2, 3, 16, dropout=0.0, batch_first=True)

    def forward(self, source: Tensor, target: Tensor, hidden: Tensor) -> Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        padding = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))
        out: Tensor = self.body(
            source,
            target,
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return out


def transformer_inputs() -> Inputs:
    source = self_inputs()
    return {
        "source": source["query"],
        "target": vectors(SAMPLES, TOKENS, 8, seed=5),
        "hidden": source["key_padding_mask"],
    }


def encoder_inputs() -> Inputs:
    inputs = self_inputs()
    return {"src": inputs["query"], "src_key_padding_mask": inputs["key_padding_mask"]}


def encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, **options)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


def image(key: str, side: int = 32) -> Callable[[], Inputs]:
    return lambda: {key: vectors(SAMPLES, 3, side, side)}


def vit(**options: Any) -> nn.Module:
    shape = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 3, "num_heads": 2, "num_classes": 5}
    return timm.create_model("vit_tiny_patch16_224", **{**shape, **options})


def deit_distilled() -> nn.Module:
    shape: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return timm.create_model("deit_tiny_distilled_patch16_224", num_classes=5, **shape)


def swin() -> nn.Module:
    return timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=64,
        window_size=4,
        embed_dim=8,
        depths=(2, 2),
        num_heads=(2, 4),
        num_classes=5,
        drop_path_rate=0.0,
    )


def volo() -> nn.Module:
    return VOLO(
        layers=[2, 2, 1],
        img_size=64,
        num_classes=5,
        embed_dims=[8, 16, 16],
        num_heads=[2, 2, 2],
        downsamples=(True, False, False),
        outlook_attention=(True, False, False),
        stem_hidden_dim=4,
    )


def eva(**options: Any) -> nn.Module:
    shape: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return Eva(num_classes=5, use_rot_pos_emb=True, **shape, **options)


CROSS = {"kdim": 5, "vdim": 3, "add_bias_kv": True, "add_zero_attn": True}
SELF_KEYS = ("query", "key", "value")

FAMILIES = [
    Family(
        "torch-mha",
        partial(OneAttention, batch_first=True),
        self_inputs,
        {"encoder-self": 1},
        leaks=(padding(*SELF_KEYS),),
    ),
    Family(
        "torch-mha-cross",
        partial(OneAttention, **CROSS),
        cross_inputs,
        {"encoder-self": 1},
        leaks=(
            Leak(
                "padding",
                changed((slice(4, None), 0), "key", "value"),
                lambda out: out[:, 0],
                changed((slice(4, None), 1), "key", "value"),
                lambda out: out[:, 1],
            ),
        ),
    ),
    Family("torch-encoder", encoder, encoder_inputs, {"encoder-self": 3}, leaks=(padding("src"),)),
    Family(
        "torch-encoder-prenorm",
        partial(encoder, norm_first=True),
        encoder_inputs,
        {"encoder-self": 3},
        leaks=(padding("src"),),
    ),
    Family(
        "torch-transformer",
        Transformer,
        transformer_inputs,
        {"encoder-self": 2, "decoder-self": 3, "cross": 3},
        leaks=(source_padding("source"), future("target")),
    ),
    Family(
        "torchvision-vit",
        partial(VisionTransformer, 32, 8, 2, 2, 16, 32, num_classes=5),
        image("x"),
        {"encoder-self": 2},
        grid=True,
    ),
    Family("timm-vit", vit, image("x"), {"encoder-self": 3}, grid=True),
    Family(
        "timm-vit-qk-norm",
        partial(vit, qk_norm=True, class_token=False, global_pool="avg"),
        image("x"),
        {"encoder-self": 3},
        grid=True,
    ),
    Family("timm-deit-distilled", deit_distilled, image("x"), {"encoder-self": 2}, grid=True),
    Family("timm-eva", eva, image("x"), {"encoder-self": 2}, grid=True),
    Family("timm-eva-separate", partial(eva, qkv_fused=False), image("x"), {"encoder-self": 2}, grid=True),
    Family(
        "timm-rope-shared-keys",
        partial(eva, attn_type="rope", qkv_fused=False, num_kv_heads=1),
        image("x"),
        {"encoder-self": 2},
        grid=True,
    ),
    Family("timm-swin", swin, image("x", 64), {"encoder-self": 4}, grid=True),
    Family("timm-volo", volo, image("x", 64), {"outlook": 2, "encoder-self": 3}, grid=True),
    Family(
        "text-transformer",
        partial(
            build_text_transformer,
            "text-transformer",
            {"dim": 8, "heads": 2, "feedforward": 16, "dropout": 0.0},
            vocabulary=VOCABULARY,
            classes=3,
            max_length=TOKENS,
        ),
        lambda: {"tokens": tokens("tokens")["tokens"] * tokens()["attention_mask"]},
        {"encoder-self": 2},
        own=True,
    ),
]
