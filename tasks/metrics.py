"""Accuracy, and the base class of the tasks that it scores."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from harness.trials.metric import Metric
from harness.trials.task import Split
from tasks.trial_factory import PresetTask

if TYPE_CHECKING:
    from torch import Tensor, nn

ACCURACY = Metric("accuracy")


class Classifier(PresetTask):
    """A task with one label per sample: a batch is inputs and labels (B,), the model returns logits (B, classes).

    A subclass with a metric of its own may override `correct` alone.
    """

    def num_loss_terms(self, batch: tuple[Tensor, Any]) -> float:
        """Return the number of samples."""
        return len(batch[0])

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the cross entropy."""
        return self.loss_and_logits(model, batch)[0]

    def loss_and_logits(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the cross entropy, and the logits (B, classes)."""
        from torch.nn.functional import cross_entropy

        inputs, labels = batch
        logits = model(inputs)
        return cross_entropy(logits, labels, label_smoothing=self.recipe.label_smoothing), logits

    def correct(self, logits: Tensor, labels: Tensor) -> Tensor:
        """Return whether each prediction is correct, as booleans (B,), or its score from 0 to 1."""
        return logits.argmax(dim=-1) == labels

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return the share of correct predictions, in percent, as accuracy or else the task's first metric.

        Raises:
            ValueError: there is no sample.
        """
        correct: float = 0
        total = 0
        for inputs, labels in batches:
            correct += self.correct(model(inputs), labels).sum().item()
            total += len(labels)
        if not total:
            raise ValueError("an empty split has no accuracy")
        metric = ACCURACY if ACCURACY in self.metrics else self.metrics[0]
        return {metric.name: 100.0 * (correct / total)}
