"""Draws of dropout that replace torch's are torch's, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from harness.attention.kernels import c_library, cpu_bernoulli
from harness.attention.kernels.cpu_bernoulli import draw_bernoulli, fast_bernoulli
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.training.engine import run_trial
from harness.trials.task import TASKS
from harness.trials.trial import TrialRequest
from tests.harness.attention.attention_case import needs_compiler

CPUINFO = Path("/proc/cpuinfo")
# Not skipped by `_draws_equal`, which is also False where the kernel is wrong.
draws_with_mkl = (
    torch.backends.mkl.is_available() and CPUINFO.exists() and "GenuineIntel" in CPUINFO.read_text(encoding="utf-8")
)
pytestmark = [
    needs_compiler,
    pytest.mark.skipif(draws_with_mkl, reason="on this processor, torch draws with Intel's library"),
]

NUMELS = (0, 1, 2, 3, 311, 312, 313, 623, 624, 625, 1000, 64 * 22 * 128)
PROBABILITIES = (0.0, 1e-17, 0.1, 0.5, 0.7, 0.95, 1 - 2**-53, 1.0)


def seeded(seed: int, skipped: int) -> torch.Generator:
    generator = torch.Generator().manual_seed(seed)
    torch.empty(skipped).uniform_(generator=generator)
    return generator


@pytest.mark.parametrize("numel", NUMELS)
@pytest.mark.parametrize("p", PROBABILITIES)
def test_draws_and_state_are_torchs(p: float, numel: int) -> None:
    for skipped in (0, 1, 623, 624):
        own, theirs = seeded(numel, skipped), seeded(numel, skipped)
        for _ in range(3):
            drawn = draw_bernoulli(torch.empty(numel), p, generator=own)
            assert torch.equal(drawn, torch.empty(numel).bernoulli_(p, generator=theirs))
            assert torch.equal(own.get_state(), theirs.get_state())
        assert torch.equal(torch.randn(3, generator=own), torch.randn(3, generator=theirs))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.int64])
@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x, lambda x: x.transpose(0, 2), lambda x: x[:, ::2, 1:], lambda x: x.transpose(0, 2)[::3],
        lambda x: x[None].contiguous(memory_format=torch.channels_last),
    ],
    ids=["contiguous", "transposed", "slice", "transposed-slice", "channels-last"],
)  # fmt: skip
def test_draws_of_other_dtypes_and_layouts(dtype: torch.dtype, layout: Callable[[Tensor], Tensor]) -> None:
    for float_or_other in (torch.float32, dtype):
        drawn, expected = (torch.zeros(7, 12, 40, dtype=float_or_other) for _ in range(2))
        own, theirs = seeded(1, 1), seeded(1, 1)
        returned = draw_bernoulli(layout(drawn), 0.3, generator=own)
        assert torch.equal(returned, layout(expected).bernoulli_(0.3, generator=theirs))
        assert torch.equal(drawn, expected)
        assert torch.equal(own.get_state(), theirs.get_state())


def step(model: nn.Module, x: Tensor) -> list[Tensor]:
    """Return the output, gradients and further draws of a training step from a seed."""
    torch.manual_seed(5)
    query = model(x)
    output = F.scaled_dot_product_attention(query, query, query, dropout_p=0.2)
    output.square().sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    return [output.detach(), *(gradient for gradient in gradients if gradient is not None), torch.rand(3)]


def test_dropout_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    assert cpu_bernoulli._draws_equal()
    numels: list[int] = []

    def record(out: Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Tensor:
        numels.append(out.numel())
        return draw_bernoulli(out, p, generator=generator)

    monkeypatch.setattr(cpu_bernoulli, "draw_bernoulli", record)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Linear(8, 8)), torch.randn(2, 3, 50, 8)
    before = step(copy.deepcopy(model), x)
    assert not numels
    with fast_bernoulli():
        within = step(copy.deepcopy(model), x)
    assert numels == [2 * 3 * 50 * 8, 2 * 3 * 50 * 50]
    after = step(copy.deepcopy(model), x)
    assert len(numels) == 2, "torch draws itself again"
    for ours, theirs, again in zip(within, before, after, strict=True):
        assert torch.equal(ours, theirs)
        assert torch.equal(again, theirs)


def test_wrong_probabilities_are_refused() -> None:
    for p in (-0.1, 1.1, float("nan")):
        with pytest.raises(RuntimeError, match="expects p to be in"):
            draw_bernoulli(torch.empty(3), p)


@pytest.mark.parametrize("reason", ["no compiler", "other draws"])
def test_nothing_is_replaced_where_draws_differ(monkeypatch: pytest.MonkeyPatch, reason: str) -> None:
    if reason == "no compiler":
        monkeypatch.setattr(cpu_bernoulli, "load_library", lambda _: None)
    else:
        monkeypatch.setattr(cpu_bernoulli, "draw_bernoulli", lambda out, p, *, generator: out.fill_(1))
    cpu_bernoulli._draws_equal.cache_clear()
    try:
        with fast_bernoulli():
            torch.manual_seed(0)
            drawn = torch.empty(100).bernoulli_(0.5)
    finally:
        cpu_bernoulli._draws_equal.cache_clear()
    torch.manual_seed(0)
    assert torch.equal(drawn, torch.empty(100).bernoulli_(0.5))


def test_trials_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def result(name: str) -> dict[str, Any]:
        settings = Settings(runs=tmp_path / name, device="cpu", threads=1)
        request = TrialRequest(
            task="text-classification", data="trec-synthetic", model="text-transformer",
            overrides={"steps": 4, "evaluate_every": 2, "model.dropout": 0.3},
        )  # fmt: skip
        trial = TASKS.get(request.task).trial_for(request, settings)
        return run_trial(RunDirectory.create(settings.runs, trial), settings)

    called: list[str] = []

    def load(library: str, name: str) -> Callable[..., None]:
        called.append(name)
        return c_library.load_function(library, name)

    monkeypatch.setattr(cpu_bernoulli, "load_function", load)
    fast = result("fast")
    assert called
    called.clear()
    monkeypatch.setattr(cpu_bernoulli, "_draws_equal", lambda: False)
    assert result("torch") == fast
    assert not called
