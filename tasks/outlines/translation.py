"""Translation (DropAttention, Section 5.4), in outline."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from harness.recipe import Recipe
from harness.settings import Settings
from harness.task import Metric, Task
from harness.trial import Trial, TrialRequest
from tasks.making import make_trial


class TranslationRecipe(Recipe):
    """What translation adds to a recipe; a batch is `accumulate` micro-batches of at most `max_tokens` tokens."""

    batch_size: int = Field(default=256, ge=1, description="most sentences of a micro-batch")
    max_tokens: int = Field(default=4096, ge=1, description="most tokens of a micro-batch, source or target, padded")
    pieces: int = Field(default=8000, ge=1, description="size of the joint BPE of sets of raw text")
    symbols: int = Field(default=32_768, ge=5, description="largest joint dictionary of sets that come in pieces")
    order: Literal["dropbench", "fairseq"] = Field(
        default="dropbench",
        description="fairseq: initial weights, batches and each update are those of fairseq-train --seed",
    )
    beam: int = Field(default=5, ge=1, description="hypotheses of the beam search")
    lenpen: float = Field(default=1.0, description="exponent of the length that scores are divided by")
    max_len_a: float = Field(default=0.0, ge=0, description="a translation has at most a · source length + b tokens")
    max_len_b: int = Field(default=200, ge=1)


class TranslationOutline(Task):
    """Sentences of one language in another."""

    name: ClassVar[str] = "translation"
    recipe_type: ClassVar[type[Recipe]] = TranslationRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("loss", higher_is_better=False, unit=""),
        Metric("perplexity", higher_is_better=False, unit=""),
        Metric("bleu", unit=""),
        Metric("sacrebleu", unit=""),
    )
    recipe: TranslationRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        return make_trial(cls, request, settings)
