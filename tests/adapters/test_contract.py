"""The contract of adapters, for every family of models: what `regularize` may change, and what it must not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from harness import REGULARIZERS, InputError, Regularizer, Site, unregularize
from harness.adapter import ADAPTERS
from harness.binding import ATTENTION_KINDS, bind, find_patches, watch
from harness.regularizers.spec import build_regularizer
from tests.adapters.fairseq_families import FAMILIES as FAIRSEQ
from tests.adapters.families import Family
from tests.adapters.image_families import FAMILIES as IMAGES
from tests.adapters.torch_families import FAMILIES as TORCH
from tests.adapters.transformers_families import FAMILIES as TRANSFORMERS

# torch's encoder and fairseq's decoder cause these in evaluation, whether they are regularised or not.
pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask"),
]
FAMILIES = {family.name: family for family in [*TORCH, *TRANSFORMERS, *FAIRSEQ, *IMAGES]}
CLOSE = 1e-5
"""Between two ways of computing the same in float32: outputs of a whole model, of size 1 to 10."""
SEEN = 1e-3
"""A difference that no rounding makes."""


class Turned(Regularizer):
    """What somebody may write who knows of `attend` alone: each value with the other sign."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, site: Site, *, mask: Tensor | None, scale: float | None
    ) -> Tensor:
        return scaled_dot_product_attention(q, k, -v, attn_mask=mask, scale=scale)


def dropping() -> Iterator[tuple[str, Regularizer]]:
    """Every registered regularizer that drops in training alone, and one that is not registered."""
    for name in REGULARIZERS:
        built = build_regularizer(name)
        if name != "none" and type(built).site_module is Regularizer.site_module:
            yield name, build_regularizer(name, ratio=0.5)
    yield "turned", Turned(ratio=0.5)


DROPPING = dict(dropping())


def pairs(families: Iterable[Family]) -> list[tuple[str, str]]:
    """Each family with each regularizer but those that need a grid where it has none."""
    bare = Site("bare", "encoder-self", 0, 1, 2)
    return [
        (family.name, name) for family in families for name in DROPPING if family.grid or not DROPPING[name].skip(bare)
    ]


@pytest.fixture(scope="module")
def models() -> dict[str, nn.Module]:
    """The models by family, each made once; nothing that a test does may remain in them."""
    return {}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


@pytest.fixture
def model(family: Family, models: dict[str, nn.Module]) -> Iterator[nn.Module]:
    if family.name not in models:
        models[family.name] = family.model()
    model = models[family.name]
    state = {key: value.clone() for key, value in model.state_dict().items()}
    yield model
    unregularize(model)
    model.load_state_dict(state)
    model.eval().zero_grad()


def test_touches_every_site_of_the_family_and_says_so(family: Family, model: nn.Module) -> None:
    report = bind(model, "dropkey", ratio=0.3, schedule="decreasing")
    assert Counter(site.kind for site in report.bound) == dict(family.sites)
    stacks: dict[str, list[tuple[int, int]]] = {}
    for site in report.bound:
        stacks.setdefault("encoder-self" if site.kind == "outlook" else site.kind, []).append((site.layer, site.depth))
        assert (site.grid is not None) == family.grid
        assert f"  {site.name} " in str(report)
    for places in stacks.values():
        assert places == [(layer, len(places)) for layer in range(len(places))]
    first = [site for site in report.bound if site.layer == 0]
    assert [site.ratio for site in first] == [0.3 if site.depth > 1 else first[-1].ratio for site in first]


def test_evaluation_and_state_stay_as_they_were(family: Family, model: nn.Module) -> None:
    keys = list(model.state_dict())
    classes = [type(module) for module in model.modules()]
    with torch.no_grad():
        before = family.run(model)
        bind(model, "dropkey", ratio=0.5)
        assert torch.equal(family.run(model), before)
        assert list(model.state_dict()) == keys
    with watch(model, lambda site, weights: None), torch.no_grad():
        torch.testing.assert_close(family.run(model), before, atol=CLOSE, rtol=CLOSE)
    unregularize(model)
    with torch.no_grad():
        assert torch.equal(family.run(model), before)
    assert [type(module) for module in model.modules()] == classes
    assert not any(hasattr(module, "site") for module in model.modules()) or family.own


def test_none_and_ratio_0_train_like_the_model_itself(family: Family, model: nn.Module) -> None:
    model.train()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    outputs = []
    for regularizer in (None, "none", "dropkey"):
        model.load_state_dict(state)  # running statistics of normalisation
        if regularizer is not None:
            bind(model, regularizer, ratio=0.0)
        outputs.append(family.run(model))
    torch.testing.assert_close(outputs[1], outputs[0], atol=CLOSE, rtol=CLOSE)
    assert torch.equal(outputs[1], outputs[2])


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

    with watch(model, count) as sites:
        out = family.run(model)
    # A model of our own has sites that nobody asked for: the attention of some is computed all the same.
    attention = [site for site in sites if site.kind in ATTENTION_KINDS]
    assert called == {site.name: family.calls for site in attention}
    assert torch.isfinite(out).all()
    assert (out - plain).abs().max() > SEEN
    out.square().mean().backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(("family", "name"), pairs(f for f in FAMILIES.values() if f.leaks), indirect=["family"])
def test_training_hides_what_the_model_hides(family: Family, model: nn.Module, name: str) -> None:
    model.train()
    bind(model, DROPPING[name])
    with torch.no_grad():
        for leak in family.leaks:
            for seed in range(2):
                before = family.run(model, seed=seed)
                hidden = family.run(model, leak.change(family.inputs()), seed=seed)
                shown = family.run(model, leak.control(family.inputs()), seed=seed)
                torch.testing.assert_close(leak.unaware(hidden), leak.unaware(before), atol=CLOSE, rtol=CLOSE)
                assert (leak.aware(shown) - leak.aware(before)).abs().max() > SEEN, leak.name


@pytest.mark.parametrize("family", [name for name in FAMILIES if not FAMILIES[name].grid], indirect=True)
def test_a_unit_of_the_grid_is_refused_without_a_grid(family: Family, model: nn.Module) -> None:
    with pytest.raises(
        InputError, match=r"fits none of the \d+ (attention )?sites of .*: unit 'block' needs keys that"
    ):
        bind(model, "dropkey-block", ratio=0.5)
    assert all(type(patch.module) is not patch.patched for patch in find_patches(model))


def test_every_adapter_has_a_family() -> None:
    libraries = {ADAPTERS.get(name) for name in ADAPTERS}
    assert {type_.name for type_ in libraries} == {"dropbench", "torch", "timm", "transformers", "fairseq"}


def test_no_module_is_claimed_twice(family: Family, model: nn.Module) -> None:
    patches = find_patches(model)
    assert len({id(patch.module) for patch in patches}) == len(patches)
