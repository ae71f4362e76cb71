"""Text classification (DropAttention, Section 5.1): one label per text."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from dropbench.harness.trials.sample_view import SampleView
from dropbench.harness.trials.task import Split
from dropbench.tasks.data import read
from dropbench.tasks.data.classification import TextClassificationData, TextSplit
from dropbench.tasks.data.resolve import resolve_data
from dropbench.tasks.text.spec import TextClassificationSpec
from dropbench.tasks.text.whole_text import LabeledTextTask


class TextClassification(LabeledTextTask, TextClassificationSpec):
    """Text classification: one label per text."""

    data_type = TextClassificationData
    fields = ("texts",)

    def sample_view(self, split: Split, index: int) -> SampleView:
        """Return the input tokens of a text, out-of-vocabulary tokens included."""
        tokens = self.tokenizer.tokenize(self.texts[split].texts[index])
        words = tuple(self.tokenizer.truncate(tokens, self.recipe.max_length))
        return SampleView(self.classes[int(self.labels[split][index])], words=words)

    @cached_property
    def texts(self) -> Mapping[str, TextSplit]:
        """The original texts, read again because training does not keep them in memory."""
        return read(resolve_data(self.trial, self.settings), TextClassificationData).splits()
