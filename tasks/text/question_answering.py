"""Extractive question answering: the part of a context that answers a question (Rajpurkar et al. 2016).

A long context is read in windows that overlap. As in transformers' example for SQuAD, the losses of start and end are
cross entropies over all positions, padding up to `max_length` among them; the target of a window without the answer is
its first token; and the answer is that of the best score in all windows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from dropbench.harness.predictions.schema import Ratio, content_id
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.task import Split
from dropbench.tasks.data.text.questions import QuestionData, QuestionSplit
from dropbench.tasks.text.base import TextTask
from dropbench.tasks.text.features import mask_features, pad_features
from dropbench.tasks.text.spec import F1, QuestionAnsweringSpec, TextRecipe
from dropbench.tasks.text.tokenizer import WindowTokenizer, split_words

EXACT_MATCH: Metric = QuestionAnsweringSpec.metrics[1]


@dataclass(frozen=True, eq=False)
class Window:
    """A question with a part of its context.

    Attributes:
        row: the question's number in its split.
        tokens: token ids (T,).
        features: further inputs of the model (T,).
        target: positions of the first and the last token of the answer.
        places: the characters of the context that each token has, first and end (T, 2); -1 for other tokens.
    """

    row: int
    tokens: Tensor
    features: Mapping[str, Tensor]
    target: tuple[int, int]
    places: NDArray[np.int32]


class QuestionAnswering(TextTask, QuestionAnsweringSpec):
    """Extractive question answering: the part of a context that answers a question."""

    @classmethod
    def sizes_for(cls, recipe: TextRecipe, classes: int) -> dict[str, Any]:
        return {"head": cls.head, "max_length": recipe.max_length, "vocabulary": 2, "classes": 2}

    def model_sizes(self) -> dict[str, Any]:
        return {**super().model_sizes(), "classes": 2}

    def setup(self) -> None:
        """Read the questions, build the vocabulary, and encode the windows."""
        data = self.read_data(QuestionData)
        self.splits: Mapping[str, QuestionSplit] = data.splits()
        texts = chain(data.train.questions, dict.fromkeys(data.train.contexts))
        self.tokenizer = self.make_tokenizer(map(split_words, texts))
        self.windows = {name: self.encode_split(name, rows) for name, rows in self.splits.items()}
        self.lengths = {name: [len(window.tokens) for window in windows] for name, windows in self.windows.items()}
        self.check_window()

    def encode_split(self, split: str, rows: QuestionSplit) -> list[Window]:
        """Return the windows of a split; note how many contexts and questions are too long for one."""
        tokenizer, windows, several, shortened = cast(WindowTokenizer, self.tokenizer), list[Window](), 0, 0
        questions = tokenizer.encode_windows(rows.questions, rows.contexts, self.recipe.max_length, self.recipe.stride)
        for row, (encoded, cut) in enumerate(questions):
            several, shortened = several + (len(encoded) > 1), shortened + cut
            answer, start = rows.answers[row][0]
            for inputs, spans in encoded:
                tensors = {name: torch.tensor(ids) for name, ids in inputs.items()}
                places = np.array([span or (-1, -1) for span in spans], np.int32)
                target = answer_tokens(spans, start, start + len(answer))
                windows.append(Window(row, tensors.pop("input_ids"), tensors, target, places))
        for count, what in ((several, "contexts are read in several windows"), (shortened, "questions are truncated")):
            if count:
                self.notes.append(f"{split}: {count:,} of {len(rows):,} {what} of max_length={self.recipe.max_length}")
        return windows

    def batch(self, split: Split, indices: Sequence[int]) -> dict[str, Any]:
        """Return token ids (B, T), further inputs (B, T), targets (B, 2) and numbers of the windows (B,).

        T is `max_length` on train, and that of the longest window on other splits.
        """
        windows = [self.windows[split][index] for index in indices]
        tokens = self.pad(split, [window.tokens for window in windows])
        more = self.recipe.max_length - tokens.shape[1] if split == "train" else 0
        batch: dict[str, Any] = {
            "tokens": pad(tokens, (0, more), value=self.tokenizer.padding),
            "targets": torch.tensor([window.target for window in windows]),
            "window": torch.tensor(list(indices)),
        }
        if windows[0].features:
            features = pad_features([window.features for window in windows])
            batch["features"] = {name: pad(ids, (0, more)) for name, ids in features.items()}
        return batch

    def mask_tokens(self, batch: dict[str, Any], share: float, generator: torch.Generator) -> dict[str, Any]:
        tokens = self.pad_words(batch["tokens"], share, generator)
        features = mask_features(batch.get("features", {}), tokens == self.tokenizer.padding)
        return {**batch, "tokens": tokens, **({"features": features} if features else {})}

    def num_loss_terms(self, batch: dict[str, Any]) -> float:
        """Return the number of windows."""
        return float(len(batch["targets"]))

    def loss(self, model: nn.Module, batch: dict[str, Any]) -> Tensor:
        """Return the mean cross entropy of starts and ends."""
        return self.loss_and_logits(model, batch)[0]

    def loss_and_logits(self, model: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """Return the mean cross entropy of starts and ends, and their logits (2 B, T)."""
        logits = self.logits(model, batch).transpose(1, 2).flatten(0, 1)
        return cross_entropy(logits, batch["targets"].flatten(), label_smoothing=self.recipe.label_smoothing), logits

    def logits(self, model: nn.Module, batch: dict[str, Any]) -> Tensor:
        """Return logits of starts and ends (B, T, 2)."""
        return cast(Tensor, model(batch["tokens"], batch.get("features")))

    def evaluate(self, model: nn.Module, split: Split, batches: Iterable[Any]) -> dict[str, float]:
        """Return F1 and exact match as SQuAD defines them, in percent."""

        def answer(batch: dict[str, Any]) -> list[tuple[int, float, int, int]]:
            logits = self.logits(model, batch).float().cpu().numpy()
            answers = []
            for index, scores in zip(batch["window"].tolist(), logits, strict=True):
                places = self.windows[split][index].places
                best = best_span(scores, places, self.recipe.n_best, self.recipe.max_answer)
                if best is not None:
                    answers.append((index, *best))
            return answers

        rows, best = self.splits[split], dict[int, tuple[float, int, int]]()
        for index, score, first, end in sorted(chain.from_iterable(self.map_batches(answer, batches))):
            row = self.windows[split][index].row
            if row not in best or score > best[row][0]:
                best[row] = score, first, end
        evaluated = sorted({window.row for window in self.windows[split]})
        texts = [rows.contexts[row][slice(*best[row][1:])] if row in best else "" for row in evaluated]
        scores = [answer_scores(text, rows.answers[row]) for row, text in zip(evaluated, texts, strict=True)]
        if self.recorder is not None:
            self.recorder.define(
                {"target": "text", "prediction": "text", "f1": "number", "exact": "number"},
                {name: Ratio(sum=column) for name, column in ((F1.name, "f1"), (EXACT_MATCH.name, "exact"))},
            )
            self.recorder.add(
                {"index": row, "target": rows.answers[row][0][0], "prediction": text, "f1": f1, "exact": exact}
                for row, text, (f1, exact) in zip(evaluated, texts, scores, strict=True)
            )
        return dict(zip((F1.name, EXACT_MATCH.name), np.mean(scores, axis=0).tolist(), strict=True))

    def example_id(self, split: Split, index: int) -> str:
        """Return an id by the question, its context and its first answer."""
        rows = self.splits[split]
        return content_id(rows.questions[index], rows.contexts[index], rows.answers[index][0][0])


def answer_tokens(spans: Sequence[tuple[int, int] | None], start: int, end: int) -> tuple[int, int]:
    """Return the first and the last token of an answer in a window; (0, 0) if the window does not have all of it.

    Args:
        spans: the characters of the context, first and end, of each token; None for tokens of other texts.
        start: the answer's first character; negative: it is not in the context.
        end: the character after its last one.
    """
    context = [position for position, span in enumerate(spans) if span is not None]
    places = [span for span in spans if span is not None]
    if not context or start < 0 or not (places[0][0] <= start and places[-1][1] >= end):
        return 0, 0
    first = bisect_right(places, start, key=lambda place: place[0]) - 1
    last = bisect_left(places, end, key=lambda place: place[1])
    return context[first], context[last]


def best_span(
    scores: NDArray[np.float32], places: NDArray[np.int32], n_best: int, max_answer: int
) -> tuple[float, int, int] | None:
    """Return the score of the best answer in a window, and its characters of the context, first and end.

    Args:
        scores: logits of starts and ends (T', 2), padding included.
        places: the characters of each token (T, 2), -1 outside of the context.
        n_best: number of the highest starts, and of the highest ends, that are combined.
        max_answer: maximum number of tokens.

    Returns:
        The sum of both logits, and the characters; None if no combination is an answer.
    """
    scores = scores[: len(places)]
    starts, ends = (np.argsort(column, kind="stable")[::-1][:n_best] for column in scores.T)
    lengths = ends[None, :] - starts[:, None] + 1
    valid = (lengths >= 1) & (lengths <= max_answer) & (places[starts, 0] >= 0)[:, None] & (places[ends, 0] >= 0)
    sums = np.where(valid, scores[starts, 0][:, None] + scores[ends, 1][None, :], -np.inf)
    first, last = np.unravel_index(sums.argmax(), sums.shape)
    if not valid[first, last]:
        return None
    return float(sums[first, last]), int(places[starts[first], 0]), int(places[ends[last], 1])


def answer_scores(prediction: str, answers: Sequence[tuple[str, int]]) -> tuple[float, float]:
    """Return F1 and exact match of a predicted answer, in percent: the best of those with each true answer."""
    from torchmetrics.functional.text import squad

    target: Any = {"id": "0", "answers": {"text": [text for text, _ in answers], "answer_start": [0] * len(answers)}}
    scores = squad([{"id": "0", "prediction_text": prediction}], [target])
    return float(scores["f1"]), float(scores["exact_match"])
