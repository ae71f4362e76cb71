"""Textual entailment (DropAttention, Section 5.3): the relation of a hypothesis to a premise."""

from __future__ import annotations

from harness.trials.samples import SampleView
from harness.trials.task import Split
from tasks.data.text.snli import PairData
from tasks.text.base import LabeledTextTask
from tasks.text.spec import TextualEntailmentSpec


class TextualEntailment(LabeledTextTask, TextualEntailmentSpec):
    """Textual entailment: one label per pair of texts; all splits are tokenized in the same way."""

    data_type = PairData
    fields = ("premises", "hypotheses")

    def sample_view(self, split: Split, index: int) -> SampleView | None:
        """Return None: premise and hypothesis are two rows of the encoder's input, and figures show one row."""
        return None
