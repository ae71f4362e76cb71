"""Penalties: against the papers' double sums over heads in float64, and what enters the loss."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError
from dropbench.harness.models.attention import attend
from dropbench.harness.models.regularize import bind
from dropbench.harness.regularizers.auxiliary_loss import penalty
from dropbench.harness.regularizers.base import Site, SiteKind
from dropbench.harness.regularizers.composition import Composition, same_stage
from dropbench.harness.regularizers.spec import build_regularizer, complete_spec
from tests.harness.regularizers.methods import reference

HEADS, BATCH, TOKENS = 3, 3, reference.TOKENS
MASKS = ["none", "padding", "bias", "of heads"]
NAMES = ["disagreement", "attention-entropy", "diverse-attention"]


def site_of(name: str, *, prefix: int = 0, kind: SiteKind = "encoder-self", **params: Any) -> Site:
    site = Site("attention", kind, 0, 1, HEADS, num_prefix_tokens=prefix)
    build_regularizer(name, **params).bind_to(site, lambda ratio, layer, depth: ratio)
    return site


def cosine(x: Tensor, y: Tensor) -> Tensor:
    similarity: Tensor = torch.dot(x, y) / (x.norm() * y.norm())
    return similarity


def run(site: Site, mask: str, *, causal: bool) -> tuple[Tensor, list[list[Tensor]], list[Tensor], tuple[Tensor, ...]]:
    """Return the penalty; per sample and head the weights A (T, S) of the reference; values; and the leaves."""
    given = reference.masks(BATCH, HEADS)[mask]
    q, k, v = reference.qkv(BATCH, HEADS)
    out = attend(q, k, v, site, training=True, mask=given, causal=causal)
    weights = [
        [reference.weights(q[b, h], k[b, h], reference.of_head(given, b, h), causal=causal) for h in range(HEADS)]
        for b in range(BATCH)
    ]
    plain = torch.stack([torch.stack([weights[b][h] @ v[b, h] for h in range(HEADS)]) for b in range(BATCH)])
    torch.testing.assert_close(out, plain, rtol=0, atol=1e-10)  # attention itself does not change
    (term,) = site.penalties
    return term, weights, list(plain), (q, k, v)


def tokens_of(mask: str, b: int) -> list[int]:
    """The tokens of a sample that are no padding."""
    return list(range(TOKENS - 2 if mask in ("padding", "bias") and b == BATCH - 1 else TOKENS))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("of", ["subspaces", "positions", "outputs"])
def test_disagreement_equals_the_paper_formula(of: str, mask: str, causal: bool) -> None:
    term, weights, outs, leaves = run(site_of("disagreement", of=of, weight=0.5), mask, causal=causal)
    total, count = torch.zeros((), dtype=torch.float64), 0
    for b in range(BATCH):
        for t in tokens_of(mask, b):
            count += 1
            for i, j in itertools.product(range(HEADS), repeat=2):
                if of == "positions":
                    total = total + (weights[b][i][t] * weights[b][j][t]).abs().sum() / HEADS**2
                else:
                    x = outs[b] if of == "outputs" else leaves[2][b]
                    total = total + cosine(x[i, t], x[j, t]) / HEADS**2
    reference.assert_equal("disagreement", term, 0.5 * total / (BATCH if of == "positions" else count), leaves)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_entropy_equals_the_paper_formula(mask: str, causal: bool) -> None:
    term, weights, _, leaves = run(site_of("attention-entropy", weight=0.2), mask, causal=causal)
    entropies = [
        -sum(p * p.log() for p in weights[b][h][t] if p > 0)
        for b in range(BATCH)
        for h in range(HEADS)
        for t in tokens_of(mask, b)
    ]
    reference.assert_equal(
        "attention-entropy", term, -0.2 * torch.stack([torch.as_tensor(e) for e in entropies]).mean(), leaves
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("of", ["heads", "tokens"])
def test_diversity_equals_the_paper_formula(of: str, mask: str, causal: bool) -> None:
    prefix = 1
    term, weights, outs, leaves = run(
        site_of("diverse-attention", of=of, weight=2.0, prefix=prefix), mask, causal=causal
    )
    samples = []
    for b in range(BATCH):
        rows = tokens_of(mask, b)
        if of == "heads":
            items = [weights[b][h][rows].flatten() for h in range(HEADS)]
        else:
            items = [outs[b][:, t].flatten() for t in rows if t >= prefix]
        samples.append(torch.stack([cosine(x, y) for x, y in itertools.product(items, repeat=2)]).mean())
    reference.assert_equal("diverse-attention", term, 2.0 * torch.stack(samples).mean(), leaves)


def test_queries_of_cross_attention_are_all_counted() -> None:
    """Its keys are other tokens: padding among them says nothing about the queries."""
    term, weights, _, leaves = run(site_of("attention-entropy", weight=1.0, kind="cross"), "padding", causal=False)
    entropies = [-sum(p * p.log() for p in row if p > 0) for heads in weights for a in heads for row in a]
    reference.assert_equal(
        "attention-entropy", term, -torch.stack([torch.as_tensor(e) for e in entropies]).mean(), leaves
    )


@pytest.mark.parametrize("name", NAMES)
def test_queries_of_cross_attention_are_padding_as_in_the_decoder_before_it(name: str) -> None:
    regularizer, sites = build_regularizer(name), []
    for kind in ("decoder-self", "cross"):
        sites.append(Site(kind, kind, 0, 1, HEADS))
        regularizer.bind_to(sites[-1], lambda ratio, layer, depth: ratio)
    given = reference.masks(BATCH, HEADS)["padding"]
    q, k, v = reference.qkv(BATCH, HEADS)
    others = q.detach().clone()
    others[-1, :, -2:] *= -3.0  # padding
    terms = []
    for queries in (q, others):
        attend(queries, k, v, sites[0], training=True, mask=given, causal=True)
        attend(queries, k, v, sites[1], training=True)
        terms.append(sites[1].penalties.pop().detach())
    reference.check(name, *terms)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_observed_in_evaluation_or_without_gradients(name: str) -> None:
    site, (q, k, v) = site_of(name, weight=1), reference.qkv(BATCH, HEADS)
    attend(q, k, v, site, training=False)
    with torch.no_grad():
        attend(q, k, v, site, training=True)
    assert site.penalties == []


def encoder() -> nn.TransformerEncoder:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(12, HEADS, 8, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)


def penalty_of(text: str, **params: Any) -> Tensor:
    model = encoder()
    bind(model, text, **params)
    model(torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(1)))
    term = penalty(model, 0)
    assert term is not None
    assert penalty(model, 0) is None  # each forward pass enters the loss once
    return term


def test_the_loss_gets_the_mean_over_the_observed_layers() -> None:
    each = [penalty_of("disagreement", layers=layer).item() for layer in range(4)]
    assert len(set(each)) == 4
    assert penalty_of("disagreement").item() == pytest.approx(sum(each) / 4)
    assert penalty_of("disagreement", layers="1-2").item() == pytest.approx((each[1] + each[2]) / 2)
    assert penalty_of("disagreement", layers="first").item() == each[0]
    assert penalty_of("disagreement", layers="last").item() == each[3]


def test_layers_that_are_not_observed_have_no_regularizer() -> None:
    report = bind(encoder(), "attention-entropy", layers="last")
    assert [site.layer for site in report.bound] == [3]
    assert {reason for site, reason in report.skipped if site.layer == 1} == {"layer 1 is not observed (layers=last)"}
    with pytest.raises(InputError, match="fits none"):
        bind(encoder(), "attention-entropy", layers="4-5")


@pytest.mark.parametrize("layers", ["middle", "2-1", "-1", "1-", "1.5"])
def test_other_layers_are_an_error(layers: str) -> None:
    with pytest.raises(InputError, match=f"layers={layers}: expected all, first, last, a layer from 0"):
        build_regularizer("disagreement", layers=layers)


def test_penalties_of_a_composition_are_added() -> None:
    """Each as it is alone, although they observe different numbers of layers."""
    both = penalty_of("attention-entropy+disagreement", **{"disagreement.layers": "first"})
    alone = penalty_of("attention-entropy") + penalty_of("disagreement", layers="first")
    torch.testing.assert_close(both, alone)


def test_penalties_commute_with_each_other_and_with_all_else() -> None:
    texts = ["drophead+disagreement+attention-entropy+dropout", "dropout+attention-entropy+drophead+disagreement"]
    first, second = (complete_spec(text) for text in texts)
    assert first.name == second.name == "attention-entropy+disagreement+drophead+dropout"
    built = build_regularizer(texts[0])
    assert isinstance(built, Composition)
    assert same_stage(built.parts) == []


def test_a_composition_observes_the_regularized_heads() -> None:
    """Dropped heads are 0, so that two of four equal heads have cosines in a quarter of the pairs."""
    params: dict[str, Any] = {"drophead.ratio": 0.5, "disagreement.of": "outputs"}
    site = site_of("disagreement+drophead", **params)
    site.heads = 4
    v = torch.ones(1, 4, 2, 3, requires_grad=True)
    for seed in range(8):
        torch.manual_seed(seed)
        kept = int((attend(v, v, v, site, training=True)[0, :, 0, 0] != 0).sum())
        assert site.parts[0].penalties.pop().item() == pytest.approx(kept**2 / 16)
