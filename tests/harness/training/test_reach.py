"""Test that a bound site that attention does not reach is an error before the first step of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.training import engine
from tests.training import curve, make_trial, run

SMALL: dict[str, Any] = {"steps": 3, "batch_size": 16, "evaluate_every": 3}


class Attention(nn.Module):
    """Attends by SDPA, or with `fast` by code that nothing intercepts; then its SDPA is never called."""

    def __init__(self, *, fast: bool = False) -> None:
        super().__init__()
        self.qkv, self.fast = nn.Linear(16, 48), fast

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x)[:, None].chunk(3, dim=-1)
        if self.fast:
            weights = (q @ k.mT / 4).exp()
            return (weights / weights.sum(dim=-1, keepdim=True) @ v)[:, 0]  # type: ignore[no-any-return]
        return F.scaled_dot_product_attention(q, k, v)[:, 0]


class Network(nn.Module):
    """A classifier of images with a second attention module: it computes the output, too, or is idle."""

    def __init__(self, second: Attention, *, idle: bool) -> None:
        super().__init__()
        self.first, self.second, self.idle = Attention(), second, idle
        self.embed, self.head = nn.LazyLinear(16), nn.LazyLinear(10)

    def forward(self, images: Tensor) -> Tensor:
        x = self.first(self.embed(images.flatten(1, 2)))
        return self.head((x if self.idle else self.second(x)).mean(dim=1))  # type: ignore[no-any-return]


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODELS, "_entries", dict(MODELS._entries))
    for name, fast, idle in (("both", False, False), ("kernel", True, False), ("tower", False, True)):

        def build(*args: Any, fast: bool = fast, idle: bool = idle, **sizes: Any) -> nn.Module:
            network = Network(Attention(fast=fast), idle=idle)
            network(torch.zeros(1, 1, 8, 8))
            return network

        MODELS.register(name, help="mine", tasks=("image-classification",))(build)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("regularizer", ["dropkey", "dropkey:ratio=0"])
def test_a_site_without_attention_is_an_error_that_names_it(tmp_path: Path, regularizer: str) -> None:
    with pytest.raises(InputError, match="1 of 2 regularized sites do not attend in a forward pass: second:"):
        run(tmp_path, make_trial(regularizer, model="kernel", **SMALL))


@pytest.mark.usefixtures("models")
def test_a_tower_that_the_loss_does_not_use_is_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = "note: the loss does not depend on 1 regularized sites: second"
    run(tmp_path, make_trial("dropkey", model="tower", **SMALL))
    assert note in capsys.readouterr().out
    run(tmp_path, make_trial("dropkey", model="both", **SMALL))
    assert note not in capsys.readouterr().out


@pytest.mark.parametrize("regularizer", ["layerdrop:ratio=0.3", "dropkey:ratio=0"])
def test_the_pass_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regularizer: str) -> None:
    trial = make_trial(regularizer, **SMALL)
    checked = run(tmp_path / "checked", trial)
    monkeypatch.setattr(engine, "require_reach", lambda trainer: None)
    assert run(tmp_path / "unchecked", trial) == checked
    assert curve(tmp_path / "unchecked", trial) == curve(tmp_path / "checked", trial)
