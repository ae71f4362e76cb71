"""Result versions: where they are declared, how they enter a trial, and what is said of earlier ones."""

from __future__ import annotations

from typing import Any

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.regularizers.drop import UnitDrop
from dropbench.harness.settings import Settings
from dropbench.harness.trials import result_versions
from dropbench.harness.trials.plugins import make_trials
from dropbench.harness.trials.result_versions import ENGINE, check_versions, version_note
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.jobs.cli.listing import list_items, regularizer_item

REQUEST = TrialRequest(
    task="image-classification", data="digits", model="vit-digits", regularizer="drophead+dropkey", params={}
)


def make() -> Trial:
    (trial,) = make_trials(REQUEST, [0], Settings())
    return trial


@pytest.fixture
def raised(monkeypatch: pytest.MonkeyPatch) -> Trial:
    """The trial of `make` after two increases of the regularizer and one of everything else."""
    monkeypatch.setattr(result_versions, "ENGINE", ENGINE + 1)
    monkeypatch.setattr(spec_of(REQUEST.task), "result_version", 2, raising=False)
    monkeypatch.setitem(MODELS.entry("vit-digits").facts, "result_version", 3)
    monkeypatch.setattr(UnitDrop, "result_version", 3)
    return make()


def test_versions_of_one_are_no_part_of_a_trial() -> None:
    trial = make()
    assert (trial.result_versions, trial.result_versions_text, version_note(trial)) == ({}, None, None)
    assert "result_versions" not in trial.config()
    assert "result_versions" not in trial.to_json()


def test_only_trials_with_an_augmentation_have_its_version() -> None:
    overrides = {"randaugment": "rand-m1-n1", "erase": 0.0}
    [trial] = make_trials(REQUEST.model_copy(update={"overrides": overrides}), [0], Settings())
    assert trial.result_versions == {"augmentation randaugment": 2}
    assert version_note(trial) is None
    earlier = trial.model_copy(update={"result_versions": {}})
    assert earlier.id != trial.id
    assert version_note(earlier) == "trained with result version 1 of augmentation randaugment; version 2 is current"


def test_the_engine_of_the_shipped_reference_has_version_0() -> None:
    old = make().model_copy(update={"result_versions": {"engine": 0}})
    assert old.id != make().id
    assert Trial.from_json(old.to_json()) == old
    assert old.result_versions_text == "engine 0"
    assert version_note(old) == f"trained with result version 0 of engine; version {ENGINE} is current"


def test_each_item_has_its_own_version(raised: Trial) -> None:
    expected = {"engine": ENGINE + 1, "model vit-digits": 3, "regularizer dropkey": 3, "task image-classification": 2}
    assert raised.result_versions == expected
    assert raised.result_versions_text == ", ".join(f"{item} {version}" for item, version in expected.items())
    again = Trial.from_json(raised.to_json())
    assert (again, again.id) == (raised, raised.id)
    draft = spec_of(REQUEST.task).draft_for(REQUEST)
    assert draft is not None
    assert draft.result_versions == expected


def test_a_trial_of_another_version_is_refused(raised: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    check_versions(raised)
    old = raised.model_copy(update={"result_versions": {**raised.result_versions, "regularizer dropkey": 2}})
    note = "trained with result version 2 of regularizer dropkey; version 3 is current"
    assert version_note(old) == note
    with pytest.raises(
        InputError, match=r"^requested with result version 2 of .*: enqueue it again, as another trial$"
    ):
        check_versions(old)
    monkeypatch.undo()
    with pytest.raises(InputError, match=f"version {ENGINE + 1} of engine; version {ENGINE} is current"):
        check_versions(raised)


def test_raised_versions_are_listed(raised: Trial) -> None:
    def listed(kind: str) -> dict[str, Any]:
        return {item["name"]: item["result_version"] for item in list_items(kind) if "result_version" in item}

    assert listed("tasks")["image-classification"] == 2
    assert "textual-entailment" not in listed("tasks")
    assert listed("models")["vit-digits"] == 3
    assert "volo-cifar" not in listed("models")
    assert {"dropkey", "dropout"} <= listed("regularizers").keys()
    assert regularizer_item("dropkey")["result_version"] == 3


@pytest.mark.parametrize("version", [1, -1, "a", 2.5])
def test_only_versions_that_are_not_one_are_stored(version: object) -> None:
    content = {**make().model_dump(), "result_versions": {"engine": version}}
    with pytest.raises(ValueError, match="result_versions"):
        Trial.model_validate(content)
