"""Test `dropbench.check`: what it finds in models that work and in models that do not, and that it changes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel

from dropbench import Check, check, regularize, set_progress, sites
from dropbench.harness.attention.call import Call
from dropbench.harness.regularizers.around import AroundAttention, Attention
from dropbench.harness.regularizers.base import RATIO, Site, Stage

IMAGES = torch.randn(2, 3, 32, 32)
X = torch.randn(2, 6, 16)


class Attending(nn.Module):
    """Attends by SDPA, or with `fast` by code that nothing intercepts."""

    def __init__(self, *, fast: bool = False) -> None:
        super().__init__()
        self.qkv, self.fast = nn.Linear(16, 48), fast

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        q, k, v = (self.qkv(x) * scale)[:, None].chunk(3, dim=-1)
        if self.fast:
            weights = (q @ k.mT / 4).exp()
            return (weights / weights.sum(dim=-1, keepdim=True) @ v)[:, 0]  # type: ignore[no-any-return]
        return F.scaled_dot_product_attention(q, k, v)[:, 0]


class Two(nn.Module):
    """Runs its first attention module, and the second unless it is idle."""

    def __init__(self, second: Attending, *, idle: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.idle = Attending(), second, idle

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        x = self.first(x, scale)
        return x if self.idle else self.second(x)


class Changed(AroundAttention):
    """Multiplies the output of attention by a factor."""

    stage: ClassVar[Stage] = "heads"
    ratio: float = RATIO
    factor: float = 1.0

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        torch.rand(3)
        return self.factor * inner(call)


class Raising(AroundAttention):
    """Raises an error in training."""

    stage: ClassVar[Stage] = "heads"
    ratio: float = RATIO

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        raise ArithmeticError("it does not fit")


def vit(**options: Any) -> nn.Module:
    return timm.create_model("vit_tiny_patch16_224", img_size=32, depth=3, num_classes=4, **options)


def bert() -> Any:
    sizes: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    return BertModel(BertConfig(vocab_size=100, **sizes))


def failing(result: Check) -> dict[str, str]:
    assert result.ok == (not any(finding.state == "fails" for finding in result.findings))
    return {finding.what: finding.detail for finding in result.findings if finding.state == "fails"}


def details(result: Check) -> dict[str, str]:
    assert result.ok
    return {finding.what: finding.detail for finding in result.findings}


@pytest.mark.parametrize(
    ("regularizer", "act"),
    [
        ("dropkey:ratio=0.1", "3 of 3"), ("drophead:ratio=0.01", "3 of 3"), ("layerdrop:ratio=0.05", "3 of 3"),
        ("hiddencut", "3 of 3"), ("attention-entropy", "3 of 3"), ("dropkey + hiddencut", "6 of 6"),
    ],
)  # fmt: skip
def test_every_site_of_a_vision_transformer_acts(regularizer: str, act: str) -> None:
    model = regularize(vit(proj_drop_rate=0.1, drop_path_rate=0.1), regularizer, quiet=True)
    result = check(model, IMAGES)
    assert details(result)["sites"] == f"{act} sites act"
    assert details(result)["evaluation"] == "equal to the model without the regularizer, bit for bit"
    assert result.slowdown > 0


def test_a_module_of_the_regularizer_acts_without_a_ratio() -> None:
    model = regularize(vit(), "learned-dropout", where="attention", quiet=True)
    found = details(check(model, IMAGES))
    assert found["sites"] == "3 of 3 sites act"
    assert "more keys, of the regularizer's parameters" in found["state dict"]


def test_a_dictionary_holds_keyword_arguments_and_a_function_runs_the_model() -> None:
    model = regularize(bert(), "dropattention-c", ratio=0.2, quiet=True)
    batch = {"input_ids": torch.randint(0, 100, (2, 12)), "attention_mask": torch.ones(2, 12, dtype=torch.long)}
    runs: tuple[Any, ...] = (batch, lambda model: model(**batch), (batch["input_ids"], batch["attention_mask"]))
    for given in runs:
        found = details(check(model, given))
        assert found["sites"] == "2 of 2 sites act"
        assert found["state dict"].startswith("equal keys")
        assert found["gradients"].startswith("finite")


def test_the_model_stays_as_it_was() -> None:
    model = regularize(vit(), "dropkey", ratio=0.3, schedule="decreasing", quiet=True).train()
    model.blocks[0].eval()  # type: ignore[index, union-attr]
    model(IMAGES).sum().backward()
    state = copies(model), torch.get_rng_state(), random.getstate()
    found = details(check(model, IMAGES))
    assert found["sites"] == "2 of 3 sites act, 1 with ratio 0"
    assert torch.equal(state[1], torch.get_rng_state())
    assert random.getstate() == state[2]
    for before, now in zip(state[0], copies(model), strict=True):
        assert torch.equal(before, now)
    assert [module.training for module in model.blocks] == [False, True, True]  # type: ignore[union-attr]
    assert [round(site.ratio, 3) for site in sites(model)] == [0.3, 0.15, 0.0]


def copies(model: nn.Module) -> list[Tensor]:
    parameters = list(model.parameters())
    return [each.detach().clone() for each in [*parameters, *(p.grad for p in parameters if p.grad is not None)]]


def test_a_site_that_is_not_reached_has_a_line_of_its_own() -> None:
    model = regularize(Two(Attending(fast=True)), "dropkey", ratio=0.3, quiet=True)
    reason = "its module ran, but did not attend"
    assert failing(check(model, (X, 0.5))) == {"sites": "1 of 2 sites act", "second": reason}
    model = regularize(Two(Attending(), idle=True), "dropkey", ratio=0.3, quiet=True)
    reason = "not reached: its module did not run"
    assert failing(check(model, X)) == {"sites": "1 of 2 sites act", "second": reason}
    regularize(model, "dropkey", ratio=0.3, quiet=True, unreached="ignore")
    assert details(check(model, X))["second"] == reason
    regularize(model, "dropkey", ratio=0.3, quiet=True, exclude="second")
    assert details(check(model, X))["sites"] == "1 of 1 sites act; 1 other attention module not regularized"


def test_a_regularizer_that_is_off_fails() -> None:
    model = vit()
    assert "call `dropbench.regularize(model, …)` first" in failing(check(model, IMAGES))["sites"]
    regularize(model, "dropkey", ratio=0.0, quiet=True)
    assert failing(check(model, IMAGES)) == {"sites": "0 of 3 sites act, 3 with ratio 0"}
    with pytest.warns(UserWarning, match="set_progress"):
        regularize(model, "dropkey:ratio=0.3,over=late@0.5", quiet=True)
    assert "`set_progress` raises it" in failing(check(model, IMAGES))["sites"]
    set_progress(model, 0.9)
    assert details(check(model, IMAGES))["sites"] == "3 of 3 sites act"


def test_a_regularizer_without_effect_fails_for_each_site() -> None:
    model = regularize(Two(Attending()), Changed(), quiet=True)
    reason = "no draw changes its output"
    assert failing(check(model, X)) == {"sites": "0 of 2 sites act", "first": reason, "second": reason}


def test_what_a_regularizer_breaks_is_a_finding() -> None:
    model = regularize(Two(Attending()), Changed(factor=1e38), quiet=True)
    assert failing(check(model, X))["gradients"].startswith("not finite for")
    regularize(model, Raising(), quiet=True)
    assert failing(check(model, X)) == {"training": "ArithmeticError: it does not fit"}
    regularize(model, "dropkey", ratio=0.5, quiet=True)
    sites(model)[0].mc_samples = 2
    assert failing(check(model, X)) == {"evaluation": "differs from the model without the regularizer"}


def test_a_batch_that_does_not_fit_raises_what_the_model_raises() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        check(regularize(Two(Attending()), "dropkey", quiet=True), torch.randn(2, 6, 5))


@pytest.mark.parametrize("regularizer", ["r-drop", "ad-drop"])
def test_a_changed_loss_is_not_checked(regularizer: str) -> None:
    with pytest.warns(UserWarning, match="changes the loss"):
        model = regularize(vit(), regularizer, quiet=True)
    result = check(model, IMAGES)
    assert "compute it by `training_loss`" in details(result)["loss"]
    assert {finding.state for finding in result.findings if finding.what in ("loss", "sites")} == {"unchecked"}


def test_a_result_is_a_table() -> None:
    result = check(regularize(Two(Attending(), idle=True), "dropkey", quiet=True), X)
    lines = str(result).splitlines()
    assert lines[0].endswith("in Two")
    assert lines[2].split(maxsplit=2) == ["second", "fails", "not reached: its module did not run"]
    assert repr(result) == str(result)
    show: Callable[[], str] = result._repr_html_
    assert "<td>second</td><td>fails</td>" in show()
