"""Tasks, data and suites of a user: what the base classes know themselves, and how commands treat them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.cli.main import run
from dropbench.harness.runs.predictions import load_predictions
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.suite import load_suite
from dropbench.harness.trials.plugins import load_plugins
from dropbench.jobs.cli.check_commands import own_requests
from tests.harness.checking.mistakes import FORWARD
from tests.harness.checking.own_task import DEFINE, ENQUEUE, write
from tests.tasks.test_weights import folder as bert  # noqa: F401 - used by pytest

SUITE = """
title: t
source: s
metric: METRIC
trial: {task: points, model: attending, data: points}
columns: [{label: A}]
rows:
  - {label: none, baseline: true, trial: {regularizer: none}, published: [[55.0, 0.3]]}
  - {label: dk, trial: {regularizer: REGULARIZER}}
presets:
  PRESET
"""
RECIPES = '{"presets": {"mini": {"epochs": 1, "batch_size": 16}}}'
CHANGES = (
    (RECIPES, RECIPES.replace("mini", "full")),
    ('Metric("error", higher_is_better=False, unit="")', 'Metric("error", None, "", decimals=6)'),
    (DEFINE, DEFINE.replace('{"correct"', '{"target": "class", "correct"')),
    ('{"correct": int(c)', '{"target": 2, "correct": int(c)'),
)
"""A preset of another name, a metric without a direction, and a class among the predictions."""
INHERITED = """
from dropbench import TASKS, Metric

@TASKS.register("top3")
class Top3(TASKS.get("image-classification")):
    metrics = (Metric("top3"),)

    def correct(self, logits, labels):
        return (logits.topk(3).indices == labels[:, None]).any(dim=1)

@TASKS.register("other-texts")
class OtherTexts(TASKS.get("text-classification")):
    pass
"""
TRAIN = ["run", *ENQUEUE[1:], "--executor", "debug"]


def write_suite(folder: Path, **changes: str) -> Path:
    content = SUITE
    given = {"METRIC": "accuracy", "REGULARIZER": "dropkey", "PRESET": "full: {seeds: 1}", **changes}
    for name, value in given.items():
        content = content.replace(name, value)
    (folder / "t.yaml").write_text(content)
    return folder / "t.yaml"


def test_classes_are_those_of_the_data_and_predictions_name_them(folder: Path) -> None:
    write(folder, *CHANGES)
    assert run(TRAIN) == 0
    [directory] = (RunDirectory(path) for path in (folder / "runs").iterdir() if (path / "trial.json").exists())
    predictions = load_predictions(directory, "test")
    assert predictions is not None
    assert predictions.header.classes == ("low", "middle", "high")
    assert predictions.header.named("target", predictions.rows[0]["target"]) == "high"


@pytest.mark.parametrize("label", ["(row[0] * 3).long()", "torch.rand(2)", "row[0] * 100"])
def test_data_check_counts_classes_if_rows_tell_them(
    label: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(folder, ("(row[0] * 3).long()", label))
    assert run(["data", "check", "points", "--plugin", "own.py"]) == 0
    printed = capsys.readouterr().out
    assert "3 classes: low, middle, high" in printed
    assert ("smallest class" in printed) == label.startswith("(")
    assert run(["data", "check", "points", "--plugin", "own.py", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)["class_rows"]
    assert sum(counts["train"].values()) == 60 if label.startswith("(") else not counts


def test_a_tuned_preset_gives_each_row_three_candidates(folder: Path) -> None:
    write(folder, *CHANGES)
    file = write_suite(folder, PRESET="full: {seeds: 3, tuned: true}")
    assert run(["enqueue", str(file), "--plugin", "own.py"]) == 0
    cells = list(load_suite(str(file)).cells(SuiteOptions(preset="full")))
    assert [cell.sweep and cell.sweep.size for cell in cells] == [3, 3]
    assert cells[0].sweep is not None
    assert dict(cells[0].sweep.space) == {"set.lr": (0.0005, 0.001, 0.002)}
    assert len(cells[0].trials(Settings(data=folder / "data"))) == 3


def test_a_suite_needs_no_preset_of_a_certain_name(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(folder, *CHANGES)
    file = write_suite(folder)
    assert run(["run", str(file), "--plugin", "own.py", "--executor", "debug"]) == 0
    printed = capsys.readouterr().out
    assert "smaller" not in printed
    assert "published" in printed
    assert run(["report", str(file), "--plugin", "own.py"]) == 0
    assert run([*ENQUEUE]) == 0


def test_a_metric_without_a_direction_has_no_best_value(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(folder, *CHANGES)
    file = write_suite(folder, METRIC="error", PRESET="full: {seeds: 2}")
    assert run(["run", str(file), "--plugin", "own.py", "--executor", "debug"]) == 0
    printed = capsys.readouterr().out
    assert "best" not in printed
    assert " ± 0.0" in printed
    [number] = {len(word.partition(".")[2]) for word in printed.split("none")[1].split()[:3:2]}
    assert number == 6


MESSAGES: dict[str, tuple[dict[str, str], str]] = {
    "regularizer": (
        {"REGULARIZER": '"dropkey:ratio=0.1,schedule=decreasing"'},
        "t.yaml:9: regularizer dropkey:ratio=0.1,schedule=decreasing: its parameters are fields of their own: write"
        " `{regularizer: dropkey, params: {ratio: 0.1}, schedule: decreasing}`",
    ),
    "metric": ({"METRIC": "dev/error"}, "t.yaml:4: metric: dev/error: tables show the test set: write `error`"),
    "preset": ({"PRESET": "tiny: {seeds: 1}"}, "unknown preset of points 'tiny': did you mean mini?"),
}


@pytest.mark.parametrize("case", MESSAGES)
def test_a_suite_that_is_written_otherwise_is_refused(
    case: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    changes, message = MESSAGES[case]
    write(folder)
    assert run(["enqueue", str(write_suite(folder, **changes)), "--plugin", "own.py"]) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "runs").exists()


@pytest.mark.parametrize(
    ("seeds", "hint"),
    [("0-4", ": `--seeds 5` trains seeds 0 to 4"), ("0..2", ": `--seeds 3` trains seeds 0 to 2"), ("0", ""), ("x", "")],
)
def test_a_range_of_seeds_is_a_number(seeds: str, hint: str, folder: Path, capsys: Any) -> None:
    write(folder)
    assert run([*ENQUEUE, "--seeds", seeds]) == 2
    message = f"dropbench: --seeds {seeds}: expected a number of seeds from 1 to 10000{hint}\n"
    assert capsys.readouterr().err == message


def test_what_a_file_prints_is_no_part_of_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, ("NAMES = (", "print('hello')\nNAMES = ("))
    assert run(["list", "tasks", "--json", "--plugin", "own.py"]) == 0
    printed = capsys.readouterr()
    assert "points" in {item["name"] for item in json.loads(printed.out)}
    assert "hello" in printed.err


def test_a_task_that_reads_no_weights_refuses_them(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    tiny = Path(__file__).parents[2] / "jobs/tiny_task.py"
    (folder / "own.py").write_text(tiny.read_text())
    (folder / "weights.pt").write_bytes(b"")
    words = ["enqueue", "--task", "tiny", "--data", "tiny", "--model", "tiny", "--plugin", "own.py"]
    assert run([*words, "--weights", "weights.pt"]) == 2
    message = "dropbench: task 'tiny' reads no initial weights: remove `weights.pt`\n"
    assert capsys.readouterr().err == message


def test_what_cannot_be_tried_alone_is_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = Path(__file__).parents[2] / "jobs/tiny_task.py"
    (folder / "own.py").write_text(tiny.read_text())
    assert run(["check", "--plugin", "own.py", "--json"]) == 0
    [item] = json.loads(capsys.readouterr().out)
    assert (item["task"], item["state"]) == ("tiny", "unchecked")


def test_a_task_that_inherits_is_tried_with_small_data(folder: Path) -> None:
    (folder / "own.py").write_text(INHERITED)
    load_plugins([folder / "own.py"])
    assert [*own_requests()] == [
        ("top3", "digits", "vit-digits", "none"),
        ("other-texts", "ag-news-synthetic", "text-transformer", "none"),
    ]


def test_tasks_are_tried_with_the_model_that_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A task that it is not for has another one; another name, or one that is for no task, is one line."""
    (folder / "own.py").write_text(INHERITED)
    load_plugins([folder / "own.py"])
    assert [*own_requests("transformers-encoder")] == [
        ("top3", "digits", "vit-digits", "none"),
        ("other-texts", "ag-news-synthetic", "transformers-encoder", "none"),
    ]
    for words, message in (
        (["--model", "detr"], "--model detr: is for none of the tasks that are tried: top3, other-texts\n"),
        (["--model", "transformer-encoder"], "did you mean transformers-encoder"),
        (["--weights", "x"], "--weights x: expected --model NAME, too\n"),
    ):
        assert run(["check", "--plugin", "own.py", *words]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.slow
def test_the_weights_that_are_named_are_read(
    folder: Path,
    bert: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    (folder / "own.py").write_text(INHERITED)
    words = ["check", "--plugin", "own.py", "--json", "--model", "transformers-encoder", "--weights", str(bert)]
    assert run(words) == 2
    first, second = json.loads(capsys.readouterr().out)
    assert (first["model"], first["state"], second["state"]) == ("vit-digits", "ok", "fails")
    assert second["detail"].endswith(f"max_length=96: {bert} has 32 positions")


@pytest.mark.slow
def test_tasks_that_inherit_pass(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "own.py").write_text(INHERITED)
    assert run(["check", "--plugin", "own.py", "--json"]) == 0
    assert [item["state"] for item in json.loads(capsys.readouterr().out)] == ["ok", "ok"]


MIXED = (FORWARD, FORWARD.replace("attended)", "attended + tokens.mean(dim=0))"))
SHARE = (('"accuracy": 100 * ', '"accuracy": '), ("scale=100", "scale=1"))


def test_what_is_probably_a_mistake_is_noted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(folder, MIXED, *SHARE)
    assert run(["check", "--plugin", "own.py", "--json"]) == 0
    notes = " ".join(item["detail"] for item in json.loads(capsys.readouterr().out))
    assert "with the others of its batch: is the first axis the batch" in notes
    assert "if it is a share, multiply by 100, or declare `unit=" in notes
