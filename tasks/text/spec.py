"""Specs of the text tasks (DropAttention, Sections 5.1 to 5.3): recipes, metrics and the making of trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from dropbench.harness.errors import InputError, unknown_name
from dropbench.harness.models.catalog import MODELS
from dropbench.harness.settings import Settings
from dropbench.harness.trials.metric import Metric
from dropbench.harness.trials.recipe import OF_CLASSES, Recipe
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.tasks.classifier import ACCURACY
from dropbench.tasks.data import Source, locate
from dropbench.tasks.data.dataset import ClassMetric
from dropbench.tasks.data.fingerprint import fingerprint
from dropbench.tasks.preset_task import PresetTask
from dropbench.tasks.text.tokenizer import word_shape

F1 = Metric("f1")
CLASS_METRICS = tuple(Metric(name, optional=True) for name in get_args(ClassMetric) if name != ACCURACY.name)
"""Metrics that data sets with one class per text may have (`Dataset.metrics`)."""
CORRELATIONS = Metric("pearson"), Metric("spearman")
CHARACTERS = "characters"
SPELLING: dict[str, Callable[[str], str]] = {
    "prefix2": lambda word: word[:2].lower(),
    "prefix3": lambda word: word[:3].lower(),
    "suffix2": lambda word: word[-2:].lower(),
    "suffix3": lambda word: word[-3:].lower(),
    "case": word_shape,
}
"""Features computed from the spelling of a word."""
OF_WORDS = ("min_count", "lowercase", "vectors", "freeze_vectors")
"""Recipe keys of models whose tokens are words."""


class TextRecipe(Recipe):
    """Hyper-parameters of a text task; `of_pairs`: whether a sample may be two texts."""

    of_pairs: ClassVar[bool] = False
    max_length: int = Field(default=256, ge=1, description="maximum length of a text, in tokens")
    min_count: int = Field(default=1, ge=1, description="minimum occurrences in train of a word in the vocabulary")
    lowercase: bool = Field(default=True, description="words in small letters")
    order: Literal["random"] | None = Field(
        default=None, description="random: a batch has any texts; default: texts of similar length"
    )
    word_dropout: float = Field(default=0.0, ge=0, lt=1, description="share of words that training replaces by unknown")
    vectors: str | None = Field(default=None, description="word vectors: a file or folder in DROPBENCH_DATA/vectors")
    vectors_fingerprint: str | None = Field(default=None, description="fingerprint of `vectors`; filled in")
    freeze_vectors: bool = Field(default=False, description="keep the word vectors as they are")
    features: tuple[str, ...] | None = Field(
        default=None, description=f"features added to each word: {', '.join(SPELLING)}, {CHARACTERS}"
    )

    @field_validator("features", mode="before")
    @classmethod
    def _listed_features(cls, value: Any) -> Any:
        # The command line gives names separated by commas, or "none".
        names = tuple(name for name in value.split(",") if name != "none") if isinstance(value, str) else value
        return names or cls.model_fields["features"].default

    def unread(self, model: Mapping[str, Any]) -> dict[str, str]:
        own: dict[str, str] = {}
        if self.vectors is None:
            own["freeze_vectors"] = "not read without vectors"
        else:
            own["model.word_dim"] = "the dimension of embeddings is that of the vectors"
        if "tokenizer" in model:
            own |= dict.fromkeys(OF_WORDS, "the model has its own tokenizer")
            if not self.of_pairs:
                own["model.pairs"] = "only for pairs of texts"
            if "pooling" not in self.model and self.model.get("pairs") != "siamese":
                own["model.head_dropout"] = "the head of the library has its own"
        return super().unread(model) | own

    def refused_by(self, model: Mapping[str, Any]) -> set[str]:
        refused = super().refused_by(model) - {"model.head_dropout"}  # which a head of ours reads
        return refused | ({"features"} if "tokenizer" in model else set())


class PairRecipe(TextRecipe):
    """Hyper-parameters of a task on pairs of texts."""

    of_pairs: ClassVar[bool] = True


class ScoringRecipe(PairRecipe):
    """Hyper-parameters of text regression."""

    def unread(self, model: Mapping[str, Any]) -> dict[str, str]:
        return {**super().unread(model), **dict.fromkeys(OF_CLASSES, "the task has no such loss")}


class QuestionRecipe(TextRecipe):
    """Hyper-parameters of extractive question answering."""

    stride: int = Field(default=128, ge=0, description="tokens that neighboring windows of a context share")
    n_best: int = Field(default=20, ge=1, description="starts and ends of a window that are combined to an answer")
    max_answer: int = Field(default=30, ge=1, description="maximum number of tokens of an answer")

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if 2 * self.stride >= self.max_length:
            raise ValueError(f"stride={self.stride}: expected less than half of max_length={self.max_length}")
        return self

    def unread(self, model: Mapping[str, Any]) -> dict[str, str]:
        return {**super().unread(model), "features": "the task has none", "class_weights": "the task has no classes"}


class TaggingRecipe(TextRecipe):
    """Hyper-parameters of sequence labeling."""

    features: tuple[str, ...] = Field(
        default=(),
        description=f"features added to each word: {', '.join(SPELLING)}, {CHARACTERS}, a column of the data",
    )


class TextSpec(PresetTask):
    """A text task; `head` is the unit that is labeled: "text", "pair", "choice", "span" or "words"."""

    head: ClassVar[str]
    recipe_type: ClassVar[type[Recipe]] = TextRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY,)
    recipe: TextRecipe

    @classmethod
    def check_files(cls, recipe: Mapping[str, Any], source: Source, settings: Settings) -> dict[str, str]:
        name = recipe.get("vectors")
        if name is None:
            return {}
        from dropbench.tasks.data.text.word_vectors import locate_vectors

        path = locate_vectors(name, settings)
        return {"vectors_fingerprint": fingerprint(path.parent, [path])}

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`; raises InputError also for features that neither words nor the data have."""
        trial = super().trial_for(request, settings)
        valid = [*SPELLING, CHARACTERS, *locate(request.data, settings.data, settings.folders).dataset.columns]
        for name in trial.recipe.get("features", ()):
            if "tokenizer" in MODELS.entry(trial.model).facts:
                raise InputError(f"features={name}: model '{trial.model}' has its own tokenizer: expected no features")
            if name not in valid:
                raise unknown_name(f"feature of data '{request.data}'", name, valid)
        return trial


class TextClassificationSpec(TextSpec):
    """Text classification: one label per text."""

    name: ClassVar[str] = "text-classification"
    head: ClassVar[str] = "text"
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY, *CLASS_METRICS)


class TextualEntailmentSpec(TextSpec):
    """Textual entailment: one label per pair of texts; all splits are tokenized in the same way."""

    name: ClassVar[str] = "textual-entailment"
    head: ClassVar[str] = "pair"
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY, *CLASS_METRICS)
    recipe_type: ClassVar[type[Recipe]] = PairRecipe


class TextRegressionSpec(TextSpec):
    """Text regression: one score per text, or per pair of texts."""

    name: ClassVar[str] = "text-regression"
    head: ClassVar[str] = "text"
    recipe_type: ClassVar[type[Recipe]] = ScoringRecipe
    metrics: ClassVar[tuple[Metric, ...]] = CORRELATIONS


class MultipleChoiceSpec(TextSpec):
    """Multiple choice: the right one of some choices for a text."""

    name: ClassVar[str] = "multiple-choice"
    head: ClassVar[str] = "choice"


class QuestionAnsweringSpec(TextSpec):
    """Extractive question answering: the part of a context that answers a question."""

    name: ClassVar[str] = "question-answering"
    head: ClassVar[str] = "span"
    recipe_type: ClassVar[type[Recipe]] = QuestionRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (F1, Metric("exact-match"))
    recipe: QuestionRecipe


class SequenceLabellingSpec(TextSpec):
    """Sequence labeling: one tag per word. Sentences longer than `max_length` are tagged in parts."""

    name: ClassVar[str] = "sequence-labelling"
    head: ClassVar[str] = "words"
    recipe_type: ClassVar[type[Recipe]] = TaggingRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (F1, ACCURACY, Metric("precision"), Metric("recall"))
    recipe: TaggingRecipe
