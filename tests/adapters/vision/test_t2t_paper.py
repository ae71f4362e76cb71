"""Compare T2T-ViT with loops written from the paper's description (Yuan et al. 2021, Section 3)."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import nn

from dropbench.adapters.vision.t2t_module import SOFT_SPLITS, TokenPerformer, TokensToTokens
from dropbench.adapters.vision.t2t_vit import Block, T2TOptions, T2TViT, build_t2t_vit

CLOSE = 1e-6


def shaken(module: nn.Module) -> nn.Module:
    """Return a module in float64 with random parameters, none of them 0 or equal."""
    torch.manual_seed(1)
    module = module.double().eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


def numbers(module: nn.Module) -> dict[str, Any]:
    return {name: value.numpy() for name, value in module.state_dict().items()}


def normed(x: Any, p: dict[str, Any], name: str) -> Any:
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]


def linear(x: Any, p: dict[str, Any], name: str) -> Any:
    return np.einsum("ni,oi->no", x, p[f"{name}.weight"]) + p.get(f"{name}.bias", 0.0)


def gelu(x: Any) -> Any:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def attended(q: Any, k: Any, v: Any, scale: float) -> Any:
    weights = np.exp(np.einsum("id,jd->ij", q, k) * scale)
    return np.einsum("ij,jd->id", weights / weights.sum(1, keepdims=True), v)


def soft_split(image: Any, kernel: int, stride: int, padding: int) -> tuple[Any, tuple[int, int]]:
    """Return a token for each neighborhood of (C, H, W), channel by channel, with zero padding."""
    channels, height, width = image.shape
    tops = range(-padding, height + padding - kernel + 1, stride)
    lefts = range(-padding, width + padding - kernel + 1, stride)
    tokens = []
    for top in tops:
        for left in lefts:
            tokens.append(
                [
                    image[channel, row, column] if 0 <= row < height and 0 <= column < width else 0.0
                    for channel in range(channels)
                    for row in range(top, top + kernel)
                    for column in range(left, left + kernel)
                ]
            )
    return np.array(tokens), (len(tops), len(lefts))


def token_transformer(x: Any, p: dict[str, Any], at: str) -> Any:
    q, k, v = np.split(linear(normed(x, p, f"{at}.norm1"), p, f"{at}.attn.qkv"), 3, axis=1)
    x = v + linear(attended(q, k, v, x.shape[1] ** -0.5), p, f"{at}.attn.proj")
    return x + linear(gelu(linear(normed(x, p, f"{at}.norm2"), p, f"{at}.mlp.fc1")), p, f"{at}.mlp.fc2")


def token_performer(x: Any, p: dict[str, Any], at: str) -> Any:
    """Compute the performer's attention with an explicit matrix of all queries and keys."""
    k, q, v = np.split(linear(normed(x, p, f"{at}.norm1"), p, f"{at}.kqv"), 3, axis=1)
    w = p[f"{at}.w"]
    weights = np.zeros((len(q), len(k)))
    for i in range(len(q)):
        for j in range(len(k)):
            for row in w:
                weights[i, j] += (
                    math.exp(row @ q[i] - q[i] @ q[i] / 2) * math.exp(row @ k[j] - k[j] @ k[j] / 2) / len(w)
                )
    out = np.einsum("ij,jd->id", weights, v) / (weights.sum(1, keepdims=True) + 1e-8)
    x = v + linear(out, p, f"{at}.proj")
    return x + linear(gelu(linear(normed(x, p, f"{at}.norm2"), p, f"{at}.mlp.0")), p, f"{at}.mlp.2")


def tokens_to_tokens(image: Any, p: dict[str, Any], layer: Any, splits: Any) -> Any:
    for index, split in enumerate(splits[:2]):
        tokens, (rows, columns) = soft_split(image, *split)
        image = layer(tokens, p, f"attention{index + 1}").T.reshape(-1, rows, columns)
    return linear(soft_split(image, *splits[2])[0], p, "project")


@pytest.mark.parametrize("kind", ["transformer", "performer"])
@pytest.mark.parametrize(("stride", "size"), [(16, (32, 48)), (8, (16, 24)), (4, (12, 8)), (2, (6, 8))])
def test_the_t2t_module_matches_the_paper(kind: Any, stride: int, size: tuple[int, int]) -> None:
    module = TokensToTokens(kind, stride, size, channels=2, token_dim=4, embed_dim=6)
    module = cast(TokensToTokens, shaken(module))
    if kind == "performer":
        with torch.no_grad():
            for layer in (module.attention1, module.attention2):
                cast(TokenPerformer, layer).kqv.weight.mul_(0.1)  # the features of long keys are 0
    images = torch.randn(2, 2, *size, dtype=torch.float64)
    derive = token_performer if kind == "performer" else token_transformer
    with torch.no_grad():
        outputs = module(images).numpy()
    for image, tokens in zip(images.numpy(), outputs, strict=True):
        expected = tokens_to_tokens(image, numbers(module), derive, SOFT_SPLITS[stride])
        assert expected.shape == (size[0] * size[1] // stride**2, 6)
        np.testing.assert_allclose(tokens, expected, atol=CLOSE)
    assert outputs.std() > 0.1


def test_a_block_matches_the_paper() -> None:
    block = shaken(Block(T2TOptions(embed_dim=12, num_heads=3, mlp_ratio=2.5, depth=2), 1, (2, 2)))
    p, x = numbers(block), np.random.default_rng(0).standard_normal((5, 12))
    q, k, v = np.split(linear(normed(x, p, "norm1"), p, "attn.qkv"), 3, axis=1)
    thirds = [slice(4 * head, 4 * head + 4) for head in range(3)]
    heads = [attended(q[:, third], k[:, third], v[:, third], 4**-0.5) for third in thirds]
    expected = x + linear(np.concatenate(heads, axis=1), p, "attn.proj")
    hidden = gelu(linear(normed(expected, p, "norm2"), p, "mlp.fc1"))
    assert hidden.shape == (5, 30)
    expected = expected + linear(hidden, p, "mlp.fc2")
    with torch.no_grad():
        np.testing.assert_allclose(block(torch.from_numpy(x)[None])[0].numpy(), expected, atol=CLOSE)


def test_logits_are_computed_from_the_class_token() -> None:
    model = cast(T2TViT, shaken(build_t2t_vit("t2t-vit-digits", {}, image_size=(8, 8), channels=3, classes=5)))
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        tokens = model.tokens_to_token(images)
        x = torch.stack([torch.cat([model.cls_token[0], sample]) + model.pos_embed[0] for sample in tokens])
        for block in model.blocks:
            x = block(x)
        first = normed(x[:, 0].numpy(), numbers(model), "norm")
        np.testing.assert_allclose(model(images).numpy(), linear(first, numbers(model), "head"), atol=CLOSE)
