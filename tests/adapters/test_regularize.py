"""Test `regularize` and `unregularize`: selected sites, repeated calls, shared modules, errors."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dropbench import REGULARIZERS, AttentionDrop, InputError, Site, regularize, sites, unregularize
from dropbench.adapters.text.text_transformer import build_text_transformer
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch
from dropbench.harness.regularizers.spec import build_regularizer

drop = partial(regularize, regularizer="dropkey", ratio=0.5, quiet=True)


X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1))


def encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def block() -> nn.MultiheadAttention:
    return nn.MultiheadAttention(8, 2, batch_first=True)


class Stack(nn.Module):
    """Three layers of attention; with `shared`, the last one is the first one."""

    def __init__(self, shared: bool = False) -> None:
        super().__init__()
        self.layers = nn.ModuleList(block() for _ in range(3))
        if shared:
            self.layers[2] = self.layers[0]

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x, x, x, need_weights=False)[0]
        return x


def test_patterns_select_sites_and_other_modules_are_unchanged() -> None:
    model = Stack()
    report = bind(model, "dropkey", ratio=0.5, include=["layers.*"], exclude=["*.1"])
    assert [site.name for site in report.bound] == ["layers.0", "layers.2"]
    assert [(site.name, reason) for site, reason in report.skipped] == [("layers.1", "excluded by name")]
    assert "layers.1" in str(report)
    assert "skipped: excluded by name" in str(report)
    assert type(model.layers[1]) is nn.MultiheadAttention
    report = bind(model, "dropkey", include="layers.*", exclude="layers.1", kinds="encoder-self")  # texts, no lists
    assert [site.name for site in report.bound] == ["layers.0", "layers.2"]
    with pytest.raises(InputError, match=r"unknown site in include 'layer\.\*': did you mean layers\.2 or"):
        bind(model, "dropkey", include=["layers.0", "layer.*"])
    assert bind(nn.ModuleDict({"body": model}), "dropkey").bound[0].name == "body.layers.0"


def test_a_regularizer_is_written_as_on_the_command_line() -> None:
    report = bind(Stack(), "dropkey:ratio=0.3,window=2,schedule=increasing", ratio=0.6)
    assert report.regularizer == build_regularizer("dropkey", ratio=0.6, window=2)
    assert [site.ratio for site in report.bound] == pytest.approx([0.0, 0.3, 0.6])
    report = bind(Stack(), "r-drop:alpha=2 + dropkey:ratio=0.3")
    assert report.regularizer == build_regularizer("r-drop+dropkey", **{"r-drop.alpha": 2, "dropkey.ratio": 0.3})
    with pytest.raises(InputError, match=r"align=finetune: only `dropbench\.run` aligns: remove it"):
        bind(Stack(), "dropkey:align=finetune")


def test_a_second_call_replaces_regularizer_and_sites() -> None:
    model = Stack()
    first = sites(drop(model))
    with watch(model, lambda site, weights: None):
        bind(model, "dropattention-c", ratio=0.25, window=2, schedule="increasing", include=["layers.1", "layers.2"])
        assert all(site.probe is not None for site in sites(model))  # probes stay in place
    bound = sites(model)
    assert [(site.name, site.ratio) for site in bound] == [("layers.1", 0.125), ("layers.2", 0.25)]
    assert all("window" in repr(site.regularizer) for site in bound)
    assert type(model.layers[0]) is nn.MultiheadAttention
    assert first[1] is not bound[0]


def test_a_failed_call_changes_nothing() -> None:
    model = Stack()
    before = model(torch.ones(1, 2, 8))
    drop(model)
    for wrong in (
        partial(bind, model, "dropkey", ratio=1.5),
        partial(bind, model, "dropkye"),
        partial(bind, model, "dropkey", schedule="decresing"),
        partial(bind, model, "dropkey", windw=3),
        partial(bind, model, "dropkey", include=["encoder.*"]),
        partial(bind, model, "dropkey-block", ratio=0.1),
        partial(bind, model, build_regularizer("dropkey"), ratio=0.1),
    ):
        with pytest.raises(InputError):
            wrong()
        assert [site.ratio for site in sites(model)] == [0.5] * 3
    unregularize(model)
    assert torch.equal(model(torch.ones(1, 2, 8)), before)
    assert unregularize(model) is model  # a second call is no error


def test_the_error_for_a_model_without_attention_lists_supported_models() -> None:
    class PerformerAttention(nn.Module):
        pass

    message = (
        r"^regularize: no supported attention in Sequential \(no adapter supports its PerformerAttention\): expected "
        r"one of modules that call dropbench.attend, modules that call SDPA .*timm's .*fairseq's MultiheadAttention$"
    )
    with pytest.raises(InputError, match=message):
        drop(nn.Sequential(nn.Linear(2, 2), PerformerAttention()))


def test_a_shared_module_is_one_site_in_the_report() -> None:
    model = Stack(shared=True)
    report = bind(model, "dropkey", ratio=0.5, schedule="increasing")
    assert [(site.name, site.layer, site.depth) for site in report.bound] == [("layers.0", 0, 2), ("layers.1", 1, 2)]
    assert report.shared == {"layers.0": ["layers.2"]}
    assert "layers.0  encoder-self  layer 1/2  heads 2  ratio 0.000  (one module with layers.2)" in str(report)
    called: list[str] = []
    with watch(model, lambda site, weights: called.append(site.name)):
        model(torch.randn(1, 3, 8))
    assert called == ["layers.0", "layers.1", "layers.0"]


def test_a_swapped_argument_and_a_class_are_refused() -> None:
    arguments: list[tuple[Any, Any]] = [("dropkey", Stack()), (Stack(), REGULARIZERS), (Stack(), AttentionDrop)]
    for model, regularizer in arguments:
        with pytest.raises(InputError, match="regularize: expected a model, then a"):
            regularize(model, regularizer)


def test_watching_ends_with_the_block_even_by_an_error() -> None:
    model = drop(Stack())

    def fail(site: Site, weights: Tensor) -> None:
        raise ValueError("called")

    fast = torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(ValueError, match="called"), watch(model, fail):
        model(torch.randn(1, 3, 8))
    assert all(site.probe is None for site in sites(model))
    assert torch.backends.mha.get_fastpath_enabled() is fast


def test_a_model_written_for_dropbench_keeps_its_sites() -> None:
    model = build_text_transformer("text-transformer", {}, vocabulary=9, classes=2, max_length=4)
    own = sites(model)
    bind(model, "dropkey", ratio=0.5)
    for site in own:
        site.probe, site.masked_keys, site.mc_samples = (
            (lambda site, weights: None),
            torch.zeros(1, 4, dtype=torch.bool),
            3,
        )
    bind(model, "dropkey", ratio=0.25, include=["*.0.*"])
    assert [site.ratio for site in own if site.kind == "encoder-self"] == [0.25, 0.0]
    assert all(site.probe is not None for site in own)
    unregularize(model)
    assert sites(model) == own
    assert all(
        (site.regularizer, site.probe, site.masked_keys, site.mc_samples) == (None, None, None, 0) for site in own
    )
    assert bind(model, "dropkey").shared == {}  # their modules have names of their own


@pytest.mark.parametrize("name", ["mixout", "sigma-reparam", "weight-orthogonality"])
def test_a_copy_is_unregularized_alone(name: str) -> None:
    model = encoder()
    regularize(model, name, quiet=True)
    copied = copy.deepcopy(model)
    unregularize(copied)
    assert not any(hasattr(module, "parametrizations") for module in copied.modules())
    torch.testing.assert_close(model.eval()(X), copied.eval()(X))
    unregularize(model)
    assert list(model.state_dict()) == list(copied.state_dict())
