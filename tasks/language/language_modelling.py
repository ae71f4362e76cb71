"""Language modeling (Learned Dropout, "Results"): the next token in windows of a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dropbench.harness.errors import CHANGED, Diverged, InputError
from dropbench.harness.models.mask_recorder import mask_statistics, mean_statistics
from dropbench.harness.predictions.recorder import Recorder
from dropbench.harness.predictions.schema import Ratio, content_id
from dropbench.harness.regularizers.auxiliary_loss import penalty
from dropbench.harness.regularizers.learned_dropout.mask import MaskStatistics
from dropbench.harness.training.data_loading import to_device
from dropbench.harness.trials.sample_view import SampleView
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.resolve import resolve_data
from dropbench.tasks.language.gpt2_files import gpt2_digest
from dropbench.tasks.language.spec import LanguageModellingSpec, LanguageRecipe
from dropbench.tasks.language.token_cache import bits_per_byte, load_tokens

TRAIN_BATCHES = 10
"""Number of batches on which the keep rate of masks in training is measured."""


class LanguageModelling(LanguageModellingSpec):
    """Language modeling: the next token, scored by cross entropy in nats.

    Training draws windows at random positions, which depend only on (seed, step). Evaluation uses adjacent windows. If
    a split has more of them than the recipe's `evaluation_batches` hold, a fixed, evenly spaced subset is used.
    """

    @classmethod
    def sizes_for(cls, recipe: LanguageRecipe, classes: int) -> dict[str, Any]:
        return {"vocabulary": recipe.vocabulary, "context": recipe.context}

    def setup(self) -> None:
        """Map the cached tokens into memory; the first trial with this data and tokenizer writes them."""
        recipe, name = self.recipe, self.trial.data.name
        source = resolve_data(self.trial, self.settings)
        if recipe.tokenizer == "gpt2" and gpt2_digest(self.settings.data) != recipe.tokenizer_digest:
            raise InputError(f"the files of GPT-2's tokenizer {CHANGED}")
        self.text = load_tokens(source, recipe, self.settings.data)
        for split, tokens in self.text.tokens.items():
            if len(tokens) <= recipe.context:
                raise InputError(
                    f"data '{name}': {split} has {len(tokens):,} tokens: expected more than context={recipe.context}"
                )
        self.notes = [*self.text.notes]
        held_out: tuple[Split, Split] = ("dev", "test")
        for split in held_out:
            scored = sum(len(batch) for batch in self.evaluation_batches(split, recipe.batch_size))
            total = self.size(split) // recipe.context
            if scored < total:
                self.notes.append(f"{split} is scored on {scored:,} of its {total:,} windows")

    def size(self, split: Split) -> int:
        """Return the number of positions at which a window may start."""
        return len(self.text.tokens[split]) - self.recipe.context

    def batch(self, split: Split, indices: Sequence[int]) -> Tensor:
        """Return token ids (B, context + 1) of the windows that start at `indices`."""
        tokens, length = self.text.tokens[split], self.recipe.context + 1
        windows = np.stack([tokens[start : start + length] for start in indices])
        return torch.from_numpy(windows.astype(np.int64))

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield one batch of windows at random positions."""
        generator = torch.Generator().manual_seed(seed)
        yield torch.randint(self.size("train"), (size,), generator=generator).tolist()

    def steps_per_epoch(self, size: int) -> int:
        """Return 1: windows are drawn with replacement, as in the source."""
        return 1

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """Yield micro-batches of adjacent windows; see `LanguageModelling` for splits with many windows."""
        length = max(1, size // self.recipe.accumulate)
        # The index of the last of all adjacent windows, and the maximum number of windows to yield.
        last, count = (self.size(split) - 1) // self.recipe.context, length * self.recipe.evaluation_batches
        windows = [index * last // count for index in range(count)] if last >= count else [*range(last + 1)]
        for start in range(0, len(windows), length):
            yield [window * self.recipe.context for window in windows[start : start + length]]

    def example_id(self, split: Split, index: int) -> str:
        """Return an id by the text of a window."""
        tokens = self.text.tokens[split][index : index + self.recipe.context + 1]
        return content_id(self.text.tokenizer.decode(tokens.tolist(), skip_special_tokens=False))

    def sample_view(self, split: Split, index: int) -> SampleView:
        """Return the tokens of a window as strings."""
        ids = self.text.tokens[split][index : index + self.recipe.context].tolist()
        words = tuple(self.text.tokenizer.decode([token]) for token in ids)
        return SampleView(f"{split}, from token {index:,}", words=words)

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the cross entropy of the next tokens in nats."""
        return self.loss_and_logits(model, batch)[0]

    def loss_and_logits(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the cross entropy of the next tokens in nats, and the logits (B·T, vocabulary)."""
        logits = model(batch[:, :-1]).flatten(0, 1)
        loss = cross_entropy(logits, batch[:, 1:].flatten(), label_smoothing=self.recipe.label_smoothing)
        return loss, logits

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return the loss without auxiliary terms, which is the source's validation loss, and metrics derived from it.

        ``kept-in-evaluation`` is the share of ones in all thresholded masks of Learned Dropout.
        """
        size = self.text.sizes[split]
        statistics: dict[str, MaskStatistics] = {}
        loss = self.mean_loss(model, batches, split, self.recorder, statistics)
        metrics = {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits-per-byte": bits_per_byte(loss, size),
            "unigram-loss": size.unigram_loss,
        }
        if self.recorder is not None:
            ratio = Ratio(sum="loss", over=("tokens",))
            ratios = {"loss": ratio, "perplexity": ratio.model_copy(update={"exponential": True})}
            ratios["bits-per-byte"] = ratio.model_copy(update={"scale": bits_per_byte(1.0, size)})
            self.recorder.define({"loss": "number", "tokens": "count"}, ratios)
        if statistics:
            metrics["kept-in-evaluation"] = mean_statistics(statistics)["kept"]
        return metrics

    def summary(self, model: nn.Module) -> dict[str, float]:
        """Return the loss on train, the keep rate of masks in training, and the numbers of parameters.

        ``train-loss`` is the source's train loss: in eval mode, without auxiliary terms. ``kept`` is the share of ones
        in all masks of Learned Dropout on train in training mode, as logged by the source.
        """
        device = next(model.parameters()).device
        batches = [*self.evaluation_batches("train", self.recipe.batch_size)]
        on_device = [to_device(self.batch("train", part), device) for part in batches]
        total, inactive = count_parameters(model), getattr(model, "inactive_parameters", 0)
        metrics = {
            "train-loss": self.mean_loss(model, on_device, "train"),
            "parameters": float(total),
            "active-parameters": float(total - inactive),
        }
        with mask_statistics(model) as statistics:
            if statistics:
                model.train()
                for part in batches[:: max(1, len(batches) // TRAIN_BATCHES)]:
                    model(to_device(self.batch("train", part), device)[:, :-1])
                    penalty(model, 0)  # discards the auxiliary loss, which would accumulate
                model.eval()
                metrics["kept"] = mean_statistics(statistics)["kept"]
        return metrics

    def mean_loss(
        self,
        model: nn.Module,
        batches: Iterable[Any],
        split: str,
        recorder: Recorder | None = None,
        statistics: dict[str, MaskStatistics] | None = None,
    ) -> float:
        """Return the mean cross entropy over all tokens of the batches; raises Diverged if it is not finite.

        A recorder gets the sum of each window, and `statistics` those of the masks of each site.
        """

        def score(batch: Tensor) -> tuple[Tensor, int, dict[str, dict[str, Any]]]:
            with mask_statistics(model) as recorded:
                logits = model(batch[:, :-1])
            loss = cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten(), reduction="sum").detach()
            if recorder is not None:
                # The metric stays the sum of the whole batch, whose last digits depend on the order of summation.
                chosen = logits.float().gather(2, batch[:, 1:, None]).squeeze(2).double()
                sums = (logits.float().logsumexp(dim=2).double() - chosen).sum(dim=1)
                recorder.add({"loss": loss, "tokens": batch.shape[1] - 1} for loss in sums.tolist())
            return loss, batch[:, 1:].numel(), {name: vars(sums) for name, sums in recorded.items()}

        total, count = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device), 0
        for loss, number, recorded in self.map_batches(score, batches):
            total += loss
            count += number
            if statistics is not None:
                for name, values in recorded.items():
                    statistics.setdefault(name, MaskStatistics()).merge(values)
        mean = total.item() / count
        if not math.isfinite(mean):
            raise Diverged(f"the loss on {split} became {mean}")
        return mean


def count_parameters(model: nn.Module) -> int:
    """Return the number of parameters without position embeddings, as counted by the source."""
    return sum(p.numel() for name, p in model.named_parameters() if "position_embedding" not in name)
