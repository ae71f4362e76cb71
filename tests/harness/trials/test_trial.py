"""Trials: identity, canonical form, what is refused."""

from __future__ import annotations

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropbench.harness.errors import InputError
from dropbench.harness.files import canonical_json
from dropbench.harness.regularizers.spec import complete_spec
from dropbench.harness.trials.trial import DataRef, Trial, WeightsRef


def make(**changes: object) -> Trial:
    fields = {
        "task": "text-classification",
        "data": DataRef(name="trec", fingerprint="0123456789ab"),
        "model": "text-transformer",
        "regularizer": complete_spec("dropkey", {"ratio": 0.3}),
        "preset": "mini",
        "recipe": {"epochs": 1, "lr": 0.001},
        "seed": 0,
    }
    return Trial.model_validate({**fields, **changes})


def test_the_id_is_stable_across_versions() -> None:
    """Ids are in users' databases and run directories: a change here orphans every one of them."""
    assert make().id == "8951aacbfd0e"


def test_what_is_left_at_its_default_is_the_same_trial() -> None:
    assert make(regularizer=complete_spec("dropkey", {"ratio": 0.3, "window": 1})).id == make().id
    assert make(recipe={"lr": 0.001, "epochs": 1}).id == make().id


@pytest.mark.parametrize(
    "change",
    [
        {"data": DataRef(name="trec", fingerprint="ffffffffffff")},
        {"schedule": "decreasing"},
        {"recipe": {"epochs": 2, "lr": 0.001}},
        {"regularizer": complete_spec("dropkey", {"ratio": 0.31})},
        {"plugins": {"my.py": "abc"}},
        {"weights": WeightsRef(path="a.pt", digest="00")},
        {"result_versions": {"engine": 7}},
    ],
)
def test_what_determines_a_number_changes_both_ids(change: dict[str, object]) -> None:
    assert make(**change).id != make().id
    assert make(**change).config_id != make().config_id


@settings(max_examples=20)
@given(seed=st.integers(0, 2**31 - 1), note=st.text())
def test_copies_that_differ_in_their_seed_are_the_trials_that_they_look_like(seed: int, note: str) -> None:
    first = make(recipe={"note": note, "seed": 7, "task": ',"seed":1,'})
    copy = first.model_copy(update={"seed": seed})
    whole = {**first.config(), "seed": seed}
    assert copy.id == hashlib.sha256(canonical_json(whole).encode()).hexdigest()[:12]
    assert copy.id == Trial.from_json(copy.to_json()).id
    assert copy.config_id == first.config_id == hashlib.sha256(canonical_json(first.config()).encode()).hexdigest()[:12]
    other = copy.model_copy(update={"model": "another"})
    assert (other.id, other.config_id) == (
        Trial.from_json(other.to_json()).id,
        Trial.from_json(other.to_json()).config_id,
    )


def test_where_initial_weights_and_data_lie_is_no_part_of_the_identity() -> None:
    first, second = (make(weights=WeightsRef(path=path, digest="00")) for path in ("a.pt", "b/a.pt"))
    assert first.id == second.id
    moved = make(data=DataRef(name="trec", fingerprint="0123456789ab", path="/data/trec"))
    assert (moved.id, Trial.from_json(moved.to_json())) == (make().id, moved)
    assert "path" not in make().to_json()


@given(seed=st.integers(0, 2**31 - 1), lr=st.floats(1e-8, 1e3), name=st.text(min_size=1))
def test_json_round_trip_keeps_the_id(seed: int, lr: float, name: str) -> None:
    trial = make(seed=seed, recipe={"lr": lr, "note": name})
    again = Trial.from_json(trial.to_json())
    assert again == trial
    assert again.id == trial.id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sed": 1}, "unknown field in t.json 'sed': did you mean seed"),
        ({"seed": -1}, "t.json: seed=-1"),
        ({"recipe": None}, "t.json: recipe"),
    ],
)
def test_a_wrong_file_is_one_line(change: dict[str, object], message: str) -> None:
    content = {**json.loads(make().to_json()), **change}
    with pytest.raises(InputError, match=message):
        Trial.from_json(json.dumps(content), where="t.json")


@pytest.mark.parametrize("text", ["", "{", "[]", "nul", '{"task": "x"}'])
def test_a_cut_file_is_one_line(text: str) -> None:
    with pytest.raises(InputError, match=r"^t.json: ") as caught:
        Trial.from_json(text, where="t.json")
    assert "\n" not in str(caught.value)
