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
    """A task with one label per sample: a batch is inputs and labels (B,), the model returns logits (B, classes)."""

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

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return the share of correct predictions, in percent; raises ValueError if there is no sample."""
        correct = total = 0
        for inputs, labels in batches:
            correct += int((model(inputs).argmax(dim=-1) == labels).sum())
            total += len(labels)
        if not total:
            raise ValueError("an empty split has no accuracy")
        return {ACCURACY.name: 100.0 * (correct / total)}
