"""Test the making of trials from requests."""

from __future__ import annotations

from typing import Any

import pytest

from dropbench.harness.models.catalog import MODELS
from dropbench.harness.trials.recipe import complete_recipe
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.data import DATASETS
from dropbench.tasks.preset_task import read_recipes, recipe_layers
from tests.input_errors import one_line
from tests.tasks.making import trial_of


def make(**fields: Any) -> Trial:
    """Make and check a trial as before it is queued."""
    return trial_of(**{"task": "image-classification", "data": "digits", "model": "vit-digits", **fields})


def test_the_recipe_is_preset_then_data_then_overrides() -> None:
    trial = make(overrides={"epochs": 2, "model.depth": 3})
    recipes = read_recipes("image-classification")
    assert trial.recipe["weight_decay"] == recipes["presets"]["mini"]["weight_decay"]
    assert trial.recipe["image_size"] == recipes["data"]["digits"]["mini"]["image_size"] == 8
    assert trial.recipe["epochs"] == 2
    assert trial.recipe["model"] == {"depth": 3}
    assert trial.overrides == {"epochs": 2, "model.depth": 3}


def test_a_trial_without_regularizer_has_no_schedule_and_is_never_fine_tuned() -> None:
    plain, aligned = make(), make(align="finetune", schedule="decreasing", overrides={"finetune_epochs": 3})
    assert aligned.align == "none"
    assert "finetune_epochs" not in {**aligned.recipe, **aligned.overrides}
    assert aligned.id == plain.id
    dropkey = make(regularizer="dropkey", align="finetune", overrides={"finetune_epochs": 3})
    assert dropkey.recipe["finetune_epochs"] == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": "text-transformer"}, "does not support task 'image-classification'"),
        ({"data": "trec-synthetic"}, "belong to task 'text-classification'"),
        ({"schedule": "decresing"}, "did you mean decreasing"),
        ({"align": "fintune"}, "finetune"),
        (
            {"preset": "small", "task": "object-detection", "data": "coco-synthetic", "model": "detr"},
            "unknown preset of object-detection 'small'.*mini",
        ),
        ({"overrides": {"model.dept": 1}}, "unknown option of model vit-digits 'dept': did you mean depth"),
        ({"overrides": {"model.num_heads": 7}}, "model vit-digits with {'num_heads': 7}"),
        ({"overrides": {"image_size": 9, "model.depth": 1}}, "9×9"),
        ({"regularizer": "dropkey", "params": {"window": 18}}, "window=18: longer than the 17 keys"),
        ({"regularizer": "dropkey-cross", "params": {"window": 5}}, "window=5: longer than the 4 keys"),
    ],
)
def test_an_invalid_request_raises_an_error_of_one_line(fields: dict[str, Any], message: str) -> None:
    with one_line(message):
        make(**fields)


def test_a_model_with_many_tokens_is_reported_once(capsys: pytest.CaptureFixture[str]) -> None:
    for size, seed in ((8, 0), (224, 0), (224, 1)):
        make(overrides={"image_size": size, "lr": 0.01 + seed})
    line = "vit-digits: 12,544 tokens per image are slow: pass `--set image_size=64` or smaller\n"
    assert capsys.readouterr().err == line


SMALL = set(TASKS) - {"object-detection", "interaction-detection", "mesh-recovery"}
"""The tasks with a preset for two cores."""


@pytest.mark.parametrize(
    ("task", "preset"),
    [(task, preset) for task in TASKS for preset in ("mini", "small", "paper") if preset != "small" or task in SMALL],
)
def test_every_recipe_of_every_model_and_data_set_is_complete(task: str, preset: str) -> None:
    """Every pair of model and data set has a complete recipe without overrides."""

    kind = TASKS.get(task).recipe_type
    pairs = [
        (data, model)
        for data in DATASETS
        for model in MODELS
        if DATASETS.get(data).kind == task and task in MODELS.entry(model).facts["tasks"]
    ]
    assert pairs
    for data, model in pairs:
        recipe = complete_recipe(kind, [*recipe_layers(read_recipes(task), task, preset, data, model)])
        assert recipe.batch_size > 0
        # No paper that fine-tunes averages weights, and a few hundred steps are too short for it.
        assert model != "transformers-encoder" or recipe.ema is None


@pytest.mark.parametrize("task", list(TASKS))
def test_recipes_name_only_models_and_data_that_exist(task: str) -> None:
    content = read_recipes(task)
    deviations = content.get("deviations", {})
    assert set(content) <= {"presets", "models", "data", "pairs", "deviations"}
    assert set(deviations) <= {"all", "models", "data", "pairs"}
    for part in (content, deviations):
        pairs = [pair.split(" on ") for pair in part.get("pairs", {})]
        assert {*part.get("data", {}), *(data for _, data in pairs)} <= {*DATASETS}
        assert {*part.get("models", {}), *(model for model, _ in pairs)} <= {*MODELS}
