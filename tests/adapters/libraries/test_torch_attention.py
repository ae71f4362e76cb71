"""Test nn.MultiheadAttention in all its forms against torch's own, and torch's Transformer layers."""

from __future__ import annotations

from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dropbench import InputError, Site, regularize, unregularize
from dropbench.adapters.libraries.torch_attention import RegularizedMultiheadAttention
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch

SAMPLES, QUERIES, KEYS, HEADS = 2, 3, 5, 2
drop = partial(regularize, regularizer="dropkey", ratio=0.5, quiet=True)


def attention(**options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(1)
    module = nn.MultiheadAttention(8, HEADS, **options)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)
    return module


def masks(kind: str, *, queries: int, keys: int, batched: bool = True) -> dict[str, Any]:
    """Return the mask arguments of a call, by kind."""
    torch.manual_seed(2)
    hidden = torch.zeros(SAMPLES, keys, dtype=torch.bool)
    hidden[0, -2:] = True
    pairs = torch.rand(queries, keys) < 0.3
    pairs[:, 0] = False
    heads = torch.rand(SAMPLES * HEADS, queries, keys) < 0.3
    heads[..., 0] = False
    padding, per_head = (hidden, heads) if batched else (hidden[0], heads[:HEADS])
    bias = torch.randn(per_head.shape)
    as_float = torch.zeros(padding.shape).masked_fill(padding, float("-inf"))
    return {
        "none": {},
        "padding": {"key_padding_mask": padding},
        "padding-float": {"key_padding_mask": as_float},
        "pairs": {"attn_mask": pairs},
        "pairs-and-padding": {"attn_mask": pairs, "key_padding_mask": padding},
        "heads": {"attn_mask": per_head},
        "heads-float-and-padding": {"attn_mask": bias, "key_padding_mask": as_float},
    }[kind]


MASKS = ("none", "padding", "padding-float", "pairs", "pairs-and-padding", "heads", "heads-float-and-padding")
FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "batch-first": {"batch_first": True},
    "widths": {"kdim": 5, "vdim": 3},
    "added-keys": {"add_bias_kv": True, "add_zero_attn": True},
    "no-bias": {"bias": False, "batch_first": True, "add_zero_attn": True},
}


def inputs(form: str, *, self_attention: bool, batched: bool) -> tuple[Tensor, Tensor, Tensor]:
    module = attention(**FORMS[form])
    torch.manual_seed(3)
    shape = (SAMPLES,) if batched else ()
    query, key, value = (
        torch.randn(*shape, tokens, width) if module.batch_first or not batched else torch.randn(tokens, *shape, width)
        for tokens, width in ((QUERIES, 8), (KEYS, module.kdim), (KEYS, module.vdim))
    )
    return (query, query, query) if self_attention else (query, key, value)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("form", FORMS)
def test_training_without_dropping_equals_torch(form: str, mask: str) -> None:
    module = attention(**FORMS[form])
    cases = product((True, False), (True, False), (True, False), (True, False))
    for self_attention, batched, need_weights, average in cases:
        if self_attention and form == "widths":
            continue
        qkv = inputs(form, self_attention=self_attention, batched=batched)
        options = masks(mask, queries=QUERIES, keys=QUERIES if self_attention else KEYS, batched=batched)
        options |= {"need_weights": need_weights, "average_attn_weights": average}
        expected, weights = module(*qkv, **options)
        bind(module, "none")
        assert type(module) is RegularizedMultiheadAttention
        out, own_weights = module(*qkv, **options)
        unregularize(module)
        torch.testing.assert_close(out, expected, atol=1e-6, rtol=1e-5)
        assert (own_weights is None) == (weights is None)
        if weights is not None:
            torch.testing.assert_close(own_weights, weights, atol=1e-6, rtol=1e-5)


def test_returned_weights_are_those_before_dropping_with_gradients() -> None:
    module = attention(batch_first=True)
    x = torch.randn(2, 6, 8)
    expected = module(x, x, x)[1]
    out, weights = drop(module)(x, x, x)
    assert not torch.allclose(out, unregularize(module)(x, x, x)[0])
    torch.testing.assert_close(weights, expected)
    weights.square().sum().backward()
    assert module.in_proj_weight.grad is not None


def test_dropout_of_the_module_is_replaced() -> None:
    module = attention(batch_first=True, dropout=0.9)
    x = torch.randn(2, 6, 8)
    expected = module.eval()(x, x, x)[0]
    bind(module.train(), "no-attention-dropout")
    torch.testing.assert_close(module(x, x, x)[0], expected)


def test_is_causal_needs_a_mask_as_in_torch() -> None:
    module = attention(batch_first=True)
    x = torch.randn(2, 4, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    expected = module(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)[0]
    bind(module, "none")
    torch.testing.assert_close(module(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)[0], expected)
    with pytest.raises(RuntimeError, match="is_causal is only a hint on attn_mask"):
        module(x, x, x, is_causal=True)


@pytest.mark.parametrize(
    ("argument", "mask", "expected"),
    [
        ("key_padding_mask", torch.zeros(2, 5, dtype=torch.bool), r"of shape \(2, 5\): expected \(2, 6\)"),
        ("key_padding_mask", torch.zeros(2, 6, dtype=torch.int64), "of torch.int64: expected bool or floats"),
        ("attn_mask", torch.zeros(6, 5), r"of shape \(6, 5\): expected \(6, 6\) or \(4, 6, 6\)"),
        ("attn_mask", torch.zeros(1, 6), r"of shape \(1, 6\)"),
        ("attn_mask", torch.zeros(6, 6, dtype=torch.uint8), "of torch.uint8"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("training", [True, False])
def test_masks_that_torch_refuses_are_refused_in_training_too(
    argument: str, mask: Tensor, expected: str, training: bool
) -> None:
    """A mask without the key of a class token, say, would let all queries attend to that key."""
    module = attention(batch_first=True, add_zero_attn=True).train(training)
    x, options = torch.randn(2, 6, 8), {argument: mask}
    with pytest.raises((AssertionError, RuntimeError)):
        module(x, x, x, **options)
    drop(module)
    with pytest.raises(InputError, match=expected) if training else pytest.raises((AssertionError, RuntimeError)):
        module(x, x, x, **options)


def encoder(nested: bool) -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested).eval()


PADDING = torch.tensor([[False, False, False, True], [False, False, False, False]])


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_the_fast_path_of_the_encoder_is_kept_except_under_a_probe() -> None:
    x = torch.randn(2, 4, 8)
    model = encoder(nested=True)
    with torch.no_grad():
        fast = model(x, src_key_padding_mask=PADDING)
        assert torch.all(fast[0, 3] == 0)  # the fast path with nested tensors was used
        drop(model)
        assert torch.equal(model(x, src_key_padding_mask=PADDING), fast)
        recorded: list[tuple[str, Tensor]] = []
        with watch(model, lambda site, weights: recorded.append((site.name, weights))):
            slow = model(x, src_key_padding_mask=PADDING)
        assert torch.equal(model(x, src_key_padding_mask=PADDING), fast)
    assert [name for name, _ in recorded] == ["layers.0.self_attn", "layers.1.self_attn"]
    assert all(torch.all(weights[0, ..., 3] == 0) for _, weights in recorded)
    torch.testing.assert_close(slow[~PADDING], fast[~PADDING], atol=1e-6, rtol=1e-5)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_probe_set_directly_on_a_site_is_called_or_raises_an_error() -> None:
    x = torch.randn(2, 4, 8)
    called: list[Site] = []
    for nested in (False, True):
        model = drop(encoder(nested))
        for module in model.modules():
            if isinstance(module, RegularizedMultiheadAttention):
                module.site.probe = lambda site, weights: called.append(site)
        with torch.no_grad():
            model(x)
            if nested:
                with pytest.raises(
                    InputError, match=r"^layers.0.self_attn: nested tensors work only in torch's own fast path"
                ):
                    model(x, src_key_padding_mask=PADDING)
            else:
                model(x, src_key_padding_mask=PADDING)
    assert len(called) == 2 * 2 + 2


def test_the_path_determines_the_kind_in_other_models() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = attention()
            self.cross_attn = attention()

    model = nn.ModuleDict({"encoder": nn.ModuleList([Block()]), "decoder": nn.ModuleList([Block(), Block()])})
    layers = {site.name: (site.kind, site.layer, site.depth) for site in bind(model, "none").bound}
    assert layers["encoder.0.attn"] == ("encoder-self", 0, 1)
    assert layers["decoder.1.attn"] == ("decoder-self", 1, 2)
    assert layers["decoder.1.cross_attn"] == ("cross", 1, 2)
