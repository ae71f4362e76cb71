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


@pytest.mark.parametrize("shift", [0.0, math.pi / 2, math.pi])
def test_what_is_kept_at_the_start_follows_from_the_shift(shift: float) -> None:
    module = make(shift_init=shift)
    x = torch.randn(60, 40, WIDTH)
    with torch.no_grad():
        # With the initial weights, attention's output is far below 1: M = cos²(B/2) but for what it adds.
        attention = torch.nn.MultiheadAttention(WIDTH, HEADS, bias=False, batch_first=True)
        assert attention.in_proj_weight is not None
        attention.in_proj_weight.copy_(module.qkv.weight)
        attention.out_proj.weight.copy_(torch.eye(WIDTH))
        angle = attention(x, x, x, need_weights=False)[0]
        expected = torch.cos((angle + shift) / 2).square()
        assert expected.mean().item() == pytest.approx(math.cos(shift / 2) ** 2, abs=0.02)
        counted = MaskStatistics()
        module.statistics = (counted,)
        for _ in range(20):
            module(x, training=True)
    kept = counted.means()["kept"]
    draws = counted.elements
    assert draws == 20 * x.numel() > 10**6
    error = math.sqrt((expected * (1 - expected)).mean().item() / draws)
    assert abs(kept - expected.mean().item()) < 4 * error + 1e-7


def test_evaluation_is_deterministic_by_the_threshold() -> None:
    module = spread(make(shift_init=1.5))
    x = torch.randn(3, 7, WIDTH)
    torch.manual_seed(1)
    first = module(x, training=False)
    torch.manual_seed(2)
    assert torch.equal(first, module(x, training=False))
    values = module.values(x)
    assert torch.equal(first, torch.where(values >= 0.5, x, torch.zeros_like(x)))
    assert 0.1 < (values >= 0.5).float().mean().item() < 0.9
    assert module.rounded(torch.tensor([0.5]), training=False).item() == 1.0


def test_probabilistic_evaluation_draws_as_training_does() -> None:
    module = spread(make(shift_init=1.5, evaluation="probabilistic"))
    x = torch.randn(3, 7, WIDTH)
    torch.manual_seed(1)
    first = module(x, training=False)
    assert not torch.equal(first, module(x, training=False))
    torch.manual_seed(1)
    assert torch.equal(first, module(x, training=True))


def test_a_causal_mask_knows_nothing_of_later_tokens_and_padding_is_never_seen() -> None:
    module = spread(make(mask_rounding="none"))
    x = torch.randn(2, 6, WIDTH)
    changed = x.clone()
    changed[:, 4:] += 1
    causal = [module(value, training=False, causal=True) for value in (x, changed)]
    assert torch.equal(causal[0][:, :4], causal[1][:, :4])
    free = [module(value, training=False) for value in (x, changed)]
    assert not torch.allclose(free[0][:, :4], free[1][:, :4])
    real = torch.arange(6)[None, None, None, :] < 4
    padded = [module(value, training=False, mask=real) for value in (x, changed)]
    assert torch.equal(padded[0][:, :4], padded[1][:, :4])
    additive = torch.zeros(real.shape).masked_fill(~real, float("-inf"))
    torch.testing.assert_close(module(x, training=False, mask=additive), padded[0])


def test_a_fourier_series_of_one_term_is_the_cosine_and_any_stays_between_0_and_1() -> None:
    x = torch.randn(4, 9, WIDTH)
    cosine, series = make(shift_init=0.4), make(shift_init=0.4, harmonics=4)
    torch.testing.assert_close(cosine.values(x), series.values(x))
    with torch.no_grad():
        series.amplitude.normal_()
        series.shift.normal_()
        series.qkv.weight.mul_(60)
        values = series.values(x)
    assert values.min().item() >= -1e-6
    assert values.max().item() <= 1 + 1e-6
    assert (values - cosine.values(x)).abs().max().item() > 0.1


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


def test_penalties_are_means_over_elements_of_the_unrounded_mask() -> None:
    x = torch.randn(2, 5, WIDTH)
    for kind in ("squared", "linear"):
        module = spread(make(l1_norm_penalty=kind, max_coeff=0.3, entropy_penalty=True, entropy_max_coeff=0.2))
        values = module.values(x).detach()
        module(x, training=True)
        actual = module.penalty(0)
        assert actual is not None
        norms = values**2 / 2 if kind == "squared" else values.abs()
        expected = 0.3 * norms.mean() + 0.2 * (-values * torch.log2(values + 1e-9)).mean()
        torch.testing.assert_close(actual, expected)
        assert module.penalty(0) is None  # it was taken


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
