"""Spec of language modeling (Learned Dropout, "Results"): recipe and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe import Recipe
from dropbench.tasks.data import Source
from dropbench.tasks.language.gpt2_files import gpt2_digest
from dropbench.tasks.preset_task import PresetTask


class LanguageRecipe(Recipe):
    """Hyper-parameters of language modeling; a sample is a window of the text, and an epoch is one step."""

    context: int = Field(default=200, ge=2, description="length of a window, in tokens")
    tokenizer: Literal["bpe", "gpt2"] = Field(
        default="bpe", description="byte-level BPE of the train text, or GPT-2's in DROPBENCH_DATA/gpt2"
    )
    vocabulary: int = Field(default=50_257, ge=257, description="number of tokens")
    tokenizer_digest: str | None = Field(default=None, description="digest of GPT-2's tokenizer files; filled in")
    evaluate_every: int | None = Field(default=500, ge=1, description="time between evaluations, in steps")
    evaluation_batches: int = Field(default=200, ge=1, description="maximum size of an evaluation, in micro-batches")

    def unread(self, model: Mapping[str, Any]) -> dict[str, str]:
        return super().unread(model) | {"class_weights": "the task has no such loss"}

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
    def check_files(cls, recipe: Mapping[str, Any], source: Source, settings: Settings) -> dict[str, str]:
        if recipe["tokenizer"] != "gpt2":
            return {}
        digest = gpt2_digest(settings.data)
        _check_gpt2(settings.data, recipe["vocabulary"], digest)
        return {"tokenizer_digest": digest}


@cache
def _check_gpt2(root: Path, vocabulary: int, digest: str) -> None:
    """Raise InputError if a tokenizer of this digest cannot be loaded or has another number of tokens."""
    from dropbench.tasks.language.bpe import load_gpt2  # which needs tokenizers

    load_gpt2(root, vocabulary)
