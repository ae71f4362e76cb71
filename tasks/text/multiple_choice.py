"""Multiple choice: the right continuation of a text, or the right answer, among some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dropbench.tasks.data.classification import ChoiceData, ChoiceSplit
from dropbench.tasks.text.spec import MultipleChoiceSpec
from dropbench.tasks.text.whole_text import LabeledTextTask


class MultipleChoice(LabeledTextTask, MultipleChoiceSpec):
    """Multiple choice: the best of some choices for a text; the loss is the cross entropy over their scores.

    A pre-trained model gets text and choice as a pair, any other model as one text.
    """

    data_type = ChoiceData

    def texts_of(self, rows: ChoiceSplit) -> Sequence[Sequence[str]]:
        return [
            [f"{text} {choice}" for text, choice in zip(rows.texts, choices, strict=True)]
            for choices in zip(*rows.choices, strict=True)
        ]

    def pairs_of(self, rows: ChoiceSplit) -> Iterable[Sequence[tuple[str, str]]]:
        samples = zip(rows.texts, rows.choices, strict=True)
        return ([(text, choice) for choice in choices] for text, choices in samples)

    def head_of_sample(self) -> str:
        return self.head
