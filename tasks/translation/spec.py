"""Spec of translation (DropAttention, Section 5.4): recipe and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe import Recipe
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.tasks.data import locate
from dropbench.tasks.data.read import read
from dropbench.tasks.preset_task import PresetTask


class TranslationRecipe(Recipe):
    """Hyper-parameters of translation; a batch is `accumulate` micro-batches of at most `max_tokens` tokens."""

    batch_size: int = Field(default=256, ge=1, description="maximum size of a micro-batch, in sentences")
    max_tokens: int = Field(default=4096, ge=1, description="maximum size of a micro-batch with padding, in tokens")
    pieces: int = Field(default=8000, ge=1, description="vocabulary size of the joint BPE of raw text")
    symbols: int = Field(default=32_768, ge=5, description="maximum size of the joint dictionary of subword text")
    order: Literal["dropbench", "fairseq"] = Field(
        default="dropbench", description="fairseq: same initial weights, batches and updates as fairseq-train --seed"
    )
    beam: int = Field(default=5, ge=1, description="width of the beam search")
    lenpen: float = Field(default=1.0, description="length penalty: scores are divided by length ** lenpen")
    max_len_a: float = Field(default=0.0, ge=0, description="a translation has at most a · source length + b tokens")
    max_len_b: int = Field(default=200, ge=1, description="the b of that maximum, in tokens")

    def unread(self, model: Mapping[str, Any]) -> dict[str, str]:
        return super().unread(model) | {"class_weights": "the task has no such loss"}


class TranslationSpec(PresetTask):
    """Translation of single sentences."""

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
        """See `Task.trial_for`; raises InputError also for the size of a vocabulary that the data do not need."""
        trial = super().trial_for(request, settings)
        if sizes := trial.overrides.keys() & {"pieces", "symbols"}:
            from dropbench.tasks.data.translation.parallel import TranslationData

            data = read(locate(request.data, settings.data, settings.folders), TranslationData)
            own = {"raw": "pieces", "bpe": "symbols"}.get(getattr(data, "form", ""))
            for key in sizes - {own}:
                raise InputError(f"recipe: {key}: not read for text of data '{request.data}': remove it")
        return trial
