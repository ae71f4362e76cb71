"""Test text regression: scores of single texts and of pairs, and their correlations."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.tasks.text.base import TextTask
from dropbench.tasks.text.text_classification import TextClassification
from dropbench.tasks.text.text_regression import TextRegression
from tests.input_errors import one_line
from tests.tasks.making import CPU, task_of, trial_of
from tests.training import run

WORDS = ("good", "bad", "fine", "poor", "great", "dull")


def own(folder: Path, card: str, header: str, row: str) -> Settings:
    lines = [header, *(row.format(first=WORDS[n % 6], second=WORDS[n % 5], score=n % 7 / 2) for n in range(60))]
    (folder / "train.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "card.yaml").write_text(card, encoding="utf-8")
    return Settings(device="cpu", threads=1, folders={"csv:own": folder})


def test_a_model_learns_the_share_of_common_words(tmp_path: Path) -> None:
    trial = trial_of("text-regression", "sts-b-synthetic", "text-transformer", {"epochs": 3})
    metrics = run(tmp_path, trial)["metrics"]
    assert metrics["test/pearson"] > 10
    assert set(metrics) >= {"dev/pearson", "test/spearman"}


@pytest.mark.parametrize(
    ("card", "header", "row", "texts"),
    [
        ("score: rating\n", "text,rating", "a {first} film,{score}", 1),
        ("text: [one, other]\nscore: near\n", "one,other,near", "a {first} film,a {second} one,{score}", 2),
    ],
)
def test_texts_of_ones_own_have_scores(tmp_path: Path, card: str, header: str, row: str, texts: int) -> None:
    settings = own(tmp_path, card, header, row)
    trial = trial_of("text-regression", "csv:own", "text-transformer", {"steps": 1}, settings)
    task = task_of(TextRegression, trial, settings)
    tokens, scores = task.batch("train", [0, 1, 2])
    assert tokens.shape[:-1] == ((3,) if texts == 1 else (3, 2))
    model = task.build_model().eval()
    predicted = task.scores(model, tokens)
    assert predicted.shape == (3,)
    torch.testing.assert_close(task.loss(model, (tokens, scores)), ((predicted - scores) ** 2).mean())
    assert task.example_id("test", 0) != task.example_id("test", 1)


def test_numbers_under_label_and_texts_under_score_are_named(tmp_path: Path) -> None:
    settings = own(tmp_path, "", "text,label", "a {first} film,{score}")
    with one_line("label is a number such as 0.0: for regression, name the column by `score` in card.yaml"):
        task_of(TextTask, trial_of("text-classification", "csv:own", "text-transformer", {}, settings), settings)
    (tmp_path / "card.yaml").write_text("score: text\n", encoding="utf-8")
    with one_line(r"train.csv:2: text 'a good film': expected a finite number"):
        task_of(TextRegression, trial_of("text-regression", "csv:own", "text-transformer", {}, settings), settings)


def test_the_metrics_of_a_data_set_are_measured_and_its_first_selects(tmp_path: Path) -> None:
    trial = trial_of("text-classification", "cola-synthetic", "text-transformer", {"epochs": 1})
    metrics = run(tmp_path, trial)["metrics"]
    assert {"dev/matthews", "test/accuracy"} <= set(metrics)
    assert "test/f1" not in metrics
    assert task_of(TextTask, trial).selection_metric.name == "matthews"


def test_a_task_of_ones_own_keeps_its_metric_on_data_with_another() -> None:
    class Near(TextClassification):
        metrics = (Metric("near"),)

    task = Near(trial_of("text-classification", "cola-synthetic", "text-transformer"), CPU)
    task.setup()
    assert (task.selection_metric.name, task.class_metrics) == ("near", ())


@pytest.mark.parametrize("names", [("near",), ("near", "accuracy")])
def test_a_metric_of_all_predicted_classes_overrides_one_method(names: tuple[str, ...]) -> None:
    class Near(TextClassification):
        metrics = tuple(map(Metric, names))

        def score_classes(self, targets: list[int], predictions: list[int]) -> dict[str, float]:
            return {"near": sum(abs(a - b) < 2 for a, b in zip(targets, predictions, strict=True))}

    task = Near(trial_of("text-classification", "trec-synthetic", "text-transformer"), CPU)
    task.setup()
    task.recorder = Recorder()
    batches = [task.batch("test", indices) for indices in task.evaluation_batches("test", 8)]
    with torch.no_grad():
        evaluated = task.evaluate(task.build_model().eval(), "test", batches)
    classes = [(row["target"], row["prediction"]) for row in task.recorder.rows]
    expected = {
        "near": sum(abs(target - prediction) < 2 for target, prediction in classes),
        "accuracy": 100 * sum(target == prediction for target, prediction in classes) / len(classes),
    }
    assert evaluated == pytest.approx({name: expected[name] for name in names})
    assert {*task.recorder.metrics} == {"accuracy"}, "rows have no metric of all classes"
