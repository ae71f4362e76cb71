"""Predictions in run directories: written by the final evaluation, with ids that survive reordering of the data."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from dropbench.harness.errors import InputError, Interrupted
from dropbench.harness.predictions.schema import Ratio
from dropbench.harness.predictions.store import predictions_path
from dropbench.harness.runs.predictions import load_predictions
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.task import TASKS, Split
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.images.image_classification import ImageClassification
from tests.training import make_trial, run

SMALL: dict[str, Any] = {"steps": 4, "evaluate_every": 2, "batch_size": 32, "model.depth": 1, "model.embed_dim": 16}


def make(align: str = "none") -> Trial:
    return make_trial("dropkey:ratio=0.3", align=align, **SMALL)


def train(runs: Path, trial: Trial, stop: Any = lambda: False, **settings: Any) -> tuple[RunDirectory, dict[str, Any]]:
    result = run(runs, trial, stop, **settings)
    return RunDirectory(runs / trial.id), result


def test_monte_carlo_and_split_batches_have_predictions_of_their_own_evaluation(tmp_path: Path) -> None:
    directory, result = train(tmp_path, make("monte-carlo-2"), micro_batch_splits=3)
    for split in ("dev", "test"):
        predictions = load_predictions(directory, split)
        assert predictions is not None
        assert predictions.metrics()["accuracy"] == pytest.approx(result["metrics"][f"{split}/accuracy"])
        assert [row["index"] for row in predictions.rows] == list(range(len(predictions.rows)))


def test_an_interrupted_trial_has_none_and_gives_the_same_file_at_its_end(tmp_path: Path) -> None:
    whole, _ = train(tmp_path / "whole", make())
    with pytest.raises(Interrupted):
        train(tmp_path / "parts", make(), lambda: True)
    directory = RunDirectory(tmp_path / "parts" / make().id)
    assert load_predictions(directory, "test") is None
    train(tmp_path / "parts", make())
    paths = [predictions_path(each.path, "test") for each in (whole, directory)]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_predictions_of_another_trial_or_split_are_refused(tmp_path: Path) -> None:
    directory, _ = train(tmp_path, make())
    shutil.copyfile(predictions_path(directory.path, "dev"), predictions_path(directory.path, "test"))
    with pytest.raises(InputError, match=f"predictions of trial {directory.id} on dev: expected those of this trial"):
        load_predictions(directory, "test")


class Silent(ImageClassification):
    """A task whose `evaluate` records nothing."""

    name = "silent"

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        return {"accuracy": 100.0 * len([*batches]) / 9}


class Nameless(ImageClassification):
    """A task whose examples have no ids."""

    name = "nameless"

    def example_id(self, split: Split, index: int) -> None:  # type: ignore[override]
        return None


class Ranked(ImageClassification):
    """A task with partial scores and a metric of its own name."""

    name = "ranked"

    def correct(self, logits: Any, labels: Any) -> Any:
        return 1.0 / (1 + (logits > logits.gather(1, labels[:, None])).sum(dim=1))


@pytest.mark.parametrize("task", [Silent, Nameless, Ranked])
def test_a_task_of_the_user_keeps_working(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Any) -> None:
    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    TASKS.register(task.name)(task)
    trial = make().model_copy(update={"task": task.name})
    directory, result = train(tmp_path, trial)
    predictions = load_predictions(directory, "test")
    if task is not Ranked:
        assert predictions is None
        assert not (directory.path / "predictions").exists()
    else:
        assert predictions is not None
        assert predictions.metrics()["accuracy"] == pytest.approx(result["metrics"]["test/accuracy"])
        assert {row["correct"] for row in predictions.rows} - {0.0, 1.0}


def record(task: Any, row: dict[str, Any], columns: Any = None, ratio: Any = None) -> None:
    task.recorder.define(columns or {"square": "number"}, {"accuracy": ratio or Ratio(sum="square")})
    task.recorder.add([row] * len(task.labels["dev" if not task.seen else "test"]))


SQUARE = {"square": 1.0}
FAULTS: dict[str, tuple[Callable[[Any], None], str]] = {
    "column": (lambda task: record(task, SQUARE, ratio=Ratio(sum="sqare")), "metric accuracy: column 'sqare'"),
    "ratio": (lambda task: record(task, SQUARE), "metric accuracy: 1 from the rows, 50 from the evaluation: define"),
    "few": (lambda task: task.recorder.add([SQUARE] * 5), "5 rows for 180 samples of dev: add a row for each sample"),
    "missing": (lambda task: record(task, {"sq": 1.0}), "row of sample 0: expected an object with id, index, s"),
    "kind": (lambda task: record(task, SQUARE, columns={"square": "float"}), "columns.square=float: input should be"),
    "nan": (lambda task: record(task, {"square": float("nan")}), "row of sample 0: square=nan: expected number"),
    "class": (lambda task: record(task, {"square": 3}, columns={"square": "class"}), "metric accuracy: column"),
    "call": (lambda task: task.recorder.define(), "TypeError: Recorder.define() missing 1 required positional arg"),
    "rows": (lambda task: task.recorder.add(3), "TypeError: 'int' object is not iterable"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_predictions_loses_no_training(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write, message = FAULTS[fault]

    class Faulty(ImageClassification):
        name = "faulty"

        def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
            count = len([*batches])
            self.seen = split == "test"
            if self.recorder is not None:
                write(self)
            return {"accuracy": 50.0 if count else 0.0}

    monkeypatch.setattr(TASKS, "_entries", dict(TASKS._entries))
    TASKS.register("faulty")(Faulty)
    directory, result = train(tmp_path, make().model_copy(update={"task": "faulty"}))
    assert (result["metrics"]["dev/accuracy"], result["metrics"]["test/accuracy"]) == (50.0, 50.0)
    assert load_predictions(directory, "dev") is None
    [note, _] = [note for note in result["notes"] if "no predictions" in note]
    assert "no predictions for dev are kept: " in note
    assert message in note


def test_ids_survive_reordering_of_the_data(tmp_path: Path) -> None:
    lines = [f"{label} question number {number} about things\n" for number, label in enumerate([0, 1, 2, 3, 4, 5] * 10)]
    lines += lines[:3]  # duplicates
    ids = []
    for name, test in (("a", lines), ("b", lines[::-1])):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "TREC.train.all").write_text("".join(lines * 2), encoding="latin-1")
        (folder / "TREC.test.all").write_text("".join(test), encoding="latin-1")
        small: dict[str, Any] = {"steps": 2, "model.layers": 1, "model.dim": 16, "model.heads": 2}
        where: dict[str, Any] = {"task": "text-classification", "data": "trec", "model": "text-transformer"}
        trial = make_trial(folders={"trec": folder}, **where, **small)
        directory, _ = train(tmp_path / "runs", trial, folders={"trec": folder})
        predictions = load_predictions(directory, "test")
        assert predictions is not None
        ids.append([row["id"] for row in predictions.rows])
    assert len({*ids[0]}) == len(lines)
    assert sum("-" in id for id in ids[0]) == 3
    assert {*ids[0]} == {*ids[1]}
    assert ids[0] != ids[1]
