"""Translation (DropAttention, Section 5.4) with fairseq's task, batches, criterion and beam search."""

from __future__ import annotations

import math
import warnings
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data.data_utils import numpy_seed
from fairseq.optim.adam import Adam
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.predictions.schema import content_id
from dropbench.harness.seeding import derive, random_subset
from dropbench.harness.training.data_loading import to_device
from dropbench.harness.trials.sample_view import SampleView
from dropbench.harness.trials.task import Split
from dropbench.tasks.data import read
from dropbench.tasks.data.check import subset_notes
from dropbench.tasks.data.resolve import resolve_data
from dropbench.tasks.data.splits import SPLITS
from dropbench.tasks.data.translation.fairseq_binary import FAIRSEQ_SPLITS
from dropbench.tasks.data.translation.fairseq_preprocess import prepare
from dropbench.tasks.data.translation.parallel import TranslationData
from dropbench.tasks.translation.bleu import Scorer
from dropbench.tasks.translation.predictions import record_losses, record_translations
from dropbench.tasks.translation.smoothed_loss import smoothed_losses
from dropbench.tasks.translation.spec import TranslationRecipe, TranslationSpec

BATCH_MULTIPLE = 8
"""The number of sentences of a batch is a multiple of this where possible, as in fairseq."""


class Translation(TranslationSpec):
    """Translation of single sentences; the loss is the mean over target tokens.

    A pair with a side longer than the model's positions (in training also: than `max_tokens`) is left out and counted
    in a note. On test it is scored with an empty translation.
    """

    @classmethod
    def sizes_for(cls, recipe: TranslationRecipe, classes: int) -> dict[str, Any]:
        return {"source": 16, "target": 16, "joined": True}

    def model_sizes(self) -> dict[str, Any]:
        source, target = self.fairseq.source_dictionary, self.fairseq.target_dictionary
        return {"source": len(source), "target": len(target), "joined": source == target}

    def setup(self) -> None:
        """Binarize the text unless it is cached, and group the sentences into batches."""
        source = resolve_data(self.trial, self.settings)
        data = read(source, TranslationData)
        recipe = self.recipe
        self.prepared = prepare(data, source.fingerprint(), bpe_size=recipe.pieces, max_symbols=recipe.symbols)
        self.scorer = Scorer(data.target, tokenized=self.prepared.tokenized)
        self.notes += [*self.prepared.notes, *subset_notes(source, data), *self.scorer.notes()]
        pairs = self.prepared.pairs
        # The last three are the defaults of fairseq's command line.
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
            self.fairseq.load_dataset(FAIRSEQ_SPLITS[split])
            self._make_batches(split)
        self.batch_number = np.zeros(self.size("train"), np.int32)
        for number, batch in enumerate(self.batches["train"]):
            self.batch_number[batch] = number

    def _make_batches(self, split: str) -> None:
        """Group sentences of similar length into batches by tokens, as fairseq does."""
        dataset, recipe = self.fairseq.dataset(FAIRSEQ_SPLITS[split]), self.recipe
        positions = int(recipe.model.get("positions", 1024))  # default of `TranslationOptions`
        limit = min(positions, recipe.max_tokens) if split == "train" else positions
        seed = self.seed_of("order")
        seed = seed if recipe.order == "fairseq" else derive(seed, "batches") % 2**32
        with numpy_seed(seed):
            indices = dataset.ordered_indices()
        indices, self.too_long[split] = dataset.filter_indices_by_size(indices, (limit, limit))
        if not len(indices):
            raise InputError(f"data '{self.trial.data.name}': no pair of {split} has at most {limit} tokens per side")
        if count := len(self.too_long[split]):
            outcome = "scored as empty" if split == "test" else "left out"
            self.notes.append(f"{count_of(count, 'pair')} of {split} longer than {limit} tokens: {outcome}")
        tokens = recipe.max_tokens if split == "train" else max(recipe.max_tokens, positions)
        self.batches[split] = dataset.batch_by_size(
            indices, tokens, recipe.batch_size, required_batch_size_multiple=BATCH_MULTIPLE
        )

    def build_model(self) -> nn.Module:
        if self.recipe.order == "fairseq":
            torch.manual_seed(self.seed_of("init"))
        return super().build_model()

    @property
    def divides_gradients(self) -> bool:
        """See `Task.divides_gradients`; fairseq divides the gradients."""
        return self.recipe.order == "fairseq"

    def build_optimizer(self, model: nn.Module) -> Optimizer:
        """See `Task.build_optimizer`; fairseq's Adam adds ε to the second moment before its bias correction."""
        optimizer = super().build_optimizer(model)
        if self.recipe.order != "fairseq" or self.recipe.optimizer != "adam":
            return optimizer
        betas = (self.recipe.beta1, self.recipe.beta2)
        return cast(Optimizer, Adam(optimizer.param_groups, lr=self.recipe.lr, betas=betas))

    def size(self, split: Split) -> int:
        return len(self.fairseq.dataset(FAIRSEQ_SPLITS[split]))

    def epoch_seed(self, number: int) -> int:
        """See `Task.epoch_seed`; fairseq counts epochs from 1."""
        return self.seed_of("order") + number + 1 if self.recipe.order == "fairseq" else super().epoch_seed(number)

    def epoch(self, size: int, seed: int) -> Iterator[list[int]]:
        """Yield batches of `accumulate` micro-batches in random order; the last batch may have fewer."""
        batches = list(self.batches["train"])
        with numpy_seed(seed % 2**32):
            np.random.shuffle(batches)
        for start in range(0, len(batches), self.recipe.accumulate):
            yield np.concatenate(batches[start : start + self.recipe.accumulate]).tolist()

    def steps_per_epoch(self, size: int) -> int:
        return math.ceil(len(self.batches["train"]) / self.recipe.accumulate)

    def micro_batches(self, indices: list[int], parts: int) -> list[list[int]]:
        """Return the batches by tokens that `epoch` concatenated."""
        return [list(part) for _, part in groupby(indices, key=self.batch_number.__getitem__)]

    def evaluation_batches(self, split: Split, size: int) -> Iterator[list[int]]:
        """Yield batches by tokens, with every sentence that is not too long once."""
        for batch in self.batches[split]:
            yield batch.tolist()

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, Any]:
        """Return a batch for fairseq's criterion and generator: sources (B, S), padded on the left, targets (B, T)."""
        dataset = self.fairseq.dataset(FAIRSEQ_SPLITS[split])
        collated: dict[str, Any] = dataset.collater([dataset[index] for index in indices])
        if split == "train":
            return collated
        # fairseq sorts the samples by length; analyses of single samples need the order of `indices`.
        row_of = {index: row for row, index in enumerate(collated["id"].tolist())}
        rows = torch.tensor([row_of[index] for index in indices])
        inputs = {name: values[rows] for name, values in collated["net_input"].items()}
        return {**collated, "id": collated["id"][rows], "target": collated["target"][rows], "net_input": inputs}

    def num_loss_terms(self, batch: Any) -> float:
        """Return the number of target tokens."""
        return float(batch["ntokens"])

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        """Return the label-smoothed cross entropy in nats."""
        return self._loss_of(model, self._output(model, batch), batch)

    def loss_and_logits(self, model: nn.Module, batch: Any) -> tuple[Tensor, Tensor]:
        """Return the label-smoothed cross entropy in nats, and the logits (target tokens, vocabulary)."""
        output = self._output(model, batch)
        return self._loss_of(model, output, batch), output[0][batch["target"] != self.criterion.padding_idx]

    def _output(self, model: nn.Module, batch: Any) -> Any:
        """Return what fairseq's model returns: logits (B, T, vocabulary), and more."""
        with _ignore_mask_warning():
            return model(**batch["net_input"])

    def _loss_of(self, model: nn.Module, output: Any, batch: Any) -> Tensor:
        """Return the mean over target tokens; with `order: fairseq` the gradients, too, are fairseq's bit for bit."""
        if self.recipe.order == "fairseq":
            return cast(Tensor, self._sums(model, output, batch)[0] / batch["ntokens"])
        target = batch["target"].flatten()
        losses = smoothed_losses(output[0].flatten(0, 1), target, self.criterion.eps)
        total = losses.masked_fill(target == self.criterion.padding_idx, 0).sum()
        return cast(Tensor, total / batch["ntokens"])

    def _sums(self, model: nn.Module, output: Any, batch: Any) -> tuple[Tensor, Tensor]:
        """Return fairseq's sums over target tokens of the cross entropy with and without label smoothing."""
        model = getattr(model, "module", model)
        return cast(tuple[Tensor, Tensor], self.criterion.compute_loss(model, output, batch))

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return loss and perplexity by fairseq's criterion."""

        def score(batch: Any) -> tuple[Tensor, int]:
            output = self._output(model, batch)
            if self.recorder is not None:
                record_losses(self.recorder, self.criterion, output[0], batch)
            return torch.stack(self._sums(model, output, batch)).double().cpu(), batch["ntokens"]

        sums, tokens = torch.zeros(2, dtype=torch.float64), 0
        for values, number in self.map_batches(score, batches):
            sums += values
            tokens += number
        loss, plain = (sums / tokens).tolist()
        return {"loss": loss, "perplexity": math.exp(min(plain, 700.0))}

    def summary(self, model: nn.Module) -> dict[str, float]:
        """Return both BLEU scores of beam search on test."""
        device = next(model.parameters()).device
        translations = dict.fromkeys(self.too_long["test"], "")

        def translate(indices: Sequence[int]) -> dict[int, str]:
            return self.translate(model, to_device(self.batch("test", indices), device))

        for part in self.map_batches(translate, [*self.evaluation_batches("test", self.recipe.batch_size)]):
            translations.update(part)
        references = [self.reference(index) for index in range(self.size("test"))]
        if self.recorder is not None:
            record_translations(self.recorder, translations, references, self.scorer)
        return self.scorer([translations[index] for index in range(len(references))], references)

    def translate(self, model: nn.Module, batch: Any) -> dict[int, str]:
        """Return the best translation of each sentence of a test batch, by its index."""
        options = self.recipe.model_dump(include={"beam", "lenpen", "max_len_a", "max_len_b"})
        generator = self.fairseq.build_generator([model], Namespace(**options))
        with _ignore_mask_warning():
            hypotheses = generator.generate([model], batch)
        generator.model.set_decoder_beam_size(1)  # the beam size is kept in the modules
        best = (hypothesis[0]["tokens"].cpu() for hypothesis in hypotheses)
        return {index: self.decode(tokens) for index, tokens in zip(batch["id"].tolist(), best, strict=True)}

    def decode(self, tokens: Tensor, *, reference: bool = False) -> str:
        """Return token ids (T,) as text or Moses tokens; unknown tokens of a reference never match a translation."""
        joined = "@@ " if self.prepared.tokenized else "sentencepiece"  # fairseq's option that joins pieces to words
        return cast(str, self.fairseq.target_dictionary.string(tokens, joined, escape_unk=reference))

    def example_id(self, split: Split, index: int) -> str:
        """Return an id by the source and the reference as text."""
        pair = self.fairseq.dataset(FAIRSEQ_SPLITS[split])[index]
        joined = "@@ " if self.prepared.tokenized else "sentencepiece"
        target = self.reference(index) if split == "test" else self.decode(pair["target"])
        return content_id(self.fairseq.source_dictionary.string(pair["source"], joined), target)

    def reference(self, index: int) -> str:
        """Return the reference translation of a test sentence."""
        if self.prepared.references is not None:
            return self.prepared.references[index]
        return self.decode(self.fairseq.dataset("test")[index]["target"], reference=True)

    def sample_view(self, split: Split, index: int) -> SampleView:
        """Return the subwords of the source, with its translation as the label."""
        pair = self.fairseq.dataset(FAIRSEQ_SPLITS[split])[index]
        subwords = tuple(self.fairseq.source_dictionary[token] for token in pair["source"].tolist())
        return SampleView(self.decode(pair["target"]), words=subwords)

    def mask_tokens(self, batch: Any, share: float, generator: torch.Generator) -> dict[str, Any]:
        """See `Task.mask_tokens`; masked subwords of the source become padding, and its end token is never masked."""
        sources = batch["net_input"]["src_tokens"]
        pad, end = self.fairseq.source_dictionary.pad(), self.fairseq.source_dictionary.eos()
        mask = random_subset(((sources != pad) & (sources != end)).cpu(), share, generator).to(sources.device)
        return {**batch, "net_input": {**batch["net_input"], "src_tokens": sources.masked_fill(mask, pad)}}


@contextmanager
def _ignore_mask_warning() -> Iterator[None]:
    """Ignore torch's warning about masks of two types, which fairseq passes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Support for mismatched key_padding_mask and attn_mask")
        yield
