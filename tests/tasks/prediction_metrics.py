"""Metrics of stored predictions, recomputed by the libraries that define them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from sacrebleu import corpus_bleu
from sacremoses import MosesTokenizer
from scipy.spatial.transform import Rotation
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import accuracy_score as tag_accuracy
from seqeval.metrics import f1_score, precision_score, recall_score
from sklearn.metrics import accuracy_score, log_loss, matthews_corrcoef
from torchmetrics.functional.text import squad

from dropbench.harness.predictions.schema import Predictions
from dropbench.harness.runs.predictions import load_predictions
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.task import Split
from dropbench.tasks.detection.interaction_ap import Pairing, mean_average_precision


class Run(NamedTuple):
    """A trained trial: its task, its run directory, and its final metrics."""

    task: Any
    directory: RunDirectory
    metrics: dict[str, float]

    def predictions(self, split: Split) -> Predictions:
        predictions = load_predictions(self.directory, split)
        assert predictions is not None
        return predictions


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
    accuracy = {"accuracy": 100 * float(accuracy_score(target, prediction))}
    if run.task.data_metrics != ("matthews",):
        return accuracy
    return {**accuracy, "matthews": 100 * float(matthews_corrcoef(target, prediction))}


def correlations(run: Run, split: Split, rows: list[dict[str, Any]]) -> dict[str, float]:
    target, prediction = ([row[name] for row in rows] for name in ("target", "prediction"))
    assert target == pytest.approx(run.task.labels[split].tolist())
    values = {"pearson": pearsonr(target, prediction), "spearman": spearmanr(target, prediction)}
    return {name: 100 * float(correlation.statistic) for name, correlation in values.items()}


def answers(run: Run, split: Split, rows: list[dict[str, Any]]) -> dict[str, float]:
    data = run.task.splits[split]
    assert [row["target"] for row in rows] == [answers[0][0] for answers in data.answers]
    assert all(row["prediction"] in context for row, context in zip(rows, data.contexts, strict=True))
    predictions = [{"id": str(row["index"]), "prediction_text": row["prediction"]} for row in rows]
    targets: Any = [
        {"id": str(row), "answers": {"text": [text for text, _ in some], "answer_start": [0] * len(some)}}
        for row, some in enumerate(data.answers)
    ]
    scores = squad(predictions, targets)
    return {"f1": float(scores["f1"]), "exact-match": float(scores["exact_match"])}


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
    "text-regression": correlations,
    "multiple-choice": classes,
    "question-answering": answers,
    "translation": sentences,
    "language-modelling": windows,
}
