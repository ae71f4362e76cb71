"""Text regression: one score per text or per pair of texts, such as the similarity of two sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from dropbench.harness.predictions.recorder import shortest
from dropbench.harness.trials.task import Split
from dropbench.tasks.class_metrics import score_correlations
from dropbench.tasks.data.text.scored import ScoredData, ScoredSplit
from dropbench.tasks.text.spec import TextRecipe, TextRegressionSpec
from dropbench.tasks.text.whole_text import WholeTextTask


class TextRegression(WholeTextTask, TextRegressionSpec):
    """Text regression: one score per text or per pair of texts, by the mean squared error."""

    data_type = ScoredData

    @classmethod
    def sizes_for(cls, recipe: TextRecipe, classes: int) -> dict[str, Any]:
        return {**super().sizes_for(recipe, classes), "classes": 1}

    def model_sizes(self) -> dict[str, Any]:
        return {**super().model_sizes(), "classes": 1}

    def texts_of(self, rows: ScoredSplit) -> Sequence[Sequence[str]]:
        return list(zip(*rows.texts, strict=True))

    def targets_of(self, rows: ScoredSplit) -> Tensor:
        return torch.as_tensor(rows.scores, dtype=torch.float32)

    def loss(self, model: nn.Module, batch: tuple[Any, Tensor]) -> Tensor:
        """Return the mean squared error."""
        inputs, scores = batch
        return mse_loss(self.scores(model, inputs), scores)

    def scores(self, model: nn.Module, inputs: Any) -> Tensor:
        """Return predicted scores (B,)."""
        return self.logits(model, inputs).squeeze(-1)

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return the Pearson and the Spearman correlation of predicted and true scores, in percent."""

        def score(batch: Any) -> tuple[list[float], list[float]]:
            inputs, targets = batch
            predicted = self.scores(model, inputs).float()
            if self.recorder is not None:
                columns = shortest(targets.cpu()), shortest(predicted.cpu())
                self.recorder.define(
                    {"target": "number", "prediction": "number"},
                    corpus={metric.name: {"scorer": metric.name} for metric in self.metrics},
                )
                self.recorder.add({"target": true, "prediction": score} for true, score in zip(*columns, strict=True))
            return targets.tolist(), predicted.tolist()

        targets: list[float] = []
        predictions: list[float] = []
        for some_targets, some_predictions in self.map_batches(score, batches):
            targets += some_targets
            predictions += some_predictions
        return score_correlations(targets, predictions)
