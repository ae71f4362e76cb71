"""Textual entailment (DropAttention, Section 5.3): the relation of a hypothesis to a premise."""

from __future__ import annotations

from dropbench.tasks.data.text.snli import PairData
from dropbench.tasks.text.spec import TextualEntailmentSpec
from dropbench.tasks.text.whole_text import LabeledTextTask


class TextualEntailment(LabeledTextTask, TextualEntailmentSpec):
    """Textual entailment: one label per pair of texts; all splits are tokenized in the same way.

    Figures show no samples, because they show one row of tokens, and a pair has two.
    """

    data_type = PairData
    fields = ("premises", "hypotheses")
