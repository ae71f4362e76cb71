"""Stored predictions give the metrics of the trial: for every task and data set, by the libraries of the metrics."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dropbench.harness.predictions.schema import unique_ids
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.training.engine import FINAL_SPLITS
from dropbench.harness.trials.task import TASKS, Split, Task
from dropbench.tasks.data import DATASETS, SYNTHETIC
from dropbench.tasks.detection.interaction_ap import Pairing
from tests.tasks.making import DETR, LANGUAGE_MODEL, METRO, task_of, trial_of
from tests.tasks.prediction_metrics import SCORERS, Run
from tests.training import run as run_trial

pytestmark = pytest.mark.usefixtures("few")
TEXT = {"model.layers": 1, "model.dim": 16, "model.heads": 2, "batch_size": 16, "max_length": 20}
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "image-classification": (
        "vit-cifar",
        {"model.depth": 1, "model.embed_dim": 16, "model.num_heads": 2, "image_size": 32},
    ),
    "object-detection": ("detr", {**DETR, "model.frozen": False}),
    "interaction-detection": ("qpic", {**DETR, "model.frozen": False}),
    "mesh-recovery": ("metro", METRO),
    "text-classification": ("text-transformer", TEXT),
    "sequence-labelling": ("text-transformer", TEXT),
    "textual-entailment": ("text-transformer", TEXT),
    "text-regression": ("text-transformer", TEXT),
    "multiple-choice": ("text-transformer", TEXT),
    "question-answering": ("text-transformer", {**TEXT, "stride": 4}),
    "translation": (
        "transformer-wmt-en-de",
        {
            "pieces": 120, "max_tokens": 300, "model.encoder_layers": 1, "model.decoder_layers": 1, "model.dim": 32,
            "model.feedforward": 64, "max_len_b": 20, "lr": 0.005, "steps": 120,
        },
    ),
    "language-modelling": ("learned-dropout-lm", LANGUAGE_MODEL),
}  # fmt: skip
"""The model of each task, and the hyper-parameters that make it small."""
OTHER_METRICS = {"train-loss", "unigram-loss", "kept", "kept-in-evaluation", "parameters", "active-parameters"}
"""Metrics that are not computed from predictions of a split."""


ALIKE = {
    "cifar100", "tiny-imagenet", "cr", "subj", "mr", "ag-news", "conll2000", "wnut17", "ud-ewt", "enwiki"
}  # fmt: skip
"""Data with the metrics, and the kind of examples, of others; test_synthetic.py reads them."""


SLOW = {"multi30k-synthetic"}
"""Data of a task of which another set is fast."""


def data_sets() -> list[tuple[str, str]]:
    """Return (task, data) for a generated set of each kind, and for the digits."""
    names = [name for name in DATASETS if DATASETS.get(name).synthetic and name not in ALIKE]
    pairs = [(DATASETS.get(name).kind, name + SYNTHETIC) for name in names]
    return [*pairs, ("image-classification", "digits")]


def train(runs: Path, task: str, data: str) -> Run:
    model, small = SMALL[task]
    if data.startswith("digits"):
        model, small = "vit-digits", {"model.depth": 1, "model.embed_dim": 16}
    if data.startswith("wmt"):  # binarized by fairseq, with its own symbols
        small = {key: value for key, value in small.items() if key != "pieces"}
    overrides = {"steps": 2, "evaluate_every": small.get("steps", 2), **small}
    trial = trial_of(task, data, model, overrides, regularizer="dropkey", params={"ratio": 0.2})
    result = run_trial(runs, trial)
    return Run(task_of(Task, trial), RunDirectory(runs / trial.id), result["metrics"])


@pytest.mark.parametrize(
    ("task", "data"), [pytest.param(*pair, marks=[pytest.mark.slow] * (pair[1] in SLOW)) for pair in data_sets()]
)
def test_predictions_recompute_every_metric(tmp_path: Path, task: str, data: str) -> None:
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    run = train(tmp_path, task, data)
    for split in FINAL_SPLITS:
        predictions = run.predictions(split)
        header, rows = predictions.header, predictions.rows
        assert (header.task, header.split, header.rows) == (task, split, len(rows))
        assert (header.data, header.fingerprint) == (run.task.trial.data.name, run.task.trial.data.fingerprint)
        indices = [row["index"] for row in rows]
        assert indices == sorted(set(indices))
        assert [row["id"] for row in rows] == unique_ids(run.task.example_id(split, index) for index in indices)
        reported = {
            name.removeprefix(f"{split}/"): value for name, value in run.metrics.items() if name.startswith(split)
        }
        expected = {name: value for name, value in reported.items() if name not in OTHER_METRICS}
        assert SCORERS[task](run, split, rows) == pytest.approx(expected, rel=1e-5, abs=1e-6)
        assert predictions.metrics().keys() | header.corpus.keys() >= expected.keys()
        for name, value in predictions.metrics().items():
            assert value == pytest.approx(expected[name], rel=1e-5, abs=1e-6), name


def near_boxes(task: Any, split: Split) -> Callable[..., Any]:
    """Return a detector that finds most true boxes of a split, some with another class, at random scores."""
    random = np.random.RandomState(0)
    images = {image.id: image for image in task.splits[split].images}

    def predict(model: Any, batch: Any) -> Any:
        for meta in batch["meta"]:
            image = images[meta["img_id"]]
            boxes = (image.boxes + random.normal(0, 1.5, image.boxes.shape)).astype(np.float32)
            labels = np.where(random.rand(len(boxes)) < 0.8, image.labels, 0)
            scores = random.rand(len(boxes)).astype(np.float32)
            yield {"img_id": image.id, "bboxes": boxes, "scores": scores, "labels": labels}

    return lambda model, batch: [*predict(model, batch)]


def near_pairs(task: Any, split: Split) -> Callable[..., Any]:
    """Return a detector that finds most true pairs of a split, with random scores of all verbs."""
    random = np.random.RandomState(0)

    def predict(model: Any, batch: Any) -> Any:
        for meta in batch["meta"]:
            image = task.splits[split].images[meta["img_id"]]
            boxes = image.boxes[image.pairs[:, :2]] + random.normal(0, 1, (len(image.pairs), 2, 4))
            subjects, objects = boxes.astype(np.float32).swapaxes(0, 1)
            scores = random.rand(len(image.pairs), len(task.data.interactions.verbs)) ** 3
            scores[np.arange(len(scores)), image.pairs[:, 2]] += random.rand(len(scores))
            labels = image.labels[image.pairs[:, 1]]
            yield Pairing(subjects, objects, labels, scores.astype(np.float32))

    return lambda model, batch: [*predict(model, batch)]


@pytest.mark.parametrize(
    ("task", "data", "detector"),
    [
        ("object-detection", "coco-synthetic", near_boxes),
        ("interaction-detection", "hico-det-synthetic", near_pairs),
    ],
)
def test_detections_near_the_truth_have_the_same_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: str, data: str, detector: Callable[[Any, Split], Any]
) -> None:
    """An untrained detector finds nothing, so that its precision is 0 however it is stored."""

    kind: Any = TASKS.get(task)
    evaluate = kind.evaluate

    def evaluate_near(self: Any, model: Any, split: Split, batches: Any) -> Any:
        self.predict = detector(self, split)
        return evaluate(self, model, split, batches)

    monkeypatch.setattr(kind, "evaluate", evaluate_near)
    run = train(tmp_path, task, data)
    for split in FINAL_SPLITS:
        rows = run.predictions(split).rows
        values = SCORERS[task](run, split, rows)
        assert max(values.values()) > 5
        assert {f"{split}/{name}": value for name, value in values.items()} == pytest.approx(
            {name: value for name, value in run.metrics.items() if name.startswith(split)}, abs=1e-9
        )


def test_every_task_is_covered() -> None:
    assert {task for task, _ in data_sets()} == set(SMALL) == set(SCORERS) == set(TASKS)
