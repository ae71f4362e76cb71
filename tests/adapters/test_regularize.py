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
from dropbench.harness.errors import UnsuitableError
from dropbench.harness.models.attention import attend_weights
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import watch
from dropbench.harness.reach import PASSES
from dropbench.harness.regularizers.schedules import SCHEDULES
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


def test_the_vectors_of_sigma_reparam_keep_their_type_in_autocast() -> None:
    model = encoder().train()
    regularize(model, "sigma-reparam", quiet=True)
    with torch.autocast("cpu", torch.bfloat16):
        model(X).sum().backward()
    assert {buffer.dtype for buffer in model.buffers()} == {torch.float32}
    model(X).sum().backward()


class EightLines(nn.Module):
    """A module as users write it: nothing tells what it is but its code."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.scale = nn.Linear(8, 24), 0.5

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = nn.functional.dropout((self.scale * q @ k.transpose(-2, -1)).softmax(-1), 0.9, self.training)
        attended: Tensor = weights @ v
        return attended


def test_attention_in_a_module_of_ones_own_is_regularized_and_its_dropout_replaced() -> None:
    module, x = EightLines().eval(), torch.randn(2, 5, 8)
    plain = module(x)
    bind(module, "none")
    torch.testing.assert_close(module.train()(x), plain)
    report = bind(module, "dropkey", ratio=0.5)
    assert [(site.name, site.kind) for site in report.bound] == [("", "encoder-self")]
    assert not torch.allclose(module(x), plain)
    assert torch.equal(module.eval()(x), plain)
    with pytest.raises(UnsuitableError, match="ValueDropout needs values, and the module computes a softmax"):
        bind(module, "value-dropout")


def test_a_grid_fits_the_keys_of_a_call() -> None:
    site = Site("", "encoder-self", 0, 1, 2, (4, 6), 1)
    assert [site.key_grid(keys) for keys in (25, 10, 12)] == [(4, 6), (3, 3), (4, 6)]


def test_sites_that_do_not_attend_in_training_are_named_once() -> None:
    class Towers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.idle = EightLines(), EightLines()

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)  # type: ignore[no-any-return]

    model = Towers().train()
    drop(model)
    for _ in range(PASSES - 1):
        model(X)
    with pytest.warns(UserWarning, match="1 of 2 regularized sites have not attended in 50 training passes: idle:"):
        model(X)
    for _ in range(PASSES):
        model(X)
    drop(model, unreached="ignore")
    for _ in range(PASSES):
        model(X)


def test_attention_that_nothing_can_intercept_is_named() -> None:
    class Kernel(EightLines):
        fast = True

        def forward(self, x: Tensor) -> Tensor:
            return x if self.fast else super().forward(x) + x.softmax(-1) @ x.mT @ x

    module = Kernel().train()
    drop(module)
    for _ in range(PASSES - 1):
        module(X)
    with pytest.warns(UserWarning, match="1 of 1 regularized sites have not attended"):
        module(X)


def test_a_subclass_of_multi_head_attention_is_regularized_whole_in_a_graph() -> None:
    class Own(nn.MultiheadAttention):
        def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
            return super().forward(x, x, x, need_weights=False)[0]

    module = Own(8, 2, batch_first=True)
    plain = module(X)
    bind(module, "none")
    torch.testing.assert_close(module(X), plain)
    drop(module)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    torch.manual_seed(0)
    dropped = module(X)
    torch.manual_seed(0)
    torch.testing.assert_close(compiled(X), dropped)
    assert not torch.allclose(dropped, plain)


@pytest.mark.parametrize("rescale", ["renormalize", "inverse", "detached"])
@pytest.mark.parametrize("unit", ["element", "column"])
def test_weights_alone_are_those_that_attend(rescale: str, unit: str) -> None:
    logits = torch.randn(2, 3, 4, 6, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(2, 1, 4, 6) > 0.3
    mask[0, 0, 0] = False
    site = Site("", "encoder-self", 0, 1, 3, weights_only=True)
    built = build_regularizer("dropattention-c", ratio=0.4, rescale=rescale, unit=unit)
    built.bind_to(site, SCHEDULES.get("constant"))
    results = []
    for probe in (None, lambda *_: None):  # with a probe, they are the output for unit vectors
        site.probe = probe
        torch.manual_seed(0)
        weights = attend_weights(logits.masked_fill(~mask, -1e9), mask.expand(2, 3, 4, 6), site, training=True)
        (gradient,) = torch.autograd.grad(weights.square().sum(), logits)
        results.append((weights, gradient))
    torch.testing.assert_close(*results)
    assert (results[0][0] == 0).sum() > (~mask).sum() * 3


class Around(nn.Module):
    """Attends, and has a module that attends."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = EightLines()

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        return x + nn.functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.parametrize("wrap", [lambda module: module, partial(torch.compile, backend="aot_eager", fullgraph=True)])
def test_a_module_around_another_has_calls_of_its_own(wrap: Any) -> None:
    model = Around().train()
    report = bind(model, "dropkey", ratio=0.5)
    assert [site.name for site in report.bound] == ["", "inner"]
    recorded: list[str] = []
    with watch(model, lambda site, _: recorded.append(site.name)):
        model(X)
    assert recorded == ["inner", ""]
    bind(model, "none")
    assert torch.equal(wrap(model)(X), wrap(model)(X))


@pytest.mark.parametrize("softmax", [partial(torch.softmax, dim=-1), lambda x: torch.softmax(x, 2, torch.float64)])
def test_dropout_of_an_output_is_not_that_of_weights(softmax: Any) -> None:
    class Square(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            self.seen = nn.functional.dropout(softmax(x @ x.mT), 0.5, self.training)
            return nn.functional.dropout((self.seen.to(x.dtype) @ x), 0.5, self.training)

    model, x = Square().train(), torch.randn(2, 8, 8)
    bind(model, "none")
    assert (model(x) == 0).any()
    torch.testing.assert_close(model.seen, softmax(x @ x.mT))
