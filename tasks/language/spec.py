"""Spec of language modeling (Learned Dropout, "Results"): recipe, metrics and the making of trials."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from harness.settings import Settings
from harness.trials.metric import Metric
from harness.trials.recipe import Recipe
from harness.trials.trial import Trial, TrialRequest
from tasks.trial_factory import PresetTask


class LanguageRecipe(Recipe):
    """Hyper-parameters of language modeling; a sample is a window of the text, and an epoch is one step."""

    context: int = Field(default=200, ge=2, description="number of predicted tokens per window")
    tokenizer: Literal["bpe", "gpt2"] = Field(
        default="bpe", description="byte-level BPE of the train text, or GPT-2's in DROPBENCH_DATA/gpt2"
    )
    vocabulary: int = Field(default=50_257, ge=257, description="number of tokens")
    tokenizer_digest: str | None = Field(default=None, description="digest of GPT-2's tokenizer files; filled in")
    evaluate_every: int | None = Field(default=500, ge=1, description="steps between evaluations")
    evaluation_batches: int = Field(default=200, ge=1, description="maximum number of micro-batches per evaluation")

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if self.epochs is not None:
            raise ValueError("a language model is trained on random windows for a number of steps: expected steps")
        return self


class LanguageModellingSpec(PresetTask):
    """Language modeling: the next token, scored by cross entropy in nats."""

    name: ClassVar[str] = "language-modelling"
    recipe_type: ClassVar[type[Recipe]] = LanguageRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("loss", higher_is_better=False, unit=""),
        Metric("train-loss", higher_is_better=False, unit=""),
        Metric("perplexity", higher_is_better=False, unit=""),
        Metric("bits-per-byte", higher_is_better=False, unit=""),
        Metric("unigram-loss", higher_is_better=None, unit=""),
        Metric("kept", higher_is_better=None, unit="", optional=True),
        Metric("kept-in-evaluation", higher_is_better=None, unit="", optional=True),
        Metric("parameters", higher_is_better=None, unit="count"),
        Metric("active-parameters", higher_is_better=None, unit="count"),
    )
    recipe: LanguageRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`; raises InputError also if files of GPT-2's tokenizer are needed and missing."""
        trial = super().trial_for(request, settings)
        if trial.recipe["tokenizer"] != "gpt2":
            return trial
        from tasks.language.gpt2_files import gpt2_digest

        return trial.model_copy(update={"recipe": {**trial.recipe, "tokenizer_digest": gpt2_digest(settings.data)}})
