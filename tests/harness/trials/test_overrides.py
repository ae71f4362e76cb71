"""The same value has one spelling in a trial, whatever the user wrote, so that nothing is trained twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dropbench
from dropbench.db.reference.load import REFERENCE, open_reference
from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import Configs
from dropbench.db.store.rows import load_trial
from dropbench.harness.cli.main import run
from dropbench.harness.errors import InputError
from dropbench.harness.files import canonical_json
from dropbench.harness.regularizers.spec import parse_scalar
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials.overrides import checked_overrides
from dropbench.harness.trials.plugins import make_trials
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import Trial, TrialRequest

DIGITS: dict[str, Any] = {"task": "image-classification", "data": "digits", "model": "vit-digits"}
WORDS = ("--task", "image-classification", "--data", "digits", "--model", "vit-digits")
SUITE = """
title: Mine
source: these tests
metric: accuracy
trial: {task: image-classification, data: digits, model: vit-digits}
rows:
  - {label: dropkey, trial: {regularizer: dropkey}, sweep: {ratio: [1e-1]}}
  - {label: none, baseline: true, trial: {regularizer: none, overrides: {lr: 1e-3}}}
columns: [{label: Digits}]
presets:
  mini: {seeds: 1, overrides: {steps: 2, weight_decay: 0}}
"""


def make(model: str = "vit-digits", **fields: Any) -> Trial:
    return make_trials(TrialRequest(**{**DIGITS, "model": model, **fields}), [0], Settings())[0]


@pytest.mark.parametrize(
    ("key", "spellings", "value"),
    [
        ("steps", (2, 2.0, "2", "2.0"), 2),
        ("weight_decay", (0, 0.0, "0", "0.0", "0e0"), 0.0),
        ("lr", (0.001, "1e-3", ".001", "1.0E-3"), 0.001),
        ("flip", (True, "true", 1), True),
        ("kinds", ("encoder-self,layer", "layer,encoder-self", "layer,encoder-self,layer"), "encoder-self,layer"),
        ("token_labels", ("none",), "none"),
        ("model.depth", (2, 2.0, "2"), 2),
        ("model.drop_path_rate", (0, 0.0, "0"), 0.0),
        ("model.class_token", (True, "true", 1), True),
    ],
)
def test_a_value_is_converted_to_the_type_of_its_key(key: str, spellings: tuple[Any, ...], value: Any) -> None:
    trials = [make(regularizer="dropkey", overrides={key: spelling}) for spelling in spellings]
    assert {canonical_json(trial.overrides) for trial in trials} == {canonical_json({key: value})}
    assert len({trial.id for trial in trials}) == 1


def test_parameters_of_regularizers_have_the_types_of_their_fields() -> None:
    spellings: list[dict[str, Any]] = [{"ratio": 0, "window": 2.0}, {"ratio": "0", "window": "2"}]
    assert len({make(regularizer="dropkey", params=params).id for params in spellings}) == 1


def test_options_of_a_model_without_types_are_integers_where_they_can_be() -> None:
    @dropbench.MODELS.register("untyped")
    def build(name: str, options: dict[str, Any], **sizes: Any) -> Any:
        raise NotImplementedError

    try:
        trials = [make("untyped", overrides={"model.width": width}) for width in (2, 2.0, 2.5)]
        assert [trial.overrides for trial in trials] == [{"model.width": 2}, {"model.width": 2}, {"model.width": 2.5}]
        assert isinstance(trials[1].recipe["model"]["width"], int)
    finally:
        del dropbench.MODELS._entries["untyped"]


@pytest.mark.parametrize("text", ["2_0", "1_0.5", "٣", "inf", "nan", "1e5_0"])
def test_a_number_in_other_digits_is_refused(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_scalar(text) == text
    for fields in ({"overrides": {"steps": text}}, {"regularizer": "dropkey", "params": {"window": text}}):
        with pytest.raises(ValueError, match="plain digits"):
            TrialRequest(**DIGITS, **fields)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DROPBENCH_DB", f"sqlite:///{tmp_path}/d.db")
    for words in (
        (*WORDS, "--set", f"steps={text}"),
        (*WORDS, "--regularizer", f"dropkey:window={text}"),
        ("quickstart", "--sweep", f"window=1,{text}"),
    ):
        assert run(["enqueue", *words]) == 2
    with pytest.raises(InputError, match="plain digits"):
        dropbench.run(**DIGITS, set={"steps": text})


def test_the_command_line_python_and_a_suite_make_the_same_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DROPBENCH_DB", f"sqlite:///{tmp_path}/d.db")
    (tmp_path / "mine.yaml").write_text(SUITE)
    assert run(["enqueue", "mine.yaml", "--json"]) == 0
    added = set(json.loads(capsys.readouterr().out)["added"])
    found = set[str]()
    for lr in ("0.001", "1e-3"):
        words = (*WORDS, "--set", "steps=2.0", "--set", f"lr={lr}", "--set", "weight_decay=0.0")
        assert run(["enqueue", *words, "--json"]) == 0
        found.update(json.loads(capsys.readouterr().out)["present"])
    assert run(["enqueue", *WORDS, "--set", "steps=2", "--set", "weight_decay=0", "--regularizer", "dropkey:ratio=1e-1",
                "--json"]) == 0  # fmt: skip
    found.update(json.loads(capsys.readouterr().out)["present"])
    assert found == added
    assert len(added) == 2
    assert run(["results", "lr<0.01", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 1


def test_requests_that_differ_in_spelling_have_equal_conditions() -> None:
    from dropbench.jobs.queue.request import request_suite

    suite = load_suite("quickstart")
    made = [
        request_suite(suite, SuiteOptions(overrides={"steps": steps}, seeds=(0,)), Settings()) for steps in (2, "2")
    ]
    assert made[0].request.conditions == made[1].request.conditions
    assert made[0].trials.keys() == made[1].trials.keys()


def test_the_shipped_results_have_the_spelling_that_their_ids_are_of() -> None:
    with open_reference(REFERENCE) as store, reading(store.engine) as connection:
        rows = connection.execute(Configs.select()).all()
    assert len(rows) > 100
    for row in rows:
        trial = load_trial(row.config, 0, None)
        assert trial.config_id == row.id
        kind = spec_of(trial.task).recipe_type
        assert canonical_json(checked_overrides(trial.overrides, kind, trial.recipe, trial.model)) == canonical_json(
            trial.overrides
        )


def test_every_shipped_suite_overrides_only_keys_that_are_read() -> None:
    from dropbench.harness.suites.suite import suite_names

    for name in suite_names():
        suite = load_suite(name)
        for preset in suite.presets:
            for cell in suite.cells(SuiteOptions(preset=preset)):
                draft = spec_of(cell.request.task).draft_for(cell.request)
                assert draft is not None
                kind = spec_of(cell.request.task).recipe_type
                checked_overrides(draft.overrides, kind, draft.recipe, draft.model)
