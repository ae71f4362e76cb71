"""Test that a regularizer without effect is an error, and that the check changes no number."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from dropbench.harness.attention.call import Call
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.around import AroundAttention, Attention
from dropbench.harness.regularizers.base import RATIO, Site, Stage
from dropbench.harness.regularizers.drop import AttentionDrop
from dropbench.harness.training import engine
from tests.harness.training.test_regularization import TEXT
from tests.training import curve, make_trial, run

SMALL: dict[str, Any] = {**TEXT, "steps": 4, "batch_size": 32, "evaluate_every": 4}


class Idle(AroundAttention):
    """Draws random numbers, and changes nothing."""

    stage: ClassVar[Stage] = "heads"
    ratio: float = RATIO

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        torch.rand(3)
        return inner(call)


class Restored(AttentionDrop):
    """Drops all keys of a head, which `renormalize` restores."""

    def sample_drop_mask(self, shape: tuple[int, int, int, int], site: Site, device: torch.device) -> Tensor:
        return (torch.rand(*shape[:2], 1, 1, device=device) < site.ratio).expand(shape)


class GradientsOnly(AroundAttention):
    """Doubles the gradients of attention, and leaves its output."""

    stage: ClassVar[Stage] = "heads"
    ratio: float = RATIO

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        out = inner(call)
        return 2 * out - out.detach()


class RarelyGradients(GradientsOnly):
    """Doubles the gradients in a few of the draws, in which it changes the output by little more than rounding."""

    def around(self, call: Call, site: Site, inner: Attention) -> Tensor:
        if torch.rand(()) > 0.2:
            return inner(call)
        return (1 + 1e-5) * super().around(call, site, inner)


KINDS = {"idle": Idle, "restored": Restored, "gradients-only": GradientsOnly, "rarely-gradients": RarelyGradients}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(REGULARIZERS, "_entries", dict(REGULARIZERS._entries))
    for name, kind in KINDS.items():
        REGULARIZERS.add(name, kind)


@pytest.mark.parametrize(
    ("regularizer", "name", "dropout"),
    [
        ("idle", "idle", 0.0), ("restored", "restored", 0.1), ("dropkey + idle", "idle", 0.1),
        ("idle:over=late@0.5", "idle", 0.1),
    ],
)  # fmt: skip
def test_a_regularizer_without_effect_is_an_error(tmp_path: Path, regularizer: str, name: str, dropout: float) -> None:
    trial = make_trial(regularizer, **{**SMALL, "model.dropout": dropout})
    with pytest.raises(InputError, match=f"regularizer {name}: it changes neither the loss nor the gradients"):
        run(tmp_path, trial)


def test_equal_passes_are_an_error(tmp_path: Path) -> None:
    options: dict[str, Any] = {**SMALL, "model.dropout": 0.0}
    with pytest.raises(InputError, match=r"r-drop: .* its passes are equal: add a part that drops"):
        run(tmp_path, make_trial("r-drop", **options))
    run(tmp_path, make_trial("r-drop + dropkey", **options))


@pytest.mark.parametrize(
    "regularizer",
    [
        "dropkey:over=late@0.9", "layerdrop:ratio=0.3", "drophead + dropkey", "gradients-only", "rarely-gradients",
        "token-dropout:ratio=0.3",
    ],
)  # fmt: skip
def test_an_effect_is_none_of_an_error(tmp_path: Path, regularizer: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, make_trial(regularizer, **SMALL))
    assert "changed nothing" not in capsys.readouterr().out


def test_a_rare_effect_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, make_trial("dropkey:ratio=0.000000001", **SMALL))
    assert "note: dropkey changed nothing in 16 draws: its strength may be too small" in capsys.readouterr().out


def test_strength_0_is_not_checked(tmp_path: Path) -> None:
    run(tmp_path, make_trial("idle:ratio=0", **SMALL))


@pytest.mark.parametrize(
    "regularizer", ["dropkey + drophead + r-drop", "ad-drop:alternate=false", "layerdrop:ratio=0.001"]
)
def test_the_check_changes_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, regularizer: str) -> None:
    trial = make_trial(regularizer, **SMALL)
    checked = run(tmp_path / "checked", trial)
    unchecked: Callable[[Any], None] = lambda trainer: None  # noqa: E731
    monkeypatch.setattr(engine, "require_effect", unchecked)
    assert run(tmp_path / "unchecked", trial) == checked
    assert curve(tmp_path / "unchecked", trial) == curve(tmp_path / "checked", trial)


def test_modules_of_other_parts_are_idle_meanwhile(tmp_path: Path) -> None:
    """Learned Dropout acts through a module with parameters, and has a penalty."""
    options: dict[str, Any] = {
        "context": 16, "vocabulary": 300, "batch_size": 8, "evaluation_batches": 2, "steps": 2, "model.layers": 1,
        "model.dim": 24, "model.heads": 3,
    }  # fmt: skip
    where: dict[str, Any] = {"task": "language-modelling", "data": "text-synthetic", "model": "learned-dropout-lm"}
    run(tmp_path, make_trial("learned-dropout", **where, **options))
    with pytest.raises(InputError, match="regularizer idle"):
        run(tmp_path, make_trial("learned-dropout + idle", **where, **options))
