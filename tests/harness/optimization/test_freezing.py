"""Frozen parameters: patterns of their names, and normalizations that keep their statistics."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dropbench import InputError
from dropbench.harness.optimization.freezing import freeze, matching
from tests.input_errors import one_line

NAMES = ["encoder.layer.1.bias", "encoder.layer.10.bias", "encoder.layer.2.weight", "embeddings.word.weight"]


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [
        ("layer.1", [0]),
        ("layer.[12]", [0, 2]),
        ("layer.*", [0, 1, 2]),
        ("bias", [0, 1]),
        ("embed*", [3]),
        ("encoder", [0, 1, 2]),
        ("embeddings.word.weight", [3]),
    ],
)
def test_a_pattern_matches_whole_parts_of_names(pattern: str, matched: list[int]) -> None:
    assert matching(pattern, NAMES) == [NAMES[index] for index in matched]


@pytest.mark.parametrize(("pattern", "near"), [("layer.11", "layer.1"), ("embedings", "embeddings"), ("a.b.c.d.e", "")])
def test_a_pattern_that_matches_nothing_is_an_error(pattern: str, near: str) -> None:
    with one_line(f"unknown part of a parameter's name '{pattern}': .*{near}"):
        matching(pattern, NAMES)


def test_frozen_parameters_have_no_gradients_and_frozen_statistics_stay() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2))
    freeze(model, ["0", "1"])
    model.train()(torch.randn(2, 3, 4, 4)).sum().backward()
    assert [parameter.grad is not None for parameter in model.parameters()] == [False] * 4 + [True] * 4
    frozen, trained = model[1], model[3]
    assert isinstance(frozen, nn.BatchNorm2d)
    assert isinstance(trained, nn.BatchNorm2d)
    assert frozen.running_mean is not None
    assert torch.equal(frozen.running_mean, torch.zeros(4))
    assert trained.running_mean is not None
    assert trained.running_mean.abs().sum() > 0


def test_something_is_left_to_train() -> None:
    with pytest.raises(InputError, match=r"^freeze=0: nothing is left to train"):
        freeze(nn.Sequential(nn.Linear(2, 2)), ["0"])
