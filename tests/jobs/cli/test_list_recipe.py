"""`dropbench list recipe`: the keys of every task and model, and the nearest to one that does not exist."""

from __future__ import annotations

import json

import pytest

from dropbench.harness.cli.main import run
from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.settings import Settings
from dropbench.harness.trials.plugins import make_trials
from dropbench.harness.trials.recipe import FILLED_IN
from dropbench.harness.trials.task import TASKS, spec_of
from dropbench.harness.trials.trial import TrialRequest
from dropbench.tasks.data import DATASETS
from dropbench.tasks.recipe_keys import recipe_keys


@pytest.mark.parametrize("task", TASKS)
def test_every_key_of_a_task_has_a_type_and_a_meaning(task: str) -> None:
    rows = recipe_keys(task)
    assert [row["key"] for row in rows if not (row["type"] and row["meaning"] and row["default"])] == []
    keys = {row["key"].partition(".")[0] for row in rows}
    fields = spec_of(task).recipe_type.model_fields
    settable = {key for key in fields if not key.endswith(FILLED_IN)}
    assert keys == settable - {"model"}


@pytest.mark.parametrize("name", MODELS)
def test_the_options_of_a_model_follow(name: str) -> None:
    options = MODELS.get(name, "options").model_fields  # type: ignore[attr-defined]
    keys = {row["key"] for task in MODELS.entry(name).facts["tasks"] for row in recipe_keys(task, name)}
    assert keys >= {f"model.{option}" for option in options}


def test_keys_that_a_model_always_refuses_are_left_out() -> None:
    task = "text-classification"
    models = "", "transformers-encoder", "bert-tiny"
    keys, own, words = ({row["key"] for row in recipe_keys(task, model)} for model in models)
    of_words = {"min_count", "lowercase", "vectors", "freeze_vectors", "features"}
    assert (keys - own, keys - words) == (of_words, set())
    assert "model.head_dropout" in own
    assert "model.pairs" not in own
    assert "model.pairs" in {row["key"] for row in recipe_keys("textual-entailment", "transformers-encoder")}


def test_the_defaults_are_those_of_each_preset_and_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "recipe", "text-classification", "transformers-encoder", "--json"]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["lr"]["default"] == {"paper": 2e-5, "mini": 5e-5, "small": 5e-5}
    assert rows["warmup"] == {
        "key": "warmup", "type": "number", "default": dict.fromkeys(("paper", "mini", "small"), 0.1), "unit": "steps",
        "meaning": "linear warm-up, or a share of all steps if below 1",
    }  # fmt: skip
    assert rows["model.pooling"]["type"] == "mean, max, first"
    assert run(["list", "recipe", "text-classification"]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert lines["lr"][1:4] == ["0.0005", "0.001", "0.0005"]
    assert "model.pairs" not in lines


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["recipe"], "list recipe: expected a TASK: run `dropbench list tasks`"),
        (["recipe", "text-clasification"], "did you mean text-classification"),
        (["recipe", "text-classification", "bert-tin"], "did you mean bert-tiny"),
        (["models", "bert-tiny", "more"], "expected one name"),
    ],
)
def test_wrong_names_are_errors(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(("key", "near"), [("weight_deca", "weight_decay"), ("lora.rr", "r"), ("model.", "")])
def test_the_nearest_keys_of_an_unknown_one_are_named(task: str, key: str, near: str) -> None:
    model = next(name for name in MODELS if task in MODELS.entry(name).facts["tasks"])
    data = next(name for name in DATASETS if DATASETS.get(name).kind == task and DATASETS.get(name).synthetic)
    if key == "model.":
        near = next(iter(MODELS.get(model, "options").model_fields))  # type: ignore[attr-defined]
        key += f"{near}x"
    request = TrialRequest(task=task, data=f"{data}-synthetic", model=model, overrides={key: 1})

    def make() -> None:
        TASKS.get(task).check(make_trials(request, [0], Settings())[0])

    with pytest.raises(InputError, match=f"did you mean .*{near}"):
        make()
