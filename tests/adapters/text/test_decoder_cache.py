"""Test the decoder token by token: the same outputs as for the whole sequence, with and without skipped outputs."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from torch import Tensor

from dropbench.adapters.text import decoder as decoder_module
from dropbench.adapters.text.decoder import Block, Decoder
from dropbench.harness.errors import InputError
from dropbench.harness.models.mask_recorder import mask_statistics
from dropbench.harness.models.regularize import bind
from tests.harness.regularizers.learned_dropout.tiny_decoder import CONTEXT, LAYERS, decoder, learned, masks, tokens

PRECOMPUTED: dict[str, Any] = {"dropout_input": "embed", "detached_input": True}
SHARES = (0.0, 0.1, 0.5, 1.0)


def blocks_of(model: Decoder) -> list[Block]:
    return cast(list[Block], list(model.blocks))


def precomputed(share: float, **options: Any) -> Decoder:
    """A model in eval mode whose masks keep about a share of the outputs, different ones for different tokens."""
    model = learned(**PRECOMPUTED, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(10 if parameter.ndim == 2 else 1)
        for module in masks(model).values():
            kept = torch.rand(module.width) < share
            module.shift.view(-1, module.width)[0] = (
                torch.where(kept, 0.4, 2.7) if 0 < share < 1 else 3.14 * (1 - share)
            )
            module.qkv.weight.mul_(1.0 if 0 < share < 1 else 0.0)
    return model.eval()


@torch.no_grad()
def token_by_token(model: Decoder, batch: Tensor, *, prompt: int = 1, dense: bool = False) -> Tensor:
    cache = model.new_cache()
    assert dense or cache.masks is not None
    if dense:
        cache.masks = None
    parts = [batch[:, :prompt], *(batch[:, start : start + 1] for start in range(prompt, batch.shape[1]))]
    return torch.cat([model(part, cache) for part in parts], dim=1)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("share", SHARES)
def test_tokens_one_by_one_give_the_outputs_of_the_whole_sequence(share: float, batch: int) -> None:
    model = precomputed(share)
    with torch.no_grad(), mask_statistics(model) as recorded:
        whole = model(tokens(batch))
    kept = sum(statistics.means()["kept"] for statistics in recorded.values()) / LAYERS
    assert kept == share if share in (0.0, 1.0) else 0.0 < kept < 1.0
    for prompt in (1, 5, CONTEXT):
        torch.testing.assert_close(token_by_token(model, tokens(batch), prompt=prompt), whole, atol=1e-6, rtol=1e-5)
    dense = token_by_token(model, tokens(batch), dense=True)
    torch.testing.assert_close(token_by_token(model, tokens(batch)), dense, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(("share", "autocast"), [(0.0, True), (0.1, False), (0.5, True), (1.0, False)])
def test_bfloat16_uses_torch(share: float, autocast: bool) -> None:
    model = precomputed(share)
    model = model if autocast else model.bfloat16()
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        dense, skipped = token_by_token(model, tokens(1), dense=True), token_by_token(model, tokens(1))
    assert skipped.dtype == dense.dtype
    torch.testing.assert_close(skipped, dense, atol=0.05 * float(dense.abs().max()), rtol=0.0)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("share", SHARES)
def test_whole_sequences_have_the_bits_of_the_whole_network(
    share: float, autocast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, calls = precomputed(share), []
    blocks_of(model)[0].feedforward.activation.register_forward_pre_hook(lambda *_: calls.append(1))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        with torch.no_grad():
            observed = model(tokens())
        assert calls == [1]  # a hook has the network computed
        blocks_of(model)[0].feedforward.activation._forward_pre_hooks.clear()
        with torch.no_grad(), mask_statistics(model) as recorded:
            skipped = model(tokens())
        monkeypatch.setattr(decoder_module, "can_skip", lambda network: False)
        with torch.no_grad(), mask_statistics(model) as expected:
            dense = model(tokens())
    assert torch.equal(skipped, dense)
    assert torch.equal(observed, dense)
    assert {name: each.means() for name, each in recorded.items()} == {n: each.means() for n, each in expected.items()}


def test_rows_that_are_dropped_are_not_read() -> None:
    model = precomputed(0.0)
    with torch.no_grad():
        for module in masks(model).values():
            module.shift[:4] = 0.0  # kept for all tokens
        expected = token_by_token(model, tokens(1))
        for block in blocks_of(model):
            block.feedforward.out.weight[4:] = float("nan")
        assert torch.equal(token_by_token(model, tokens(1)), expected)
    model = precomputed(0.5)
    model(tokens()).sum().backward()
    assert all(cast(Tensor, block.feedforward.hidden.weight.grad).abs().sum() > 0 for block in blocks_of(model))


@pytest.mark.parametrize("options", [{"harmonics": 2}, {"mask_rounding": "none"}, {"dropout_input": "hidden-state"}])
def test_other_masks_are_applied_by_each_layer(options: dict[str, Any]) -> None:
    model = learned(**{"dropout_input": "embed", **options}).eval()
    assert model.new_cache().masks is None
    with torch.no_grad():
        whole = model(tokens())
    torch.testing.assert_close(token_by_token(model, tokens(), dense=True), whole, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("regularizer", ["none", "drophead"])
def test_other_regularizers_do_not_act_in_evaluation(regularizer: str) -> None:
    model = decoder().eval()
    bind(model, regularizer)
    with torch.no_grad():
        whole = model(tokens())
    torch.testing.assert_close(token_by_token(model, tokens(), dense=True), whole, atol=1e-6, rtol=1e-5)


def test_what_a_cache_cannot_do_is_refused() -> None:
    model = learned(where="everywhere").eval()
    with pytest.raises(InputError, match="its regularizer needs the whole sequence at once"):
        model.new_cache()
    model = precomputed(1.0)
    cache = model.new_cache()
    with pytest.raises(InputError, match=r"without gradients: use `torch.no_grad\(\)`"):
        model(tokens(), cache)
    with torch.no_grad():
        model(tokens(), cache)
        with pytest.raises(InputError, match="an input of 13 tokens: expected at most the model's context of 12"):
            model(tokens()[:, :1], cache)
    with pytest.raises(InputError, match=r"call `model\.eval\(\)`"):
        model.train().new_cache()
    faithful = decoder(evaluation="faithful").eval()
    bind(faithful, "dropkey")
    with pytest.raises(InputError, match="without regularized attention"):
        faithful.new_cache()
