"""Stored predictions give the metrics of the trial: for every task and data set, by the libraries of the metrics."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sacrebleu import corpus_bleu
from sacremoses import MosesTokenizer
from scipy.spatial.transform import Rotation
from seqeval.metrics import accuracy_score as tag_accuracy
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn.metrics import accuracy_score, log_loss

from harness.predictions.schema import Predictions, unique_ids
from harness.runs.predictions import load_predictions
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.training.engine import FINAL_SPLITS, run_trial
from harness.trials.task import TASKS, Split
from harness.trials.trial import TrialRequest
from tasks.data import DATASETS, SYNTHETIC
from tasks.detection.interaction_ap import Pairing, mean_average_precision

DETR = {
    "image_size": 64, "batch_size": 4, "model.num_queries": 6, "model.encoder_layers": 1, "model.decoder_layers": 1,
    "model.embed_dim": 32, "model.feedforward": 32, "model.frozen": False,
}  # fmt: skip
TEXT = {"model.layers": 1, "model.dim": 16, "model.heads": 2, "batch_size": 16, "max_length": 20}
SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "image-classification": (
        "vit-cifar",
        {"model.depth": 1, "model.embed_dim": 16, "model.num_heads": 2, "image_size": 32},
    ),
    "object-detection": ("detr", DETR),
    "interaction-detection": ("qpic", DETR),
    "mesh-recovery": (
        "metro",
        {
            "image_size": 64, "batch_size": 8, "model.hidden": "32,16", "model.between": "16", "model.layers": 1,
            "model.num_heads": 2, "model.feedforward": 32,
        },
    ),
    "text-classification": ("text-transformer", TEXT),
    "sequence-labelling": ("text-transformer", TEXT),
    "textual-entailment": ("text-transformer", TEXT),
    "translation": (
        "transformer-wmt-en-de",
        {
            "pieces": 120, "max_tokens": 300, "model.encoder_layers": 1, "model.decoder_layers": 1, "model.dim": 32,
            "model.feedforward": 64, "max_len_b": 20, "lr": 0.005, "steps": 120,
        },
    ),
    "language-modelling": (
        "learned-dropout-lm",
        {
            "context": 16, "vocabulary": 300, "batch_size": 8, "evaluation_batches": 4, "model.layers": 1,
            "model.dim": 24, "model.heads": 3,
        },
    ),
}  # fmt: skip
"""The model of each task, and the hyper-parameters that make it small."""
OTHER_METRICS = {"train-loss", "unigram-loss", "kept", "kept-in-evaluation", "parameters", "active-parameters"}
"""Metrics that are not computed from predictions of a split."""


def data_sets() -> list[tuple[str, str]]:
    """Return (task, data) for the generated set of each published format, and for the digits."""
    names = [name for name in DATASETS if DATASETS.get(name).synthetic]
    pairs = [(DATASETS.get(name).kind, name + SYNTHETIC) for name in names]
    return [*pairs, ("image-classification", "digits")]


class Run(NamedTuple):
    """A trained trial: its task, its run directory, and its final metrics."""

    task: Any
    directory: RunDirectory
    metrics: dict[str, float]

    def predictions(self, split: Split) -> Predictions:
        predictions = load_predictions(self.directory, split)
        assert predictions is not None
        return predictions


def train(runs: Path, task: str, data: str, folders: dict[str, Path] | None = None, **overrides: Any) -> Run:
    model, small = SMALL[task]
    if data.startswith("digits"):
        model, small = "vit-digits", {"model.depth": 1, "model.embed_dim": 16}
    settings = Settings(runs=runs, device="cpu", threads=1, folders=folders or {})
    overrides = {"steps": 4, "evaluate_every": 2, **small, **overrides}
    if "steps" in small:
        overrides |= {"evaluate_every": small["steps"]}
    request = TrialRequest(
        task=task, data=data, model=model, regularizer="dropkey", params={"ratio": 0.2}, overrides=overrides
    )
    trial = TASKS.get(task).trial_for(request, settings)
    directory = RunDirectory.create(runs, trial)
    result = run_trial(directory, settings)
    done = TASKS.get(task)(trial, settings)
    done.setup()
    return Run(done, directory, result["metrics"])


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def classes(run: Run, split: Split, rows: list[dict[str, Any]]) -> dict[str, float]:
    target, prediction = ([row[name] for row in rows] for name in ("target", "prediction"))
    assert target == run.task.labels[split].tolist()
    names = run.predictions(split).header.classes
    if "probabilities" in rows[0]:
        probabilities = np.array([row["probabilities"] for row in rows])
        assert probabilities.argmax(axis=1).tolist() == prediction or np.ptp(probabilities) < 0.9
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rounded probabilities do not add up to 1 exactly
            loss = log_loss(target, probabilities, labels=range(len(names)))
        assert np.mean([row["loss"] for row in rows]) == pytest.approx(loss, abs=2e-3)
    return {"accuracy": 100 * float(accuracy_score(target, prediction))}


def tags(run: Run, split: Split, rows: list[dict[str, Any]]) -> dict[str, float]:
    names = run.predictions(split).header.classes
    target, prediction = ([[names[tag] for tag in row[name]] for row in rows] for name in ("target", "prediction"))
    assert target == [list(sentence) for sentence in run.task.splits[split].tags]
    assert all(len(row["probabilities"]) == row["words"] == len(row["target"]) for row in rows)
    scores = {"accuracy": 100 * float(tag_accuracy(target, prediction))}
    if run.task.data.scored == "spans":
        functions: dict[str, Any] = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores |= {name: 100 * float(score(target, prediction)) for name, score in functions.items()}
    return scores


def coco(run: Run, split: Split, rows: list[dict[str, Any]]) -> dict[str, float]:
    data = run.task.splits[split]
    truth = COCO(str(data.annotations))
    ids = run.task.data.category_ids
    detections = [
        {
            "image_id": row["image"],
            "category_id": ids[label],
            "bbox": [left, top, right - left, bottom - top],
            "score": score,
        }
        for row in rows
        for label, score, (left, top, right, bottom) in zip(
            row["labels"], _float32(row["scores"]), _float32(row["boxes"]), strict=True
        )
    ]
    evaluation = COCOeval(truth, truth.loadRes(detections), "bbox")
    evaluation.params.imgIds = [row["image"] for row in rows]
    evaluation.evaluate()
    evaluation.accumulate()
    evaluation.summarize()
    names = ("ap", "ap50", "ap75", "ap-small", "ap-medium", "ap-large")
    return {name: 100 * value for name, value in zip(names, evaluation.stats, strict=False) if value >= 0}


def _float32(values: list[Any]) -> list[Any]:
    numbers: list[Any] = np.array(values, np.float32).tolist()
    return numbers


def pairings(run: Run, rows: list[dict[str, Any]]) -> list[Pairing]:
    """Return the stored detections of pairs of each image, as the evaluation of HICO-DET has them."""
    interactions = run.task.data.interactions
    predictions = []
    for row in rows:
        pairs = np.array(row["pairs"]).reshape(-1, 9)
        scores = np.full((len(pairs), len(interactions.verbs)), -np.inf, np.float32)
        scores[row["pair"], interactions.classes[row["labels"], 0]] = row["scores"]
        boxes = pairs[:, 1:].astype(np.float32)
        predictions.append(Pairing(boxes[:, :4], boxes[:, 4:], pairs[:, 0].astype(np.int64), scores))
    return predictions


def interactions(run: Run, split: Split, rows: list[dict[str, Any]]) -> dict[str, float]:
    return mean_average_precision(run.task.data.interactions, run.task.splits[split].images, pairings(run, rows))


def bodies(run: Run, split: Split, rows: list[dict[str, Any]]) -> dict[str, float]:
    true, predicted = (np.array([row[name] for row in rows]) for name in ("target", "prediction"))
    hips = list(run.task.frame.root)
    centered = [joints - joints[:, hips].mean(axis=1, keepdims=True) for joints in (true, predicted)]
    distances = np.linalg.norm(centered[0] - centered[1], axis=2).mean(axis=1) * 1000
    assert [row["mpjpe"] for row in rows] == pytest.approx(distances.tolist(), rel=1e-4)
    aligned = [procrustes(*pair) for pair in zip(predicted, true, strict=True)]
    return {
        "mpve": float(np.mean([row["mpve"] for row in rows])),  # the meshes are too large to be stored
        "mpjpe": float(distances.mean()),
        "pa-mpjpe": 1000 * float(np.mean([np.linalg.norm(a - b, axis=1) for a, b in zip(aligned, true, strict=True)])),
    }


def procrustes(points: Any, target: Any) -> Any:
    """Align points with a target by scipy's rotation without reflection, and by the scale that fits best."""
    centered = points - points.mean(axis=0)
    centered_target = target - target.mean(axis=0)
    rotated = Rotation.align_vectors(centered_target, centered)[0].apply(centered)
    return (rotated * centered_target).sum() / (centered**2).sum() * rotated + target.mean(axis=0)


def sentences(run: Run, split: Split, rows: list[dict[str, Any]]) -> dict[str, float]:
    scored = [row for row in rows if row["loss"] is not None]
    tokens = sum(row["tokens"] for row in scored)
    scores = {
        "loss": sum(row["loss"] for row in scored) / tokens,
        "perplexity": math.exp(sum(row["nll"] for row in scored) / tokens),
    }
    if split == "dev":
        return scores
    references, translations = ([row[name] for row in rows] for name in ("target", "prediction"))
    tokenizer = MosesTokenizer(run.predictions(split).header.corpus["bleu"]["language"])
    tokenized = [
        [tokenizer.tokenize(line, return_str=True, escape=False) for line in lines]
        for lines in (translations, references)
    ]
    if run.predictions(split).header.corpus["bleu"]["tokenized"]:
        tokenized = [translations, references]
        translations, references = (
            [run.task.scorer.detokenize(line) for line in lines] for lines in (translations, references)
        )
    scores["bleu"] = corpus_bleu(tokenized[0], [tokenized[1]], tokenize="none", force=True).score
    scores["sacrebleu"] = corpus_bleu(translations, [references]).score
    return scores


def windows(run: Run, split: Split, rows: list[dict[str, Any]]) -> dict[str, float]:
    loss = sum(row["loss"] for row in rows) / sum(row["tokens"] for row in rows)
    size = run.task.text.sizes[split]
    bits = loss / math.log(2) * size.tokens / size.bytes
    return {"loss": loss, "perplexity": math.exp(loss), "bits-per-byte": bits}


SCORERS: dict[str, Callable[[Run, Split, list[dict[str, Any]]], dict[str, float]]] = {
    "image-classification": classes,
    "object-detection": coco,
    "interaction-detection": interactions,
    "mesh-recovery": bodies,
    "text-classification": classes,
    "sequence-labelling": tags,
    "textual-entailment": classes,
    "translation": sentences,
    "language-modelling": windows,
}


@pytest.mark.parametrize(("task", "data"), data_sets())
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
