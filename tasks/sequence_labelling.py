"""Sequence labelling (DropAttention, Section 5.2): one tag a word, for named entities, chunks and parts of speech."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.task import Metric, Shown, Split
from tasks.data.tagged import TaggedData, TaggedSplit
from tasks.making import read_noted
from tasks.outlines.common import ACCURACY
from tasks.outlines.text import CHARACTERS, F1, SPELLING, SequenceLabellingOutline
from tasks.text import TextTask
from tasks.words import PADDING, UNKNOWN, numbered

UNTAGGED = -100
"""Stands for a tag where there is no word."""
LONGEST_WORD = 24
"""Characters of a word that are looked at: its first half and its last."""


class SequenceLabelling(TextTask, SequenceLabellingOutline):
    """A tag for each word. A sentence longer than `max_length` is tagged in parts, and scored whole."""

    @property
    def selecting(self) -> Metric:
        """F1 of spans, or accuracy where the tags mark none (parts of speech)."""
        return F1 if self.data.scored == "spans" else ACCURACY

    def setup(self) -> None:
        """Read the sentences, make vocabularies of words and features, turn all into numbers."""
        self.data = read_noted(self, TaggedData)
        self.classes = self.data.classes
        self.splits: Mapping[str, TaggedSplit] = self.data.splits()
        self.tokenizer = self.make_tokenizer(self.data.train.words)
        numbers = {tag: number for number, tag in enumerate(self.classes)}
        self.features = {name: self.make_feature(name) for name in self.recipe.features}
        self.parts = {name: self.parts_of(name, split) for name, split in self.splits.items()}
        self.tokens: dict[str, list[Tensor]] = {}
        self.firsts: dict[str, list[Tensor]] = {}
        self.tags: dict[str, list[Tensor]] = {}
        for name, split in self.splits.items():
            parts = [(row, slice(start, end)) for row, start, end in self.parts[name]]
            made = [self.tokenizer.words(split.words[row][span]) for row, span in parts]
            self.tokens[name] = [torch.tensor(tokens) for tokens, _ in made]
            self.firsts[name] = [torch.tensor(first) for _, first in made if first is not None]
            self.tags[name] = [torch.tensor([numbers[tag] for tag in split.tags[row][span]]) for row, span in parts]
        self.lengths = {split: [len(tokens) for tokens in rows] for split, rows in self.tokens.items()}
        self.check_lengths()

    def make_feature(self, name: str) -> dict[str, int]:
        """The ids of a feature's values, from train."""
        train = self.splits["train"]
        if name == CHARACTERS:
            return numbered(character for words in train.words for word in words for character in word)
        if name in SPELLING:
            return numbered((SPELLING[name](word) for words in train.words for word in words), min_count=2)
        return numbered(value for values in train.columns[name] for value in values)

    def parts_of(self, name: str, split: TaggedSplit) -> list[tuple[int, int, int]]:
        """Sentence, first word and end of each part that is tagged by itself; notes how many sentences have several."""
        longest, parts, cut = self.recipe.max_length, list[tuple[int, int, int]](), 0
        for row, words in enumerate(split.words):
            _, first = self.tokenizer.words(words)
            start = 0
            while start < len(words):
                end = min(len(words), start + longest)
                if first is not None:
                    while end > start + 1 and len(self.tokenizer.words(words[start:end])[0]) > longest:
                        end -= 1
                parts.append((row, start, end))
                start = end
            cut += parts[-1][1] > 0
        if cut:
            self.notes.append(
                f"{name}: {cut:,} of {len(split):,} sentences are longer than max_length={longest}: tagged in parts"
            )
        return parts

    def known(self) -> dict[str, Any]:
        """See `TextTask.known`."""
        sizes = {name: UNKNOWN + 1 + len(values) for name, values in self.features.items()}
        return {**super().known(), **({"features": sizes} if sizes else {})}

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, Any]:
        """Token ids (B, T), feature ids (B, T) or (B, T, C), first tokens and tags (B, W), part numbers (B,)."""
        tags = [self.tags[split][index] for index in indices]
        batch: dict[str, Any] = {
            "tokens": self.padded(split, [self.tokens[split][index] for index in indices]),
            "tags": _padded(tags, UNTAGGED),
            "part": torch.tensor(list(indices)),
            "words": sum(map(len, tags)),
        }
        if self.features:
            batch["features"] = {name: self.feature_ids(split, indices, name) for name in self.features}
        if self.firsts[split]:
            batch["first"] = _padded([self.firsts[split][index] for index in indices], 0)
        return batch

    def feature_ids(self, split: str, indices: Sequence[int], name: str) -> Tensor:
        """The ids of one feature for the words of some parts."""
        values, rows = self.features[name], self.splits[split]
        spans = [self.parts[split][index] for index in indices]
        words = [rows.words[row][start:end] for row, start, end in spans]
        if name == CHARACTERS:
            kept = [[_ends(word) for word in sentence] for sentence in words]
            longest = max(len(word) for sentence in kept for word in sentence)
            ids = [
                torch.tensor(
                    [[values.get(c, UNKNOWN) for c in word] + [PADDING] * (longest - len(word)) for word in sentence]
                )
                for sentence in kept
            ]
            return _padded(ids, PADDING)
        if name in SPELLING:
            found = [[SPELLING[name](word) for word in sentence] for sentence in words]
        else:
            found = [list(rows.columns[name][row][start:end]) for row, start, end in spans]
        return _padded([torch.tensor([values.get(value, UNKNOWN) for value in row]) for row in found], PADDING)

    def tokens_of(self, batch: dict[str, Any]) -> Tensor:
        """See `TextTask.tokens_of`."""
        tokens: Tensor = batch["tokens"]
        return tokens

    def with_tokens(self, batch: dict[str, Any], tokens: Tensor) -> dict[str, Any]:
        """See `TextTask.with_tokens`; what is not shown has no features either."""
        hidden = tokens == self.tokenizer.padding
        features = {
            name: ids.masked_fill(hidden.view(*hidden.shape, *[1] * (ids.ndim - 2)), PADDING)
            for name, ids in batch.get("features", {}).items()
        }
        return {**batch, "tokens": tokens, **({"features": features} if features else {})}

    def weight(self, batch: dict[str, Any]) -> float:
        """The number of words."""
        return float(batch["words"])

    def loss(self, model: nn.Module, batch: dict[str, Any]) -> Tensor:
        """Cross entropy, the mean over words."""
        logits, smoothing = self.logits(model, batch), self.recipe.label_smoothing
        return cross_entropy(
            logits.flatten(0, 1), batch["tags"].flatten(), ignore_index=UNTAGGED, label_smoothing=smoothing
        )

    def logits(self, model: nn.Module, batch: dict[str, Any]) -> Tensor:
        """(B, W, classes)."""
        found: Tensor = model(batch["tokens"], batch.get("features"), batch.get("first"))
        return found

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Accuracy of tags, and F1, precision and recall of spans where they mark some, in percent."""
        tagged: dict[int, list[int]] = {}
        for batch in batches:
            found = self.logits(model, batch).argmax(dim=-1).cpu()
            for part, tags, wanted in zip(batch["part"].tolist(), found, batch["tags"].cpu(), strict=True):
                tagged[part] = tags[wanted != UNTAGGED].tolist()
        sentences: dict[int, list[str]] = {}
        wanted_tags: dict[int, list[str]] = {}
        for part in sorted(tagged):
            row, start, end = self.parts[split][part]
            sentences.setdefault(row, []).extend(self.classes[tag] for tag in tagged[part])
            wanted_tags.setdefault(row, []).extend(self.splits[split].tags[row][start:end])
        return scores(list(wanted_tags.values()), list(sentences.values()), spans=self.selecting is F1)

    def shown(self, split: Split, index: int) -> Shown:
        """The tokens of a part, those too that the model does not know."""
        row, start, end = self.parts[split][index]
        words, tags = self.splits[split].words[row][start:end], self.splits[split].tags[row][start:end]
        return Shown(" ".join(tags), words=tuple(self.tokenizer.pieces(words)))


def scores(wanted: list[list[str]], found: list[list[str]], *, spans: bool) -> dict[str, float]:
    """Score tags.

    Args:
        wanted: the right tags of each sentence.
        found: as many that a model gives.
        spans: whether they mark spans, in BIO; these count as conlleval counts them.

    Returns:
        accuracy, and for spans f1, precision and recall, all in percent; 0 where there is nothing to divide by.
    """
    pairs = [pair for one, other in zip(wanted, found, strict=True) for pair in zip(one, other, strict=True)]
    result = {ACCURACY.name: 100.0 * sum(one == other for one, other in pairs) / max(1, len(pairs))}
    if spans:
        from seqeval.metrics.sequence_labeling import precision_recall_fscore_support

        with warnings.catch_warnings():
            # It says of tags such as LST that they are none of named entities.
            warnings.simplefilter("ignore")
            precision, recall, f1, _ = precision_recall_fscore_support(wanted, found, average="micro", zero_division=0)
        result.update(f1=100.0 * float(f1), precision=100.0 * float(precision), recall=100.0 * float(recall))
    return result


def _padded(rows: Sequence[Tensor], value: int) -> Tensor:
    return nn.utils.rnn.pad_sequence(list(rows), batch_first=True, padding_value=value)


def _ends(word: str) -> str:
    return word if len(word) <= LONGEST_WORD else word[: LONGEST_WORD // 2] + word[-LONGEST_WORD // 2 :]
