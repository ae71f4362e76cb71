"""Test models with adapters of peft: the same regularization whether they are added before or after `regularize`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dropbench import InputError, regularize, sites, unregularize
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import through_attend
from tests.adapters.test_contract import FAMILIES

peft = pytest.importorskip("peft", reason="peft is not installed")
TARGETS = ("linear2", "self_attn")
pytestmark = pytest.mark.filterwarnings("ignore:regularize. weight-orthogonality")
SPECS = ("hiddencut:ratio=0.5", "stochastic-depth:ratio=0.5", "layerdrop:ratio=0.5", "dropkey:ratio=0.5")


def encoder() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


def lora(*targets: str) -> Any:
    return peft.LoraConfig(r=2, target_modules=list(targets), init_lora_weights=False)


def adapt(model: nn.Module, *targets: str) -> nn.Module:
    """Add LoRA with a delta that is not zero."""
    torch.manual_seed(1)
    adapted: nn.Module = peft.inject_adapter_in_model(lora(*targets), model)
    return adapted


def train(model: nn.Module, seed: int = 2) -> Tensor:
    torch.manual_seed(seed)
    out: Tensor = model.train()(torch.ones(2, 5, 16).cumsum(dim=1))
    return out


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("spec", SPECS)
def test_adapters_added_before_and_after_are_regularized_alike(spec: str, target: str) -> None:
    before = regularize(adapt(encoder(), target), spec, quiet=True)
    after = adapt(regularize(encoder(), spec, quiet=True), target)
    assert torch.equal(train(before), train(after))
    assert not torch.equal(train(after), train(after, seed=3))
    assert [(site.kind, site.layer, site.depth) for site in sites(before)] == [
        (site.kind, site.layer, site.depth) for site in sites(after)
    ]
    assert torch.equal(after.eval()(torch.ones(2, 5, 16)), unregularize(before).eval()(torch.ones(2, 5, 16)))


@pytest.mark.parametrize("target", TARGETS)
def test_adapters_in_a_regularized_model_have_gradients(target: str) -> None:
    model = adapt(regularize(encoder(), "dropkey + hiddencut", quiet=True), target)
    train(model).square().sum().backward()
    grads = [parameter.grad for name, parameter in model.named_parameters() if "lora_" in name]
    assert grads
    assert all(grad is not None and grad.abs().sum() > 0 for grad in grads)


@pytest.mark.parametrize("order", ["before", "after"])
def test_the_sum_of_base_and_adapter_is_cut(order: str) -> None:
    model = encoder()
    if order == "after":
        regularize(model, "hiddencut:ratio=0.5", quiet=True)
    adapt(model, "linear2")
    if order == "before":
        regularize(model, "hiddencut:ratio=0.5", quiet=True)
    outputs: list[Tensor] = []
    layer = model.get_submodule("layers.0")
    layer.get_submodule("dropout2").register_forward_pre_hook(lambda module, inputs: outputs.append(inputs[0]))
    train(model)
    cut = outputs[0] == 0.0
    assert cut.any()
    assert not cut.all()
    assert torch.equal(cut.all(dim=-1), cut.any(dim=-1))


def test_adapters_that_were_merged_leave_the_sites_with_the_maps() -> None:
    model = adapt(regularize(encoder(), "hiddencut:ratio=0.5", quiet=True), "linear2")
    adapted = train(model)
    wrapper = model.get_submodule("layers.0.linear2")
    for layer in (0, 1):
        map_: Any = model.get_submodule(f"layers.{layer}.linear2")
        map_.merge()
        model.get_submodule(f"layers.{layer}").linear2 = map_.base_layer
    torch.testing.assert_close(train(model), adapted)
    assert "forward" not in vars(wrapper)
    assert all("forward" not in vars(module) for module in unregularize(model).modules())


def test_a_map_that_was_replaced_is_an_error() -> None:
    model = regularize(encoder(), "hiddencut:ratio=0.5", quiet=True)
    model.get_submodule("layers.0").linear2 = nn.Linear(32, 16)
    with pytest.raises(InputError, match=r"^layers.0.linear2: it was replaced by a Linear since `regularize`"):
        train(model)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["mixout", "sigma-reparam"])
def test_weights_that_are_adapted_later_are_an_error_at_once(name: str, target: str) -> None:
    model = regularize(encoder(), name, quiet=True)
    with pytest.raises(InputError, match=r"^layers\.0\..*: a regularizer computes its weight, to which"):
        adapt(model, target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["mixout", "sigma-reparam"])
def test_adapted_weights_are_refused(name: str, target: str) -> None:
    report = bind(adapt(encoder(), target), name)
    refused = {
        site.name for site, reason in report.skipped if reason == "an adapter adds to its weight, which is frozen"
    }
    assert refused
    assert all(target in path for path in refused)
    assert not any("lora" in site.name for site in report.bound)


class Container(nn.Module):
    """A module around another one that adds nothing, as those of torch.compile and FSDP."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inner(*args, **kwargs)


def test_a_site_stays_in_a_container() -> None:
    model = regularize(encoder(), "hiddencut:ratio=0.5", quiet=True)
    expected = train(model)
    map_ = model.get_submodule("layers.0.linear2")
    model.get_submodule("layers.0").linear2 = Container(map_)
    assert torch.equal(train(model), expected)
    assert "forward" in vars(map_)


@pytest.mark.slow
def test_compilation_follows_adapters_or_is_refused() -> None:
    regularized = regularize(encoder(), "hiddencut:ratio=0.5", quiet=True)
    expected = train(adapt(regularize(encoder(), "hiddencut:ratio=0.5", quiet=True), "linear2"))
    model = adapt(regularized, "linear2")
    whole: Any = torch.compile(model, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="call the model once before compiling it"):
        train(whole)
    torch.compiler.reset()
    assert torch.equal(train(torch.compile(model, backend="eager")), expected)  # type: ignore[arg-type]
    assert torch.equal(train(torch.compile(model, backend="eager", fullgraph=True)), expected)  # type: ignore[arg-type]
    torch.compiler.reset()


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")  # peft calls it
def test_all_linear_maps_of_bert() -> None:
    family = FAMILIES["transformers-bert"]

    def adapted(model: nn.Module) -> nn.Module:
        torch.manual_seed(1)
        model = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules="all-linear", init_lora_weights=False))
        return model.train()

    outputs = []
    for order in ("before", "after"):
        model = family.model()
        if order == "before":
            model = regularize(adapted(model), "hiddencut:ratio=0.5", quiet=True)
        else:
            model = adapted(regularize(model, "hiddencut:ratio=0.5", quiet=True))
        torch.manual_seed(2)
        outputs.append(family.run(model))
    assert torch.equal(*outputs)


@pytest.mark.parametrize("spec", SPECS)
def test_adapters_are_merged_without_a_pass_before(spec: str) -> None:
    adapted = peft.get_peft_model(regularize(encoder(), spec, quiet=True), lora("linear2", "self_attn"))
    with through_attend():  # the fast path of torch bypasses adapters
        expected = copy.deepcopy(adapted).eval()(torch.ones(2, 5, 16))
        merged = adapted.merge_and_unload()
        torch.testing.assert_close(merged.eval()(torch.ones(2, 5, 16)), expected)
    assert not torch.equal(train(merged), train(merged, seed=3))
