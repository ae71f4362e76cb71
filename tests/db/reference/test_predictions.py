"""Predictions in a file of reference results: kept, compared with the user's own, and validated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sqlalchemy import func, select

from docs.reference.collect import compact
from dropbench.db.reference.load import open_reference
from dropbench.db.reference.predictions import COLUMNS, load_reference_predictions
from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import Examples, Predicted
from dropbench.harness.errors import InputError
from dropbench.harness.predictions.schema import Predictions
from dropbench.harness.runs.predictions import load_predictions
from dropbench.harness.runs.run_directory import Runs
from tests.db.conftest import Call
from tests.db.reference.test_load import changed
from tests.docs.reference.given import EXAMPLES, campaign, extended, predictions


@pytest.fixture
def file(folder: Path) -> Path:
    campaign(folder / "theirs")
    extended(folder / "x.zip", folder / "theirs")
    return folder / "x.zip"


def test_classes_and_metrics_are_those_of_the_trials(file: Path, folder: Path) -> None:
    directories = list(Runs(folder / "theirs"))
    assert len(directories) == 10
    with open_reference(str(file)) as reference:
        for directory in directories:
            stored = load_predictions(directory, "test")
            kept = load_reference_predictions(reference, directory.id, "test")
            assert stored is not None
            assert kept is not None
            assert kept.header.trial == directory.id
            assert kept.metrics() == stored.metrics()
            assert kept.rows == [
                {key: value for key, value in row.items() if key in {"id", "index", *COLUMNS}} for row in stored.rows
            ]
            assert load_reference_predictions(reference, directory.id, "dev") is None


def test_the_examples_of_a_split_are_in_the_file_once(file: Path) -> None:
    with open_reference(str(file)) as reference, reading(reference.engine) as connection:
        counts = [connection.scalar(select(func.count()).select_from(table)) for table in (Examples, Predicted)]
    assert counts == [1, 10]


def test_a_trial_is_compared_with_one_of_the_reference(file: Path, folder: Path, call: Call) -> None:
    [own] = campaign(folder / "runs", ["none"], seeds=(1,))
    assert call("db", "rebuild").code == 0
    other = "regularizer=none origin=reference seed=4"
    done = call("compare", own.id, other, "--examples", "test", "--with", str(file), "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    [metric] = found["metrics"]
    assert (metric["only_a"], metric["only_b"], metric["n"]) == (0, 3, len(EXAMPLES))
    assert [row["index"] for row in found["disagreements"]] == [1, 2, 3]
    done = call("results", "regularizer=none seed=1", "--examples", "test", "--with", str(file))
    assert (done.code, done.out) == (2, "")
    assert "matches 2 configurations: expected one" in done.err
    done = call("results", other, "--examples", "dev", "--with", str(file))
    assert done.code == 2
    assert "of the reference has no predictions on dev" in done.err


def test_trials_that_are_present_get_predictions_that_the_file_lacks(file: Path, folder: Path) -> None:
    complete = file.read_bytes()
    changed(file, "DELETE FROM examples", "DELETE FROM predicted")
    assert extended(file, folder / "theirs").added == []
    assert file.read_bytes() == complete


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE examples SET targets = replace(targets, '[0,', '[2,')", "expected a class for each example"),
        ("UPDATE examples SET targets = replace(targets, '[0,', '[')", "expected a class for each example"),
        ("UPDATE examples SET ids = replace(ids, '000000000003', 'x')", "expected 6 ids"),
        ("UPDATE examples SET header = json_set(header, '$.rows', 7)", "expected 7 ids"),
        (f"UPDATE examples SET header = '{'[' * 100_000}'", "examples"),
        ("UPDATE predicted SET classes = replace(classes, '[1,', '[-1,')", "expected a class for each example"),
        ("UPDATE predicted SET classes = replace(classes, '[1,', '[true,')", "expected a class for each example"),
        ("UPDATE predicted SET split = 'dev'", "expected a class for each example"),
    ],
)
def test_damaged_predictions_are_one_line(file: Path, statement: str, message: str) -> None:
    changed(file, statement)
    with pytest.raises(InputError, match=message) as raised, open_reference(str(file)):
        pass
    assert str(raised.value).isprintable()


def test_predictions_of_a_trial_that_is_not_in_the_file_are_one_line(file: Path) -> None:
    changed(
        file, "UPDATE predicted SET trial_id = 'ffffffffffff' WHERE trial_id = (SELECT min(trial_id) FROM predicted)"
    )
    with pytest.raises(InputError, match="trial 'ffffffffffff' is not in"), open_reference(str(file)):
        pass


def test_what_is_no_list_of_classes_is_left_out(folder: Path) -> None:
    [trial] = campaign(folder / "runs", ["none"], seeds=(0,))
    full = predictions(trial)
    assert compact(full) is not None
    for change in ({"index": 7}, {"correct": 1}):
        assert compact(Predictions(full.header, [{**full.rows[0], **change}, *full.rows[1:]])) is None
    spans = full.header.model_copy(update={"columns": {**full.header.columns, "prediction": "classes"}})
    assert compact(Predictions(spans, full.rows)) is None
