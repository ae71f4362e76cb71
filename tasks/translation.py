"""Translation by fairseq's parts (DropAttention, Section 5.4): its task, batches, criterion and beam search."""

from __future__ import annotations

import math
import warnings
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import numpy as np
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data.data_utils import numpy_seed
from fairseq.optim.adam import Adam
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from harness.analysis.subset import random_subset
from harness.errors import InputError
from harness.feed import to_device
from harness.models import MODELS
from harness.recipe import Recipe
from harness.seeding import derive
from harness.task import Shown, Split
from harness.trial import Trial
from tasks.data import read
from tasks.data.binarise import prepare
from tasks.data.check import subset_notes
from tasks.data.fairseq_binary import NAMES
from tasks.data.parallel import SPLITS, TranslationData
from tasks.making import check_model, located
from tasks.outlines.translation import TranslationOutline
from tasks.translation_scores import Scorer

MULTIPLE = 8
"""Batches have a multiple of so many sentences where they can, as in fairseq."""


class Translation(TranslationOutline):
    """Sentences of one language in another; the loss is a mean over the target's tokens.

    A pair with a side that is longer than the model's positions (in training: than max_tokens, too) is left out and
    counted; in the scores of test it has an empty translation.
    """

    @classmethod
    def check(cls, trial: Trial) -> None:
        """See `Task.check`; the dictionary, which is not known yet, fits any model."""
        check_model(cls, trial, lambda recipe, _: _build(trial.model, recipe, 16, 16, joined=True))

    def setup(self) -> None:
        """Binarise the text, where that was not done before, and cut the sentences into batches."""
        source = located(self.trial, self.settings)
        data = read(source, TranslationData)
        recipe = self.recipe
        self.prepared = prepare(data, self.trial.data.fingerprint, pieces=recipe.pieces, symbols=recipe.symbols)
        self.scorer = Scorer(data.target, tokenised=self.prepared.tokenised)
        self.notes += [*self.prepared.notes, *subset_notes(source, data), *self.scorer.notes()]
        pairs = self.prepared.pairs
        # The last three are fairseq's defaults, which its command line fills in.
        config = TranslationConfig(
            data=str(pairs.folder),
            source_lang=pairs.source,
            target_lang=pairs.target,
            train_subset="train",
            dataset_impl="mmap",
            required_seq_len_multiple=1,
        )
        self.fairseq = TranslationTask.setup_task(config)
        self.criterion = LabelSmoothedCrossEntropyCriterion(self.fairseq, False, recipe.label_smoothing)
        self.batches: dict[str, list[NDArray[np.int64]]] = {}
        self.too_long: dict[str, list[int]] = {}
        for split in SPLITS:
            self.fairseq.load_dataset(NAMES[split])
            self._cut(split)
        self.batch_of = np.zeros(self.size("train"), np.int32)
        for number, batch in enumerate(self.batches["train"]):
            self.batch_of[batch] = number

    def _cut(self, split: str) -> None:
        """Batches by tokens of sentences of like length, as fairseq makes them."""
        dataset, recipe = self.fairseq.dataset(NAMES[split]), self.recipe
        limit = most = int(recipe.model.get("positions", 1024))  # as in `TranslationOptions`
        if split == "train":
            limit = min(limit, recipe.max_tokens)
        seed = self.trial.seed if recipe.order == "fairseq" else derive(self.trial.seed, "batches") % 2**32
        with numpy_seed(seed):
            indices = dataset.ordered_indices()
        indices, self.too_long[split] = dataset.filter_indices_by_size(indices, (limit, limit))
        if not len(indices):
            raise InputError(f"data '{self.trial.data.name}': no pair of {split} has at most {limit} tokens a side")
        if count := len(self.too_long[split]):
            told = "translated by nothing" if split == "test" else "left out"
            self.notes.append(f"{count:,} pair{'s' * (count > 1)} of {split} with a side of over {limit} tokens {told}")
        tokens = recipe.max_tokens if split == "train" else max(recipe.max_tokens, most)
        self.batches[split] = dataset.batch_by_size(
            indices, tokens, recipe.batch_size, required_batch_size_multiple=MULTIPLE
        )

    def build_model(self) -> nn.Module:
        """See `Task.build_model`."""
        if self.recipe.order == "fairseq":
            torch.manual_seed(self.trial.seed)
        source, target = self.fairseq.source_dictionary, self.fairseq.target_dictionary
        return _build(self.trial.model, self.recipe, len(source), len(target), joined=source == target)

    @property
    def divides_gradients(self) -> bool:
        """See `Task.divides_gradients`; fairseq does."""
        return self.recipe.order == "fairseq"

    def build_optimizer(self, model: nn.Module) -> Optimizer:
        """See `Task.build_optimizer`; fairseq's Adam has ε beside a second moment that is not yet corrected."""
        built = super().build_optimizer(model)
        if self.recipe.order != "fairseq" or self.recipe.optimizer != "adam":
            return built
        adam: Optimizer = Adam(built.param_groups, lr=self.recipe.lr, betas=(self.recipe.beta1, self.recipe.beta2))
        return adam

    def size(self, split: Split) -> int:
        """See `Task.size`."""
        return len(self.fairseq.dataset(NAMES[split]))

    def epoch_seed(self, number: int) -> int:
        """See `Task.epoch_seed`; fairseq counts epochs from 1."""
        return self.trial.seed + number + 1 if self.recipe.order == "fairseq" else super().epoch_seed(number)

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """`accumulate` micro-batches at a time, of all of them in random order; the last batch may have fewer."""
        batches = list(self.batches["train"])
        with numpy_seed(seed % 2**32):
            np.random.shuffle(batches)
        for start in range(0, len(batches), self.recipe.accumulate):
            yield np.concatenate(batches[start : start + self.recipe.accumulate]).tolist()

    def steps_an_epoch(self, size: int) -> int:
        """See `Task.steps_an_epoch`."""
        return math.ceil(len(self.batches["train"]) / self.recipe.accumulate)

    def micro_batches(self, indices: list[int], parts: int) -> list[list[int]]:
        """The batches by tokens that `epoch` put together."""
        return [list(part) for _, part in groupby(indices, key=self.batch_of.__getitem__)]

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """Batches by tokens, every sentence once that is not too long."""
        for batch in self.batches[split]:
            yield batch.tolist()

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, Any]:
        """As fairseq's criterion and generator take it: sources (B, S), padded on the left, and targets (B, T)."""
        dataset = self.fairseq.dataset(NAMES[split])
        collated: dict[str, Any] = dataset.collater([dataset[index] for index in indices])
        if split == "train":
            return collated
        # fairseq has sorted them by length; who looks at single samples knows them by their place.
        row_of = {index: row for row, index in enumerate(collated["id"].tolist())}
        rows = torch.tensor([row_of[index] for index in indices])
        inputs = {name: values[rows] for name, values in collated["net_input"].items()}
        return {**collated, "id": collated["id"][rows], "target": collated["target"][rows], "net_input": inputs}

    def weight(self, batch: Any) -> float:
        """Tokens of the target."""
        return float(batch["ntokens"])

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Label-smoothed cross entropy in nats."""
        loss: Tensor = self._losses(model, batch)[0] / batch["ntokens"]
        return loss

    def _losses(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """The sums of the smoothed loss and of the plain one over the target's tokens."""
        with _quiet_masks():
            output = model(**batch["net_input"])
        smoothed, plain = self.criterion.compute_loss(getattr(model, "module", model), output, batch)
        return smoothed, plain

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Loss and perplexity."""
        sums, tokens = torch.zeros(2, dtype=torch.float64), 0
        for batch in batches:
            sums += torch.stack(self._losses(model, batch)).double().cpu()
            tokens += batch["ntokens"]
        loss, plain = (sums / tokens).tolist()
        return {"loss": loss, "perplexity": math.exp(min(plain, 700.0))}

    def summary(self, model: nn.Module) -> dict[str, float]:
        """Both BLEU scores of what beam search finds for test."""
        device = next(model.parameters()).device
        found = dict.fromkeys(self.too_long["test"], "")
        for indices in self.evaluation_batches("test", self.recipe.batch_size):
            found.update(self.translate(model, to_device(self.batch("test", indices), device)))
        numbers = range(self.size("test"))
        return self.scorer([found[index] for index in numbers], [self.reference(index) for index in numbers])

    def translate(self, model: nn.Module, batch: Any) -> dict[int, str]:
        """The best translation of each sentence of a batch of test, by its number."""
        recipe = self.recipe
        options = {"beam": recipe.beam, "lenpen": recipe.lenpen}
        limits = {"max_len_a": recipe.max_len_a, "max_len_b": recipe.max_len_b}
        generator = self.fairseq.build_generator([model], Namespace(**options, **limits))
        with _quiet_masks():
            hypotheses = generator.generate([model], batch)
        generator.model.set_decoder_beam_size(1)  # the modules remember it
        best = (hypothesis[0]["tokens"].cpu() for hypothesis in hypotheses)
        return {index: self.words(tokens) for index, tokens in zip(batch["id"].tolist(), best, strict=True)}

    def words(self, tokens: Tensor, *, reference: bool = False) -> str:
        """Token ids (T,) as text or Moses tokens; an unknown token of a reference equals none of a translation."""
        dictionary, process = self.fairseq.target_dictionary, self.prepared.post_process
        text: str = dictionary.string(tokens, process, escape_unk=reference)
        return text

    def reference(self, index: int) -> str:
        """The translation of a sentence of test."""
        if self.prepared.references is not None:
            return self.prepared.references[index]
        return self.words(self.fairseq.dataset("test")[index]["target"], reference=True)

    def shown(self, split: Split, index: int) -> Shown:
        """The pieces of the source, with its translation as the label."""
        pair = self.fairseq.dataset(NAMES[split])[index]
        pieces = tuple(self.fairseq.source_dictionary[token] for token in pair["source"].tolist())
        return Shown(self.words(pair["target"]), words=pieces)

    def without_words(self, batch: Any, share: float, generator: torch.Generator) -> dict[str, Any]:
        """Pieces of the source become padding where they stand; its end stays."""
        sources = batch["net_input"]["src_tokens"]
        pad, end = self.fairseq.source_dictionary.pad(), self.fairseq.source_dictionary.eos()
        gone = random_subset(((sources != pad) & (sources != end)).cpu(), share, generator).to(sources.device)
        return {**batch, "net_input": {**batch["net_input"], "src_tokens": sources.masked_fill(gone, pad)}}


@contextmanager
def _quiet_masks() -> Iterator[None]:
    """fairseq gives torch masks of two types, which torch takes, with a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Support for mismatched key_padding_mask and attn_mask")
        yield


def _build(model: str, recipe: Recipe, source: int, target: int, *, joined: bool) -> nn.Module:
    return MODELS.get(model)(model, recipe.model, source=source, target=target, joined=joined)
