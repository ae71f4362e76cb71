"""Language modelling (Learned Dropout, "Results"), in outline."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from harness.recipe import Recipe
from harness.settings import Settings
from harness.task import Metric, Task
from harness.trial import Trial, TrialRequest
from tasks.making import make_trial


class LanguageRecipe(Recipe):
    """What a language model adds to a recipe. A sample is a window of the text; an epoch is one step."""

    context: int = Field(default=200, ge=2, description="tokens that a window predicts")
    tokenizer: Literal["bpe", "gpt2"] = Field(
        default="bpe", description="byte-level BPE of the train text, or GPT-2's in DROPBENCH_DATA/gpt2"
    )
    vocabulary: int = Field(default=50_257, ge=257, description="number of tokens")
    tokenizer_digest: str | None = Field(default=None, description="of GPT-2's files; filled in")
    evaluate_every: int | None = Field(default=500, ge=1, description="steps between evaluations")
    evaluation_batches: int = Field(default=200, ge=1, description="micro-batches that an evaluation looks at, at most")

    @model_validator(mode="after")
    def _in_steps(self) -> Self:
        if self.epochs is not None:
            raise ValueError("a language model is trained for steps, on windows drawn at random: expected steps")
        return self


class LanguageModellingOutline(Task):
    """The next token, scored by its cross entropy in nats."""

    name: ClassVar[str] = "language-modelling"
    recipe_type: ClassVar[type[Recipe]] = LanguageRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("loss", higher_is_better=False, unit=""),
        Metric("train-loss", higher_is_better=False, unit=""),
        Metric("perplexity", higher_is_better=False, unit=""),
        Metric("bits-a-byte", higher_is_better=False, unit=""),
        Metric("unigram-loss", higher_is_better=None, unit=""),
        Metric("kept", higher_is_better=None, unit="", optional=True),
        Metric("kept-in-evaluation", higher_is_better=None, unit="", optional=True),
        Metric("parameters", higher_is_better=None, unit="count"),
        Metric("active-parameters", higher_is_better=None, unit="count"),
    )
    recipe: LanguageRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`; raises InputError, too, where GPT-2's tokenizer is asked for and is not there."""
        trial = make_trial(cls, request, settings)
        if trial.recipe["tokenizer"] != "gpt2":
            return trial
        from tasks.gpt2_files import gpt2_digest

        return trial.model_copy(update={"recipe": {**trial.recipe, "tokenizer_digest": gpt2_digest(settings.data)}})
