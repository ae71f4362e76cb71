"""Predictions in a file of reference results: kept, compared with the user's own, and validated."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from db.reference.load import open_reference
from db.reference.predictions import COLUMNS, compact, load_reference_predictions
from harness.errors import InputError
from harness.predictions.schema import Predictions
from harness.runs.predictions import load_predictions
from harness.runs.run_directory import Runs
from tests.db.conftest import Call
from tests.db.reference.test_load import changed
from tests.docs.reference.given import EXAMPLES, campaign, extended, predictions


@pytest.fixture
def file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
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
    with zipfile.ZipFile(file) as archive:
        assert len(archive.read("examples.csv").splitlines()) == 2
        assert len(archive.read("predicted.csv").splitlines()) == 11


def test_a_trial_is_compared_with_one_of_the_reference(file: Path, folder: Path, call: Call) -> None:
    [own] = campaign(folder / "runs", ["none"], seeds=(1,))
    assert call("db", "rebuild").code == 0
    other = "regularizer=none origin=reference seed=4"
    done = call("predictions", own.id, other, "--with", str(file), "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    [metric] = found["metrics"]
    assert (metric["only_a"], metric["only_b"], metric["n"]) == (0, 3, len(EXAMPLES))
    assert [row["index"] for row in found["disagreements"]] == [1, 2, 3]
    done = call("predictions", "regularizer=none seed=1", "--with", str(file))
    assert (done.code, done.out) == (2, "")
    assert "matches 2 configurations: expected one" in done.err
    done = call("predictions", other, "--with", str(file), "--split", "dev")
    assert done.code == 2
    assert "of the reference has no predictions on dev" in done.err


def test_trials_that_are_present_get_predictions_that_the_file_lacks(file: Path, folder: Path) -> None:
    complete = file.read_bytes()
    for name in ("examples.csv", "predicted.csv"):
        changed(file, name, lambda content: content.splitlines(keepends=True)[0])
    assert extended(file, folder / "theirs").added == []
    assert file.read_bytes() == complete


def test_a_file_without_the_tables_is_one_of_an_earlier_version(file: Path, folder: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        members = {
            name: archive.read(name) for name in archive.namelist() if name not in ("examples.csv", "predicted.csv")
        }
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    with open_reference(str(file)) as reference:
        [id, *_] = reference.states()
        assert load_reference_predictions(reference, id, "test") is None


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("examples.csv", b"[0,", b"[2,", "expected a class for each example"),
        ("examples.csv", b"[0,", b"[", "expected a class for each example"),
        ("examples.csv", b"000000000003", b"x", "expected 6 ids"),
        ("examples.csv", b"""rows"":6""", b"""rows"":7""", "expected 7 ids"),
        ("examples.csv", b"{", b"[" * 100_000, "examples.csv"),
        ("predicted.csv", b"[1,", b"[-1,", "expected a class for each example"),
        ("predicted.csv", b"[1,", b"[true,", "expected a class for each example"),
        ("predicted.csv", b"test", b"dev", "expected a class for each example"),
    ],
)
def test_damaged_predictions_are_one_line(file: Path, name: str, old: bytes, new: bytes, message: str) -> None:
    changed(file, name, lambda content: content.replace(old, new, 1))
    with pytest.raises(InputError, match=message) as raised, open_reference(str(file)):
        pass
    assert str(raised.value).isprintable()


def test_predictions_of_a_trial_that_is_not_in_the_file_are_one_line(file: Path) -> None:
    changed(file, "predicted.csv", lambda content: content + b"f" * 12 + content.splitlines(keepends=True)[1][12:])
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
