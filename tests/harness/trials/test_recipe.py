"""Recipes: what wins over what, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.trials.recipe import Recipe, complete_recipe


def test_later_layers_win_and_model_options_merge() -> None:
    layers: list[dict[str, Any]] = [
        {"epochs": 3, "lr": 0.1, "model": {"depth": 2, "dim": 8}},
        {"lr": 0.2, "model.depth": 4},
    ]
    recipe = complete_recipe(Recipe, layers)
    assert (recipe.epochs, recipe.lr, recipe.model) == (3, 0.2, {"depth": 4, "dim": 8})


def test_steps_replace_epochs() -> None:
    assert complete_recipe(Recipe, [{"epochs": 3}, {"steps": 7}]).epochs is None


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"epochs": 1, "learning_rate": 1}, "unknown recipe key 'learning_rate'"),
        ({"epochs": 1, "batchsize": 1}, "did you mean batch_size"),
        ({"epochs": 0}, "epochs=0: input should be greater than or equal to 1"),
        ({"epochs": 1, "lr": -1}, "lr=-1: input should be greater than 0"),
        ({"epochs": 1, "lr": "fast"}, "lr=fast: input should be a valid number"),
        ({"epochs": 1, "lr": float("nan")}, "finite"),
        ({"epochs": 1, "batch_size": 10, "accumulate": 3}, "accumulate=3 does not divide batch_size=10"),
        ({"epochs": 1, "kinds": "cross,decoder"}, "kinds"),
        ({"epochs": 1, "model.depth": 100_000_000}, "depth=100000000: expected at most 1000"),
        ({"epochs": 1, "model.layers": "4,99999,8,2"}, "layers=4,99999,8,2: expected at most 1000"),
        ({"epochs": 1, "model.embed_dim": 10**11}, "embed_dim=100000000000: expected at most 1000000"),
        ({}, "expected either epochs or steps"),
        ({"epochs": 1, "steps": 2}, "expected either epochs or steps"),
    ],
)
def test_what_does_not_fit_is_one_line(layer: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        complete_recipe(Recipe, [layer])
    assert "\n" not in str(caught.value)


def test_the_options_of_a_model_are_no_single_value() -> None:
    with pytest.raises(InputError, match="recipe: model=3: input should be a valid dictionary"):
        complete_recipe(Recipe, [{"epochs": 1}, {"model": 3}])
