"""Accuracy, and the base class of the tasks that it scores."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from dropbench.harness.predictions.recorder import LOSS_DECIMALS, PROBABILITY_DECIMALS, Recorder, rounded
from dropbench.harness.predictions.schema import Kind, Ratio
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.task import Split
from dropbench.tasks.class_weights import class_weights
from dropbench.tasks.preset_task import PresetTask

if TYPE_CHECKING:
    from torch import Tensor, nn

ACCURACY = Metric("accuracy")
MAX_PROBABILITIES = 20
"""Largest number of classes of which predictions hold all probabilities."""


class Classifier(PresetTask):
    """A task with one label per sample: a batch is inputs and labels (B,), the model returns logits (B, classes).

    A subclass with a metric of its own may override `correct` or `score_classes` alone. The model's function gets
    `classes`, their number.

    Attributes:
        class_metrics: metrics that `score_classes` returns, see `dropbench.tasks.class_metrics`.
    """

    class_metrics: tuple[str, ...] = ()

    @classmethod
    def sizes_for(cls, recipe: Any, classes: int) -> dict[str, Any]:
        return {"classes": classes}

    @cached_property
    def loss_weights(self) -> Tensor | None:
        """The weight of each class in the loss (classes,), after `setup`; None: all are 1."""
        given = self.recipe.class_weights
        return None if given is None else class_weights(given, self.classes, self.train_targets())

    def train_targets(self) -> Tensor:
        """Return the class of each training sample (N,)."""
        import torch

        return torch.tensor([int(row[1]) for row in self.splits["train"]])

    def num_loss_terms(self, batch: tuple[Any, Any]) -> float:
        """Return the number of samples; with weights of the classes, the sum of those of the samples."""
        labels = batch[1]
        if self.loss_weights is None or labels.is_floating_point():
            return len(batch[0])
        return float(self.loss_weights.to(labels.device)[labels].sum())

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the cross entropy."""
        return self.loss_and_logits(model, batch)[0]

    def loss_and_logits(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the cross entropy, and the logits (B, classes)."""
        from torch.nn.functional import cross_entropy

        inputs, labels = batch
        logits = self.logits(model, inputs)
        weight = None if self.loss_weights is None else self.loss_weights.to(logits)
        return cross_entropy(logits, labels, weight, label_smoothing=self.recipe.label_smoothing), logits

    def logits(self, model: nn.Module, inputs: Any) -> Tensor:
        """Return logits (B, classes)."""
        return cast("Tensor", model(inputs))

    def correct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return whether each prediction is correct, as booleans (B,), or its score from 0 to 1."""
        return logits.argmax(dim=-1) == labels

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return the share of correct predictions, in percent, as accuracy or else the task's first metric.

        The metrics of `score_classes` follow. With one of its own a task has accuracy only if it declares it.
        """
        own = type(self).score_classes is not Classifier.score_classes
        metric = ACCURACY if own or ACCURACY in self.metrics else self.metrics[0]

        def score(batch: Any) -> tuple[float, int, list[int], list[int]]:
            inputs, labels = batch
            logits = self.logits(model, inputs)
            correct = self.correct(logits, labels)
            if self.recorder is not None:
                record_classes(self.recorder, metric.name, self.classes, logits, labels, correct, self.class_metrics)
            pair = (labels.tolist(), logits.argmax(dim=-1).tolist()) if own or self.class_metrics else ([], [])
            return correct.sum().item(), len(labels), *pair

        number_correct: float = 0
        total = 0
        targets: list[int] = []
        predictions: list[int] = []
        for number, size, some_targets, some_predictions in self.map_batches(score, batches):
            number_correct += number
            total += size
            targets += some_targets
            predictions += some_predictions
        share = {metric.name: 100.0 * (number_correct / total)} if metric in self.metrics else {}
        return {**share, **self.score_classes(targets, predictions)}

    def score_classes(self, targets: list[int], predictions: list[int]) -> dict[str, float]:
        """Return metrics of the correct and the predicted classes of all samples by name; here `class_metrics`."""
        if not self.class_metrics:
            return {}
        from dropbench.tasks.class_metrics import class_scores

        return class_scores(self.class_metrics, targets, predictions, len(self.classes))


def record_classes(
    recorder: Recorder,
    metric: str,
    classes: Sequence[str],
    logits: Tensor,
    labels: Tensor,
    scores: Tensor,
    class_metrics: Sequence[str] = (),
) -> None:
    """Record a batch of predicted classes: target, prediction, its probability, the cross entropy, and the score.

    Batches with other targets than one class per sample have the score alone.

    Args:
        recorder: takes the predictions.
        metric: name of the metric whose value is the mean score, in percent.
        classes: names of the classes; () if the task does not name them.
        logits: (B, C).
        labels: (B,).
        scores: (B,), from `Classifier.correct`.
        class_metrics: names of metrics that need the classes of all samples.
    """
    import torch

    if scores.ndim != 1:
        return
    columns: dict[str, Kind] = {}
    values: dict[str, list[Any]] = {}
    if logits.ndim == 2 and labels.ndim == 1 and not labels.is_floating_point():
        log_probs = logits.float().log_softmax(dim=-1)
        predicted = logits.argmax(dim=-1)
        probabilities = log_probs.exp()
        loss = -log_probs.gather(1, labels[:, None]).squeeze(1)
        columns = {"target": "class", "prediction": "class", "probability": "number", "loss": "number"}
        values = {
            "target": labels.tolist(),
            "prediction": predicted.tolist(),
            "probability": rounded(probabilities.gather(1, predicted[:, None]).squeeze(1).cpu(), PROBABILITY_DECIMALS),
            "loss": rounded(loss.cpu(), LOSS_DECIMALS),
        }
        number = logits.shape[1]
        if len(classes) < number:
            classes = [*classes, *map(str, range(len(classes), number))]
        if number <= MAX_PROBABILITIES:
            columns["probabilities"] = "numbers"
            values["probabilities"] = rounded(probabilities.cpu().nan_to_num(), PROBABILITY_DECIMALS)
    columns["correct"] = "number"
    values["correct"] = (scores.int() if scores.dtype == torch.bool else scores).tolist()
    corpus = {name: {"scorer": name} for name in class_metrics}
    recorder.define(columns, {metric: Ratio(sum="correct", scale=100.0)}, classes=tuple(classes), corpus=corpus)
    recorder.add(dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True))
