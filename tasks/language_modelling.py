"""Language modelling (Learned Dropout, "Results"): the next token, in windows of a running text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.errors import InputError
from harness.feed import to_device
from harness.mask_statistics import mask_statistics, mean_statistics
from harness.models import MODELS
from harness.penalty import penalty
from harness.task import Shown, Split
from harness.trial import Trial
from tasks.making import check_model, located
from tasks.outlines.language import LanguageModellingOutline, LanguageRecipe

TRAIN_BATCHES = 10
"""A tenth of the evaluation's batches shows how much is kept in training."""


class LanguageModelling(LanguageModellingOutline):
    """The next token, scored by its cross entropy in nats.

    Training draws windows anywhere in the text, each step's from (seed, step) alone. Evaluation looks at windows side
    by side; where a split has more of them than the recipe asks for, at some that are spread evenly, always the same.
    """

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`."""
        check_model(cls, trial, lambda recipe, _: _build(trial.model, cast(LanguageRecipe, recipe)))

    def setup(self) -> None:
        """Map the tokens into memory, made now if this is the first trial on this text with this tokenizer."""
        from tasks.gpt2_files import gpt2_digest
        from tasks.token_files import Vocabulary, token_files

        recipe, name = self.recipe, self.trial.data.name
        source = located(self.trial, self.settings)
        if recipe.tokenizer == "gpt2" and gpt2_digest(self.settings.data) != recipe.tokenizer_digest:
            raise InputError("the files of GPT-2's tokenizer have changed since the trial was made")
        vocabulary = Vocabulary(recipe.tokenizer, recipe.vocabulary, recipe.tokenizer_digest or "", self.settings.data)
        self.text = token_files(source, vocabulary)
        for split, tokens in self.text.tokens.items():
            if len(tokens) <= recipe.context:
                raise InputError(
                    f"data '{name}': {split} has {len(tokens):,} tokens: expected more than context={recipe.context}"
                )
        self.notes = [*self.text.notes]
        held_out: tuple[Split, Split] = ("dev", "test")
        for split in held_out:
            seen = sum(len(batch) for batch in self.evaluation_batches(split, recipe.batch_size))
            whole = self.size(split) // recipe.context
            if seen < whole:
                self.notes.append(f"{split} is scored on {seen:,} of its {whole:,} windows")

    def build_model(self) -> nn.Module:
        """See `Task.build_model`."""
        return _build(self.trial.model, self.recipe)

    def size(self, split: Split) -> int:
        """Number of places where a window may begin."""
        return len(self.text.tokens[split]) - self.recipe.context

    def batch(self, split: Split, indices: Sequence[int]) -> Tensor:
        """Windows by the places where they begin: (B, context + 1) token ids."""
        tokens, length = self.text.tokens[split], self.recipe.context + 1
        windows = np.stack([tokens[start : start + length] for start in indices])
        return torch.from_numpy(windows.astype(np.int64))

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """One batch of windows anywhere in the text."""
        generator = torch.Generator().manual_seed(seed)
        yield torch.randint(self.size("train"), (size,), generator=generator).tolist()

    def steps_an_epoch(self, size: int) -> int:
        """One: windows are drawn with replacement, as the source draws them."""
        return 1

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """Micro-batches of windows side by side; of more than the recipe asks for some, at equal distances."""
        length = max(1, size // self.recipe.accumulate)
        last, count = self.windows(split) - 1, length * self.recipe.evaluation_batches
        chosen = [index * last // count for index in range(count)] if last >= count else [*range(last + 1)]
        for start in range(0, len(chosen), length):
            yield [window * self.recipe.context for window in chosen[start : start + length]]

    def windows(self, split: Split) -> int:
        """How many windows lie side by side in a split."""
        return (self.size(split) - 1) // self.recipe.context + 1

    def shown(self, split: Split, index: int) -> Shown:
        """The tokens of a window as text."""
        ids = self.text.tokens[split][index : index + self.recipe.context].tolist()
        return Shown(
            f"{split}, from token {index:,}", words=tuple(self.text.tokenizer.decode([token]) for token in ids)
        )

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Cross entropy of each token by those before it, in nats."""
        logits = model(batch[:, :-1])
        return cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten(), label_smoothing=self.recipe.label_smoothing)

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """The loss without any penalty, which is the source's validation loss, and what follows from it.

        ``kept-in-evaluation`` is the share of ones in all masks of Learned Dropout, by the threshold.
        """
        from tasks.token_files import bits_a_byte

        size = self.text.sizes[split]
        with mask_statistics(model) as counted:
            loss = self.mean_loss(model, batches, split)
        found = {
            "loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits-a-byte": bits_a_byte(loss, size),
            "unigram-loss": size.unigram_loss,
        }
        if counted:
            found["kept-in-evaluation"] = mean_statistics(counted)["kept"]
        return found

    def summary(self, model: nn.Module) -> dict[str, float]:
        """The loss on train, the share that masks keep in training, and the numbers of parameters.

        ``train-loss`` is the source's train loss, in evaluation and without the penalty. ``kept`` is the share of ones
        in all masks of Learned Dropout as the source logged it, in training, on train.
        """
        device = next(model.parameters()).device
        batches = [*self.evaluation_batches("train", self.recipe.batch_size)]
        on_device = (to_device(self.batch("train", part), device) for part in batches)
        total, idle = parameters(model), getattr(model, "inactive_parameters", 0)
        found = {
            "train-loss": self.mean_loss(model, on_device, "train"),
            "parameters": float(total),
            "active-parameters": float(total - idle),
        }
        with mask_statistics(model) as counted:
            if counted:
                model.train()
                for part in batches[:: max(1, len(batches) // TRAIN_BATCHES)]:
                    model(to_device(self.batch("train", part), device)[:, :-1])
                    penalty(model, 0)  # nobody else asks for it
                model.eval()
                found["kept"] = mean_statistics(counted)["kept"]
        return found

    def mean_loss(self, model: nn.Module, batches: Iterable[Any], split: str) -> float:
        """Mean cross entropy over all tokens of the batches."""
        total, count = torch.zeros((), dtype=torch.float64, device=next(model.parameters()).device), 0
        for batch in batches:
            logits = model(batch[:, :-1])
            total += cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten(), reduction="sum").detach()
            count += batch[:, 1:].numel()
        mean = total.item() / count
        if not math.isfinite(mean):
            from harness.engine import Diverged

            raise Diverged(f"the loss on {split} became {mean}")
        return mean


def parameters(model: nn.Module) -> int:
    """Parameters as the source counts them: all but those of position embeddings."""
    return sum(p.numel() for name, p in model.named_parameters() if "position_embedding" not in name)


def _build(model: str, recipe: LanguageRecipe) -> nn.Module:
    return MODELS.get(model)(model, recipe.model, vocabulary=recipe.vocabulary, context=recipe.context)
