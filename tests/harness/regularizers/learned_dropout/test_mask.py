"""Learned Dropout's mask: roundings, what is kept at the start, statistics, penalties, edges, wrong settings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dropbench.harness.errors import InputError
from dropbench.harness.models.mask_recorder import mean_statistics
from dropbench.harness.regularizers.auxiliary_loss import MAX_PENDING, coefficient, penalty, with_penalty
from dropbench.harness.regularizers.learned_dropout.mask import LearnedMask, MaskStatistics, entropy
from dropbench.harness.regularizers.learned_dropout.regularizer import LearnedDropout
from dropbench.harness.regularizers.spec import build_regularizer

WIDTH, HEADS = 24, 4


def make(width: int = WIDTH, heads: int = HEADS, **options: Any) -> LearnedMask:
    torch.manual_seed(0)
    return LearnedMask(LearnedDropout(**options), width, heads)


def spread(module: LearnedMask, scale: float = 30.0) -> LearnedMask:
    """The same with large weights, so that its masks are far from constant."""
    with torch.no_grad():
        module.qkv.weight.mul_(scale)
    return module


def test_probabilistic_evaluation_draws_as_training_does() -> None:
    module = spread(make(shift_init=1.5, evaluation="probabilistic"))
    x = torch.randn(3, 7, WIDTH)
    torch.manual_seed(1)
    first = module(x, training=False)
    assert not torch.equal(first, module(x, training=False))
    torch.manual_seed(1)
    assert torch.equal(first, module(x, training=True))


def test_a_detached_input_gets_the_gradient_of_the_product_alone() -> None:
    x = torch.randn(2, 5, WIDTH, requires_grad=True)
    module = spread(make(detached_input=True, mask_rounding="none"))
    module(x, training=False).sum().backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, module.values(x).detach())


def test_embeddings_make_the_mask_where_they_are_the_input() -> None:
    module = spread(make(dropout_input="embed"))
    x, embed = torch.randn(2, 2, 5, WIDTH)
    torch.testing.assert_close(
        module(x, training=False, embed=embed), x * (module.values(embed) >= 0.5), rtol=0, atol=0
    )
    with pytest.raises(InputError, match="passes no embeddings"):
        module(x, training=False)


def test_the_penalty_of_a_model_is_the_mean_over_sites_and_over_repeated_calls() -> None:
    model = torch.nn.ModuleList(
        [spread(make()), spread(make(), 50), torch.nn.Linear(2, 2), make(l1_norm_penalty="none")]
    )
    x, y = torch.randn(2, 2, 5, WIDTH)
    for module in (model[0], model[1], model[3]):
        module(x, training=True)
    model[1](y, training=True)

    def norm(module: Any, value: torch.Tensor) -> float:
        return float((module.values(value).detach() ** 2 / 2).mean())

    expected = 0.1 * (norm(model[0], x) + (norm(model[1], x) + norm(model[1], y)) / 2) / 2
    assert with_penalty(torch.tensor(1.0), model, 0).item() == pytest.approx(1 + expected, rel=1e-6)
    assert penalty(model, 0) is None
    assert with_penalty(torch.tensor(1.0), model, 0).item() == 1.0


def test_the_coefficient_is_constant_or_grows_exponentially() -> None:
    assert [coefficient(step, 0.1) for step in (0, 10**6)] == [0.1, 0.1]
    assert coefficient(0, 0.5, 0.01, 1e-3) == pytest.approx(0.01)
    assert coefficient(100, 0.5, 0.01, 1e-3) == pytest.approx(math.exp(0.1) - 1 + 0.01)
    assert coefficient(100, 0.5, 0.0, 1e-3) == pytest.approx(math.exp(0.1) - 1)
    assert coefficient(10**9, 0.5, 0.01, 1e-3) == 0.5
    module = make(max_coeff=1.0, exp_rate=1e-3)
    module(torch.randn(1, 2, WIDTH), training=True)
    first = module.penalty(0)
    assert first is not None
    assert first.item() == 0


def test_statistics_are_those_of_the_masks() -> None:
    module = spread(make(shift_init=1.0))
    counted = MaskStatistics()
    module.statistics = (counted,)
    xs = [torch.randn(2, 5, WIDTH), torch.randn(4, 3, WIDTH)]
    kept = torch.cat([(module(x, training=False) != 0).flatten() for x in xs])
    values = torch.cat([module.values(x).flatten() for x in xs]).detach().double()
    expected = {
        "entropy": float((-values * torch.log2(values + 1e-9)).mean()),
        "l1_norm": float((values**2 / 2).mean()),
        "near_one": float((values > 0.9).double().mean()),
        "near_zero": float((values < 0.1).double().mean()),
        "active": float(kept.view(-1, WIDTH).any(dim=1).double().mean()),
        "kept": float(kept.double().mean()),
    }
    assert counted.means() == pytest.approx(expected, rel=1e-5)
    assert mean_statistics({"a": counted, "b": counted}) == pytest.approx(expected, rel=1e-5)
    assert mean_statistics({}) == {}
    assert math.isnan(MaskStatistics().means()["kept"])


@pytest.mark.parametrize("rounding", ["noise-and-linear", "sigmoid", "sigmoid-detach", "none"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_keeps_its_dtype_and_an_exact_mask(dtype: torch.dtype, rounding: Any) -> None:
    module = spread(make(mask_rounding=rounding, shift_init=1.0)).to(dtype)
    x = torch.randn(2, 5, WIDTH, dtype=dtype, requires_grad=True)
    out = module(x, training=True)
    extra = module.penalty(0)
    assert extra is not None
    (out.float().sum() + extra).backward()
    assert out.dtype == dtype
    if rounding == "noise-and-linear":
        assert torch.equal(out, torch.where(out != 0, x, torch.zeros_like(x)))
    for tensor in (x, *module.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rounding", ["noise-and-linear", "sigmoid", "sigmoid-detach", "none"])
def test_nan_is_never_hidden(rounding: Any, training: bool) -> None:
    x = torch.randn(2, 5, WIDTH)
    x[0, 2, 3] = float("nan")
    out = make(mask_rounding=rounding)(x, training=training, causal=True)
    assert out[0, 2:].isnan().all()  # the masks of these tokens depend on it
    assert out[1].isfinite().all()


def test_an_empty_batch_and_a_single_token() -> None:
    module = make()
    out = module(torch.zeros(0, 5, WIDTH, requires_grad=True), training=True)
    extra = module.penalty(0)
    assert out.shape == (0, 5, WIDTH)
    assert extra is not None
    assert extra.item() == 0
    (out.sum() + extra).backward()
    assert module(torch.randn(1, 1, WIDTH), training=True).shape == (1, 1, WIDTH)
    assert entropy(torch.tensor([0.0, 1.0])).item() == pytest.approx(0, abs=1e-8)


def test_passes_whose_penalty_nobody_asks_for_end_in_an_error_not_in_full_memory() -> None:
    module, x = make(width=4, heads=1), torch.randn(1, 2, 4)
    for _ in range(MAX_PENDING):
        module(x, training=True)
    with pytest.raises(InputError, match="were never collected"):
        module(x, training=True)
    silent = make(width=4, heads=1, l1_norm_penalty="none")
    for _ in range(MAX_PENDING + 1):
        silent(x, training=True)


def test_a_penalty_without_gradient_is_an_error() -> None:
    module = make()
    with torch.no_grad():
        module(torch.randn(1, 2, WIDTH), training=True)
    with pytest.raises(InputError, match="use_reentrant=False"):
        module.penalty(0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ratio": 0.3}, "unknown parameter of learned-dropout 'ratio'"),
        ({"mask_rounding": "NOISE_AND_LINEAR"}, "mask_rounding=NOISE_AND_LINEAR: input should be 'noise-and-linear'"),
        ({"shift_init": 3.2}, "shift_init=3.2: input should be less than or equal to 3.14"),
        ({"shift_init": -0.1}, "shift_init=-0.1: input should be greater than or equal to 0"),
        ({"sigmoid_scale": 10.0}, "sigmoid_scale is for the sigmoid roundings, not for 'noise-and-linear'"),
        ({"evaluation": "probabilistic", "mask_rounding": "none"}, "probabilistic evaluation needs"),
        ({"dropout_input": "embed", "where": "everywhere"}, "dropout_input=embed is for where=feed-forward"),
        ({"min_coeff": 0.05}, "min_coeff needs an exp_rate above 0"),
        ({"min_coeff": 0.5, "exp_rate": 0.01}, "min_coeff=0.5 is not below max_coeff=0.1"),
        ({"exp_rate": 1.0}, "exp_rate=1.0: input should be less than 1"),
        ({"max_coeff": 0.0}, "max_coeff=0.0: input should be greater than 0"),
        ({"harmonics": 0}, "harmonics=0: input should be greater than or equal to 1"),
    ],
)
def test_impossible_settings_are_one_clear_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        build_regularizer("learned-dropout", **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
