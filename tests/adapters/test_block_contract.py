"""Test the contract of sites other than attention for every family of models: layers, outputs, inputs, weights."""

from __future__ import annotations

import copy
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, ClassVar

import pytest
import torch
from pydantic import PrivateAttr
from torch import Tensor, nn

from dropbench import InputError, Site, unregularize
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import ATTENTION_KINDS, sites
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.around import PlainAttention
from dropbench.harness.regularizers.base import SiteKind
from dropbench.harness.regularizers.spec import build_regularizer, parse_spec, part_names
from tests.adapters.families import SAMPLES, Family
from tests.adapters.test_contract import DIFFERENT, FAMILIES, TOLERANCE
from tests.covering import cover

pytestmark = [
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
    pytest.mark.filterwarnings("ignore:Support for mismatched key_padding_mask and attn_mask"),
]
ALONE = {"torch-mha", "torch-mha-cross", "fairseq-attention", "fairseq-cross-attention"}
"""Families without layers."""
IN_WINDOWS = {"timm-swin", "transformers-swin"}
INPUTS: dict[str, tuple[str, ...]] = {
    "torchvision-vit": ("encoder.dropout",),
    "timm-vit": ("norm_pre",),
    "timm-vit-qk-norm": ("norm_pre",),
    "timm-deit-distilled": ("norm_pre",),
    "text-transformer": ("encoder.dropout",),
    **{f"transformers-{name}": ("embeddings",) for name in (
        "bert", "bert-eager", "roberta", "electra", "distilbert", "albert", "vit", "deit",
    )},
    **{f"transformers-{name}": ("drop",) for name in ("gpt2", "gpt2-eager")},
    **{f"transformers-{name}": ("embed_tokens",) for name in ("llama", "llama-eager", "gemma2")},
    **{f"transformers-{name}": ("encoder.embed_tokens", "decoder.embed_tokens") for name in (
        "marian", "t5", "t5-eager",
    )},
    "transformers-bart": ("encoder.layernorm_embedding", "decoder.layernorm_embedding"),
    "mixture-of-experts": ("decoder.model.embed_tokens",),
    **{f"fairseq-{name}": ("encoder.dropout_module", "decoder.dropout_module") for name in (
        "translation", "stock", "prenorm",
    )},
    "fairseq-language-model": ("decoder.dropout_module",),
    **{name: ("pos_drop",) for name in FAMILIES if name.startswith("t2t-vit")},
}  # fmt: skip
"""The modules whose output enters the first layer; the other families have none that a site can be."""
OUTPUTS: tuple[SiteKind, ...] = ("feed-forward", "attention-output", "embedding")
METHODS: dict[str, SiteKind] = {
    "stochastic-depth": "feed-forward",
    "hiddencut": "feed-forward",
    "dropdim": "feed-forward",
    "token-dropout": "embedding",
    "patchdropout": "tokens",
    "layerdrop": "layer",
    "mixout": "weight",
    "weight-orthogonality": "weight",
    "sigma-reparam": "weight",
    "hiddenkey": "feed-forward",
    "unidrop": "embedding",
}
"""Methods, each with a kind of site without which it cannot be used."""


class Recorder(PlainAttention):
    """Notes what each site passes to it, and changes nothing."""

    sites: ClassVar[frozenset[SiteKind]] = frozenset({"layer", "tokens", *OUTPUTS})
    ratio: ClassVar[None] = None
    _seen: list[tuple[str, SiteKind, Tensor]] = PrivateAttr(default_factory=list)
    _skipped: bool = PrivateAttr(default=False)

    def output(self, x: Tensor, site: Site) -> Tensor:
        assert x.shape[site.batch_axis] == SAMPLES
        assert site.width in (None, x.shape[-1])
        self._seen.append((site.name, site.kind, x))
        return x

    def tokens(self, x: Tensor, site: Site) -> Tensor:
        assert site.grid is not None
        assert x.shape[:2] == (SAMPLES, site.num_prefix_tokens + site.grid[0] * site.grid[1])
        self._seen.append((site.name, site.kind, x))
        return x

    def run_layer(self, layer: Callable[[], Tensor], x: Tensor, site: Site) -> Tensor:
        self._seen.append((site.name, site.kind, x))
        return x if self._skipped else layer()


@pytest.fixture(params=[name for name in FAMILIES if name not in ALONE])
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


few = pytest.mark.parametrize(
    "family",
    [
        "torch-encoder", "timm-vit", "timm-swin", "timm-volo", "transformers-bert", "transformers-t5",
        "fairseq-translation", "t2t-vit-digits", "text-transformer", "mixture-of-experts",
    ],
    indirect=True,
)  # fmt: skip
"""Families that together have each way in which an adapter finds layers and replaces attention."""


def supports(family: Family, name: str) -> bool:
    """Return whether a family has a site of the kind that a method needs."""
    if METHODS[name] in ("tokens", "embedding"):
        return family.name in INPUTS and family.grid == (METHODS[name] == "tokens")
    return True


def methods(
    names: Sequence[str], aspects: Callable[[Family, str], list[object]], supported: bool = True
) -> pytest.MarkDecorator:
    """Parametrize a test by families and methods that they support, or not, so that these aspects are covered."""
    every = [(FAMILIES[key], name) for key, name in product(FAMILIES, names) if key not in ALONE]
    cases = cover((case for case in every if supports(*case) == supported), lambda case: aspects(*case))
    return pytest.mark.parametrize(
        ("family", "name"), [(family.name, name) for family, name in cases], indirect=["family"]
    )


def test_every_site_is_found_and_called_as_often_as_its_module(family: Family, model: nn.Module) -> None:
    model.train()
    recorder = Recorder()
    report = bind(model, recorder)
    layers = sum(count for kind, count in family.sites.items() if kind != "cross")
    windows = family.name in IN_WINDOWS
    expected = {
        "layer": layers,
        "feed-forward": layers,
        "attention-output": 0 if windows else sum(family.sites.values()),
    }
    entries = INPUTS.get(family.name, ())
    expected["tokens" if family.grid else "embedding"] = len(entries)
    bound = [site for site in report.bound if site.kind not in ATTENTION_KINDS]
    assert Counter(site.kind for site in bound) == Counter(expected)
    assert {site.name for site in bound if site.kind in ("tokens", "embedding")} == set(entries)
    assert all("windows" in reason or "rotate" in reason for site, reason in report.skipped if site.kind in OUTPUTS)
    out = family.run(model)
    calls = {(site.name, site.kind): 1 if site.name in entries else family.calls for site in bound}
    assert Counter((name, kind) for name, kind, _ in recorder._seen) == calls
    unregularize(model)
    torch.testing.assert_close(family.run(model), out, atol=TOLERANCE, rtol=TOLERANCE)


def test_skipping_every_layer_leaves_the_hidden_states_of_the_first(family: Family, model: nn.Module) -> None:
    model.train()
    plain = family.run(model).detach()
    recorder = Recorder()
    recorder._skipped = True
    bind(model, recorder)
    out = family.run(model)
    assert torch.isfinite(out).all()
    assert (out - plain).abs().max() > DIFFERENT
    stacks: dict[str, list[Tensor]] = {}
    for name, kind, x in recorder._seen:
        if kind == "layer":
            stacks.setdefault(name.rpartition(".")[0], []).append(x)
    for states in stacks.values():
        assert all(torch.equal(state, states[0]) for state in states)


@methods([*METHODS], lambda family, name: [(family.library, name)], supported=False)
def test_a_method_without_a_site_is_refused(family: Family, model: nn.Module, name: str) -> None:
    with pytest.raises(InputError, match=r"token-dropout" if name == "unidrop" else name):
        bind(model, name)


@methods([*METHODS], lambda family, name: [(family.library, METHODS[name]), family.name, name])
def test_a_method_trains_with_finite_gradients_and_is_removed(family: Family, model: nn.Module, name: str) -> None:
    keys = list(model.state_dict())
    plain = family.run(model.train()).detach()
    with torch.no_grad():
        before = family.run(model.eval())
    dicts = [set(vars(module)) for module in model.modules()]
    strong: dict[str, Any] = {} if name in ("sigma-reparam", "weight-orthogonality") else {"ratio": 0.5}
    if parts := REGULARIZERS.entry(name).facts.get("parts"):
        strong = {f"{part}.ratio": 0.5 for part in part_names(parse_spec(parts).name) if part != "r-drop"}
    bind(model, name, **strong)
    with torch.no_grad():
        torch.testing.assert_close(family.run(model), before, atol=1e-4, rtol=1e-4)
        if name != "sigma-reparam":
            assert torch.equal(family.run(model), before)
    if METHODS[name] != "weight":
        assert list(model.state_dict()) == keys
    model.train()
    if name == "mixout":  # the weights move away from their initial values
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1)
    changes = []
    for seed in range(4):
        out = family.run(model, seed=seed)
        assert torch.isfinite(out).all()
        changes.append(out.shape != plain.shape or bool((out - plain).abs().max() > DIFFERENT))
        if out.requires_grad:  # without any layer, an encoder returns its input
            out.square().mean().backward()
        if seed > 0 and any(changes) and out.requires_grad:
            break
    assert any(changes) or name in ("sigma-reparam", "weight-orthogonality")
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    assert gradients
    assert all(torch.isfinite(gradient).all() for gradient in gradients)
    unregularize(model)
    assert list(model.state_dict()) == keys
    assert [set(vars(module)) for module in model.modules()] == dicts
    assert all(site.regularizer is None for site in sites(model))


@few
def test_copies_and_pickles_are_independent(family: Family, model: nn.Module) -> None:
    model.train()
    bind(model, "stochastic-depth", ratio=0.5)
    expected = family.run(model)
    twins = [copy.deepcopy(model)]
    if family.name != "mixture-of-experts":  # transformers' own hooks for router logits cannot be pickled
        twins.append(pickle.loads(pickle.dumps(model)))  # noqa: S301
    for twin in twins:
        assert torch.equal(family.run(twin), expected)
        unregularize(model)
        assert torch.equal(family.run(twin), expected)
        unregularize(twin)
        bind(model, "stochastic-depth", ratio=0.5)


@few
def test_weights_and_attention_are_regularized_together_and_restored(family: Family, model: nn.Module) -> None:
    classes = [type(module) for module in model.modules()]
    with torch.no_grad():
        before = family.run(model)
        for _ in range(2):  # the second call finds regularized modules
            bind(model, build_regularizer("sigma-reparam+dropkey", **{"dropkey.ratio": 0.3}))
            torch.testing.assert_close(family.run(model), before, atol=1e-4, rtol=1e-4)
        twin = copy.deepcopy(model)
        assert torch.equal(family.run(twin), family.run(model))
        unregularize(model)
        torch.testing.assert_close(family.run(model), family.run(twin), atol=TOLERANCE, rtol=TOLERANCE)
    assert [type(module) for module in model.modules()] == classes


@few
def test_an_excluded_output_leaves_the_attention_of_its_module_regularized(family: Family, model: nn.Module) -> None:
    report = bind(
        model, "dropkey+stochastic-depth", kinds=("encoder-self", "decoder-self", "cross", "outlook", "feed-forward")
    )
    assert {
        kind for site, _ in report.skipped if (kind := site.kind) == "attention-output"
    } or family.name in IN_WINDOWS
    active = [site for site in sites(model) if site.kind in ATTENTION_KINDS and site.ratio > 0]
    assert Counter(site.kind for site in active) == Counter(family.sites)


def test_a_model_that_is_one_layer_has_the_sites_of_a_layer() -> None:
    model = nn.TransformerDecoderLayer(8, 2, 16, dropout=0.0)
    kinds = {spec: [site.kind for site in bind(model, spec).bound] for spec in ("layerdrop", "stochastic-depth")}
    assert kinds == {
        "layerdrop": ["layer"],
        "stochastic-depth": ["attention-output", "attention-output", "feed-forward"],
    }
    assert len(bind(model, "mixout").bound) == 6
    with_head = nn.ModuleDict({"attention": nn.MultiheadAttention(8, 2), "head": nn.Linear(8, 3)})
    with pytest.raises(InputError, match="it acts on layer, for which the model has no site"):
        bind(with_head, "layerdrop")
