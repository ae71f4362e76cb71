"""Spec of language modeling (Learned Dropout, "Results"): recipe, metrics, and the files of GPT-2's tokenizer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe import Recipe
from dropbench.tasks.data import Source
from dropbench.tasks.data.lines import read_file
from dropbench.tasks.preset_task import PresetTask

GPT2_FILES = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))
"""Names of the vocabulary and the merges: those of transformers, and those of OpenAI."""
GPT2_HOME = "https://huggingface.co/openai-community/gpt2"


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
        return {"tokenizer_digest": gpt2_digest(settings.data)} if recipe["tokenizer"] == "gpt2" else {}


def gpt2_files(root: Path) -> tuple[Path, Path]:
    """Return the paths of GPT-2's vocabulary and merges below the data root; raise InputError if they are missing."""
    folder = root / "gpt2"
    for names in GPT2_FILES:
        vocabulary, merges = (folder / name for name in names)
        if vocabulary.is_file() and merges.is_file():
            return vocabulary, merges
    raise InputError(
        f"tokenizer=gpt2: expected {' and '.join(GPT2_FILES[0])} in {folder} (set DROPBENCH_DATA for another folder); "
        f"get them from {GPT2_HOME}, or train a tokenizer with `--set tokenizer=bpe`"
    )


def gpt2_digest(root: Path) -> str:
    """Return a digest of both files for a trial's recipe; raises InputError if they are missing or unreadable."""
    digests = [hashlib.sha256(read_file(file)).hexdigest() for file in gpt2_files(root)]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:12]
