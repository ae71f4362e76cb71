"""Regularizers of heads: against loops over heads in float64, statistics of the draws, and which heads are computed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from dropbench.harness.attention.call import Call
from dropbench.harness.models.attention import attend
from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.methods.heads import DropHead, HeadMask, HeadSelection
from dropbench.harness.regularizers.spec import build_regularizer
from tests.harness.regularizers.methods import reference

HEADS, BATCH = 4, 3
DRAWS = ("batch", "sample")


def head_site(regularizer: Regularizer, ratio: float) -> Site:
    return Site("attention", "encoder-self", 0, 1, HEADS, regularizer=regularizer, ratio=ratio)


def kept_heads(site: Site, batch: int, seed: int) -> Tensor:
    """Return the kept heads (batch, H) of a draw, from the outputs for values of 1."""
    torch.manual_seed(seed)
    q, v = torch.zeros(batch, HEADS, 1, 1), torch.ones(batch, HEADS, 1, 1)
    return attend(q, q, v, site, training=True)[..., 0, 0] != 0


@pytest.mark.parametrize("mask", ["none", "padding", "bias", "of heads"])
@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(("name", "ratio"), [("drophead", 0.5), ("headmask", 2)])
def test_values_and_gradients_equal_the_paper_formula(name: str, ratio: float, draw: str, mask: str) -> None:
    built = build_regularizer(name, draw=draw)
    site = head_site(built, ratio)
    given = reference.masks(BATCH, HEADS)[mask]
    for seed in range(6):
        kept = kept_heads(site, BATCH, seed)
        assert draw == "sample" or (kept == kept[0]).all()
        q, k, v = reference.qkv(BATCH, HEADS)
        torch.manual_seed(seed)
        out = attend(q, k, v, site, training=True, mask=given, causal=True)
        expected = torch.zeros_like(out)
        for b in range(BATCH):
            for h in range(HEADS):
                factor = HEADS / int(kept[b].sum()) if name == "drophead" else 1.0
                weights = reference.weights(q[b, h], k[b, h], reference.of_head(given, b, h), causal=True)
                expected[b, h] = weights @ v[b, h] * (factor if kept[b, h] else 0.0)
        reference.assert_equal(name, out, expected, (q, k, v))


@pytest.mark.parametrize(("built", "ratio", "share"), [(DropHead(), 0.4, 0.4 - 0.4**HEADS), (HeadMask(), 3.0, 0.75)])
def test_each_head_is_dropped_equally_often(built: HeadSelection, ratio: float, share: float) -> None:
    """DropHead drops a head with probability p, unless all would be: p − p^H; HeadMask drops its number of heads."""
    torch.manual_seed(0)
    dropped = built.keep_heads(4000, HEADS, head_site(built, ratio)) == 0
    assert not dropped.all(dim=1).any()
    assert isinstance(built, DropHead) or (dropped.sum(dim=1) == ratio).all()
    assert (dropped.double().mean(dim=0) - share).abs().max() < 4 * math.sqrt(share * (1 - share) / 4000)


def test_dropped_heads_are_not_computed() -> None:
    site, computed = head_site(DropHead(), 0.5), []

    def inner(call: Call) -> Tensor:
        computed.append(call.q.shape[1])
        return call.v

    q = torch.ones(BATCH, HEADS, 2, 3)
    for seed in range(20):
        kept = int(kept_heads(site, BATCH, seed)[0].sum())
        torch.manual_seed(seed)
        assert isinstance(site.regularizer, DropHead)
        site.regularizer.around(Call(q, q, q), site, inner)
        assert computed[-1] == kept
    assert len(set(computed)) > 1


def test_schedules_make_the_number_of_masked_heads_smaller() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 4, 8, batch_first=True), 3)
    report = bind(model, "headmask", heads=2, schedule="increasing")
    assert [site.ratio for site in report.bound] == [0.0, 1.0, 2.0]


def test_several_passes_of_a_shared_draw_are_separate() -> None:
    assert DropHead().draws_per_batch
    assert not DropHead(draw="sample").draws_per_batch
    assert build_regularizer("drophead+r-drop").draws_per_batch


def test_layers_where_nothing_could_happen_are_skipped() -> None:
    single = Site("attention", "encoder-self", 0, 1, 1)
    assert DropHead().skip(single) == "a single head is never dropped"
    assert HeadMask().skip(single) == "heads=1 would mask all of its heads: 1"
    assert HeadMask(heads=3).skip(head_site(HeadMask(), 1)) is None


@pytest.mark.parametrize("draw", DRAWS)
def test_a_composition_drops_keys_of_the_kept_heads(draw: str) -> None:
    params = {"dropkey.ratio": 0.3, "drophead.ratio": 0.5, "drophead.draw": draw}
    built = build_regularizer("dropkey+drophead", **params)
    site = Site("attention", "encoder-self", 0, 1, HEADS)
    built.bind_to(site, lambda ratio, layer, depth: ratio)
    unit = torch.eye(5).expand(BATCH, HEADS, 5, 5)
    q = torch.randn(BATCH, HEADS, 5, 5, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(1)
    weights = attend(q, q, unit, site, training=True)
    whole = (weights == 0).all(dim=3).all(dim=2)
    assert whole.any()
    rest = weights[~whole] * ((~whole).sum(1).repeat_interleave((~whole).sum(1)) / HEADS)[:, None, None]
    torch.testing.assert_close(rest.sum(-1), torch.ones(len(rest), 5))
    assert (rest == 0).any()
