"""Test the contract of adapters for every family of models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from dropbench import REGULARIZERS, InputError, Regularizer, Site, unregularize
from dropbench.harness.attention.call import Call
from dropbench.harness.models.regularize import bind, find_patches
from dropbench.harness.models.sites import ATTENTION_KINDS, watch
from dropbench.harness.regularizers.drop import AttentionDrop
from dropbench.harness.regularizers.spec import build_regularizer
from tests.adapters.families import Family
from tests.adapters.libraries.fairseq_families import FAMILIES as FAIRSEQ
from tests.adapters.libraries.torch_families import FAMILIES as TORCH
from tests.adapters.libraries.transformers_families import FAMILIES as TRANSFORMERS
from tests.adapters.vision.image_families import FAMILIES as IMAGES
from tests.covering import cover

# torch's encoder and fairseq's decoder cause these in evaluation, with and without a regularizer.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask"),
]
FAMILIES = {family.name: family for family in [*TORCH, *TRANSFORMERS, *FAIRSEQ, *IMAGES]}
TOLERANCE = 1e-5
"""Between two computations of a model's output, of size 1 to 10, in float32."""
DIFFERENT = 1e-3
"""A difference too large for rounding."""


class Negated(Regularizer):
    """A plug-in regularizer that only overrides `attend`: it negates the values."""

    ratio: ClassVar[None] = None

    def attend(self, call: Call, site: Site) -> Tensor:
        return scaled_dot_product_attention(call.q, call.k, -call.v, attn_mask=call.mask, scale=call.scale)


def dropping() -> Iterator[tuple[str, Regularizer]]:
    """Yield every registered regularizer that drops only in training, and one that is not registered."""
    for name in REGULARIZERS:
        regularizer = build_regularizer(name)
        acts_on_attention = not regularizer.sites.isdisjoint(ATTENTION_KINDS) and not regularizer.acts_in_evaluation
        acts_on_attention &= not regularizer.has_objective  # it drops nothing before `prepare`
        if name != "none" and acts_on_attention and "ratio" in type(regularizer).model_fields:
            yield name, build_regularizer(name, ratio=0.5)
    yield "negated", Negated()


DROPPING = dict(dropping())


def pairs(families: Iterable[Family]) -> list[tuple[str, str]]:
    """Return families with regularizers that fit them (some need a grid).

    Each regularizer and family is met once, and each library meets one of each mechanism: it drops weights, changes
    what is around them, or replaces the whole attention. `tests.adapters.test_every_regularizer` has the rest.
    """
    bare = Site("bare", "encoder-self", 0, 1, 2)

    def mechanism(name: str) -> str:
        regularizer = DROPPING[name]
        return "drop" if isinstance(regularizer, AttentionDrop) else "own" if name == "negated" else "around"

    fitting = [
        (family, name) for family in families for name in DROPPING if family.grid or not DROPPING[name].skip(bare)
    ]
    chosen = cover(fitting, lambda case: [case[0].name, case[1], (case[0].library, mechanism(case[1]))])
    return [(family.name, name) for family, name in chosen]


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


def test_every_site_of_the_family_is_bound_and_reported(family: Family, model: nn.Module) -> None:
    report = bind(model, "dropkey", ratio=0.3, schedule="decreasing")
    assert Counter(site.kind for site in report.bound) == dict(family.sites)
    stacks: dict[str, list[tuple[int, int]]] = {}
    for site in report.bound:
        stacks.setdefault("encoder-self" if site.kind == "outlook" else site.kind, []).append((site.layer, site.depth))
        assert (site.grid is not None) == family.grid
        assert f"  {site.name} " in str(report)
    for layers in stacks.values():
        assert layers == [(layer, len(layers)) for layer in range(len(layers))]
    first = [site for site in report.bound if site.layer == 0]
    assert [site.ratio for site in first] == [0.3 if site.depth > 1 else first[-1].ratio for site in first]


def test_evaluation_and_state_are_unchanged(family: Family, model: nn.Module) -> None:
    keys = list(model.state_dict())
    classes = [type(module) for module in model.modules()]
    with torch.no_grad():
        before = family.run(model)
        bind(model, "dropkey", ratio=0.5)
        assert torch.equal(family.run(model), before)
        assert list(model.state_dict()) == keys
    with watch(model, lambda site, weights: None), torch.no_grad():
        torch.testing.assert_close(family.run(model), before, atol=TOLERANCE, rtol=TOLERANCE)
    unregularize(model)
    with torch.no_grad():
        assert torch.equal(family.run(model), before)
    assert [type(module) for module in model.modules()] == classes
    assert not any(hasattr(module, "site") for module in model.modules()) or family.own
    patches = find_patches(model)
    assert len({patch.key for patch in patches}) == len(patches)


def test_none_and_ratio_0_train_like_the_original_model(family: Family, model: nn.Module) -> None:
    model.train()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    outputs = []
    choices: list[tuple[str | None, dict[str, Any]]] = [
        (None, {}), ("none", {}), ("dropkey", {"ratio": 0.0}), ("no-attention-dropout", {})
    ]  # fmt: skip
    for regularizer, params in choices:
        model.load_state_dict(state)  # restores running statistics of normalization
        if regularizer is not None:
            bind(model, regularizer, **params)
        outputs.append(family.run(model))
    torch.testing.assert_close(outputs[1], outputs[0], atol=TOLERANCE, rtol=TOLERANCE)
    # These models have no attention dropout: else `none` keeps it (test_own_dropout.py).
    assert torch.equal(outputs[1], outputs[2])
    assert torch.equal(outputs[2], outputs[3])


@pytest.mark.parametrize(("family", "name"), pairs(FAMILIES.values()), indirect=["family"])
def test_training_calls_each_site_once_with_finite_gradients(family: Family, model: nn.Module, name: str) -> None:
    model.train()
    plain = family.run(model).detach()
    bind(model, DROPPING[name])
    called: Counter[str] = Counter()

    def count(site: Site, weights: Tensor) -> None:
        assert weights.dim() == 4
        assert weights.shape[1] == site.heads
        called[site.name] += 1

    def draw(seed: int) -> Tensor:
        return family.run(model, seed=seed)

    with watch(model, count) as sites:
        out = family.run(model)
    # A model written for DropBench also has sites that are not bound, some of them attention.
    attention = [site for site in sites if site.kind in ATTENTION_KINDS]
    assert called == {site.name: family.calls for site in attention}
    assert torch.isfinite(out).all()
    # With few heads, a draw of whole heads may keep all of them.
    assert any((again.detach() - plain).abs().max() > DIFFERENT for again in chain([out], map(draw, range(4, 12))))
    out.square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(("family", "name"), pairs(f for f in FAMILIES.values() if f.leaks), indirect=["family"])
def test_training_respects_the_masks_of_the_model(family: Family, model: nn.Module, name: str) -> None:
    model.train()
    bind(model, DROPPING[name])
    with torch.no_grad():
        for leak in family.leaks:
            for seed in range(2):
                before = family.run(model, seed=seed)
                hidden = family.run(model, leak.change(family.inputs()), seed=seed)
                shown = family.run(model, leak.control(family.inputs()), seed=seed)
                torch.testing.assert_close(leak.unaware(hidden), leak.unaware(before), atol=TOLERANCE, rtol=TOLERANCE)
                assert (leak.aware(shown) - leak.aware(before)).abs().max() > DIFFERENT, leak.name


@pytest.mark.parametrize("family", [name for name in FAMILIES if not FAMILIES[name].grid], indirect=True)
def test_a_unit_of_the_grid_is_refused_without_a_grid(family: Family, model: nn.Module) -> None:
    with pytest.raises(
        InputError, match=r"fits none of the \d+ (attention )?sites of .*: unit 'block' needs keys that"
    ):
        bind(model, "dropkey-block", ratio=0.5)
    assert all(type(patch.module) is not patch.patched for patch in find_patches(model))
