"""The learning rate as a function of the step, which parameters decay, and fused steps with scaled gradients."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from torch import nn

from dropbench.harness.trials.optimization import build_optimizer, clip_gradients, learning_rate, set_rate
from dropbench.harness.trials.recipe import Recipe


def test_warm_up_rises_in_a_line_and_the_cosine_falls_to_the_least_rate() -> None:
    recipe = Recipe(steps=100, lr=1.0, min_lr=0.1, warmup=10)
    rates = [learning_rate(recipe, step, 100) for step in range(101)]
    assert rates[:10] == pytest.approx([(step + 1) / 11 for step in range(10)])
    assert rates[10] == 1.0
    assert rates[55] == pytest.approx(0.1 + 0.9 * 0.5)
    assert rates[100] == pytest.approx(0.1)
    assert all(later <= earlier for earlier, later in itertools.pairwise(rates[10:]))


def test_a_warm_up_below_one_is_a_share_of_all_steps() -> None:
    share, steps = Recipe(steps=200, warmup=0.1), Recipe(steps=200, warmup=20)
    assert all(learning_rate(share, step, 200) == learning_rate(steps, step, 200) for step in range(200))


@pytest.mark.parametrize(
    ("schedule", "expected"), [("constant", 1.0), ("linear", 0.5), ("inverse-sqrt", math.sqrt(10 / 55))]
)
def test_other_schedules(schedule: str, expected: float) -> None:
    recipe = Recipe(steps=100, lr=1.0, warmup=10, lr_schedule=schedule)
    assert learning_rate(recipe, 55, 100) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_the_fall_may_end_elsewhere_than_the_training(schedule: str) -> None:
    whole = Recipe(steps=700, lr=1.0, min_lr=0.1, warmup=10, lr_schedule=schedule)
    part, more = (whole.model_copy(update={"steps": steps, "lr_decay_steps": 700}) for steps in (26, 900))
    assert all(learning_rate(part, step, 26) == learning_rate(whole, step, 700) for step in range(26))
    assert [learning_rate(more, step, 900) for step in (700, 899)] == pytest.approx([0.1, 0.1])
    share = Recipe(steps=20, lr=1.0, warmup=0.5, lr_decay_steps=700)
    assert learning_rate(share, 10, 20) == 1.0  # the warm-up's share is of the training


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_matrices_decay_and_vectors_do_not(optimizer: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    built = build_optimizer(model, Recipe(steps=1, weight_decay=0.05, optimizer=optimizer))
    decayed = {id(p) for group in built.param_groups if group["weight_decay"] == 0.05 for p in group["params"]}
    assert decayed == {id(model[0].weight)}
    assert sum(len(group["params"]) for group in built.param_groups) == 4


def test_the_end_of_the_decay_is_steps_or_a_share_of_them() -> None:
    by_steps, by_share = (Recipe(steps=40, lr=1.0, min_lr=0.1, lr_decay_steps=end) for end in (30, 0.75))
    rates = [learning_rate(by_share, step, 40) for step in range(40)]
    assert rates == [learning_rate(by_steps, step, 40) for step in range(40)]
    assert rates[29] > rates[30] == rates[39] == pytest.approx(0.1)


def test_a_backbone_has_a_rate_of_its_own_and_everything_may_decay() -> None:
    model = nn.ModuleDict({"backbone": nn.Linear(3, 4), "head": nn.Linear(4, 2)})
    plain = build_optimizer(model, Recipe(steps=1, lr=1.0, weight_decay=0.1))
    shared = build_optimizer(model, Recipe(steps=1, lr=1.0, weight_decay=0.1, backbone_lr=0.25, decay_all=True))
    backbone = {id(parameter) for parameter in model["backbone"].parameters()}
    for optimizer, share in ((plain, 1.0), (shared, 0.25)):
        set_rate(optimizer, 2.0)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                assert group["lr"] == 2.0 * (share if id(parameter) in backbone else 1.0)
                assert group["weight_decay"] == (0.1 if optimizer is shared or parameter.ndim == 2 else 0.0)
        assert sum(len(group["params"]) for group in optimizer.param_groups) == 4


def test_a_step_drops_to_a_tenth() -> None:
    share, step = (Recipe(steps=150, lr=1.0, lr_schedule="step", lr_drop=drop) for drop in (2 / 3, 100))
    rates = [learning_rate(share, number, 150) for number in range(150)]
    assert rates == [learning_rate(step, number, 150) for number in range(150)] == [1.0] * 100 + [0.1] * 50
    with pytest.raises(ValueError, match="expected lr_drop with lr_schedule=step"):
        Recipe(steps=1, lr_drop=0.5)
    with pytest.raises(ValueError, match="expected lr_drop with lr_schedule=step"):
        Recipe(steps=1, lr_schedule="step")


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_a_step_whose_gradients_overflowed_is_skipped(optimizer: str) -> None:
    Accelerator(cpu=True)  # the wrapper reads its state
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    weights = []
    for overflows in (False, True):
        model = nn.Linear(64, 64)
        for parameter in model.parameters():
            nn.init.constant_(parameter, 0.5)
        wrapped = AcceleratedOptimizer(build_optimizer(model, Recipe(steps=1, optimizer=optimizer)), scaler=scaler)
        for value in (*([torch.inf] if overflows else []), 1.0, 2.0):
            scaler.scale(model(torch.full((2, 64), value)).sum()).backward()
            wrapped.step()
            wrapped.zero_grad(set_to_none=True)
        weights.append(model.weight.detach().clone())
    assert torch.equal(*weights)


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "sgd"])
def test_parameters_may_get_their_first_gradient_late(optimizer: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    built = build_optimizer(model, Recipe(steps=1, optimizer=optimizer))
    for part in (model[0], model, model[0]):
        part(torch.ones(2, 3)).sum().backward()
        built.step()
        built.zero_grad(set_to_none=True)
    assert len(built.state) == 4


@pytest.mark.parametrize("factor", [0.5, 0.999999, 1.0, 1.000001, 3.0, math.inf, math.nan])
def test_gradients_are_clipped_as_torch_clips_them(factor: float) -> None:
    torch.manual_seed(0)
    gradients = [torch.randn(shape) for shape in ((40, 7), (3,))]
    gradients = [gradient / nn.utils.get_total_norm(gradients) * factor for gradient in gradients]
    own, theirs = ([nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients] for _ in range(2))
    for parameters in (own, theirs):
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient.clone()
        parameters.append(nn.Parameter(torch.zeros(2)))  # has no gradient
    clip_gradients(own, 1.0)
    nn.utils.clip_grad_norm_(theirs, 1.0)
    assert own[2].grad is None
    for mine, other in zip(own[:2], theirs[:2], strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=0, atol=0, equal_nan=True)
