"""The tasks on text (DropAttention, Sections 5.1 to 5.3), in outline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from pydantic import Field, field_validator

from harness.errors import InputError, unknown_name
from harness.models import MODELS
from harness.recipe import Recipe
from harness.settings import Settings
from harness.task import Metric, Task
from harness.trial import Trial, TrialRequest
from tasks.data import DATASETS
from tasks.making import make_trial
from tasks.outlines.common import ACCURACY
from tasks.words import case_of

F1 = Metric("f1")
CHARACTERS = "characters"
SPELLING: dict[str, Callable[[str], str]] = {
    "prefix2": lambda word: word[:2].lower(),
    "prefix3": lambda word: word[:3].lower(),
    "suffix2": lambda word: word[-2:].lower(),
    "suffix3": lambda word: word[-3:].lower(),
    "case": case_of,
}
"""Features that a word's spelling gives."""


class TextRecipe(Recipe):
    """What text adds to a recipe."""

    max_length: int = Field(default=256, ge=1, description="tokens kept of a text")
    min_count: int = Field(default=1, ge=1, description="how often a word must occur in train to be known")
    lowercase: bool = True
    word_dropout: float = Field(default=0.0, ge=0, lt=1, description="share of words hidden in training")
    vectors: str | None = Field(
        default=None, description="pre-trained word vectors: a file or folder in DROPBENCH_DATA/vectors"
    )
    vectors_fingerprint: str | None = Field(default=None, description="of what `vectors` names; filled in")
    freeze_vectors: bool = False


class TaggingRecipe(TextRecipe):
    """What tagging adds."""

    features: tuple[str, ...] = Field(
        default=(),
        description=f"what a word is known by beside itself: {', '.join(SPELLING)}, {CHARACTERS}, a column of the data",
    )

    @field_validator("features", mode="before")
    @classmethod
    def _listed_features(cls, value: Any) -> Any:
        # As the command line gives it: names with commas between; "none" for none.
        if isinstance(value, str):
            return tuple(name for name in value.split(",") if name != "none")
        return value


class TextOutline(Task):
    """A task on text.

    Class attributes:
        head: what gets a label: "text", "words" or "pair".
    """

    head: ClassVar[str]
    recipe_type: ClassVar[type[Recipe]] = TextRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (ACCURACY,)
    recipe: TextRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`."""
        trial = make_trial(cls, request, settings)
        name = trial.recipe.get("vectors")
        if name is None:
            return trial
        from tasks.data.vectors import locate_vectors, vectors_fingerprint

        digest = vectors_fingerprint(locate_vectors(name, settings))
        return trial.model_copy(update={"recipe": {**trial.recipe, "vectors_fingerprint": digest}})


class TextClassificationOutline(TextOutline):
    """A label for each text; words are the tokens, the vocabulary is train's."""

    name: ClassVar[str] = "text-classification"
    head: ClassVar[str] = "text"


class TextualEntailmentOutline(TextOutline):
    """A label for each pair of texts; all splits are tokenised alike."""

    name: ClassVar[str] = "textual-entailment"
    head: ClassVar[str] = "pair"


class SequenceLabellingOutline(TextOutline):
    """A tag for each word. A sentence longer than `max_length` is tagged in parts, and scored whole."""

    name: ClassVar[str] = "sequence-labelling"
    head: ClassVar[str] = "words"
    recipe_type: ClassVar[type[Recipe]] = TaggingRecipe
    metrics: ClassVar[tuple[Metric, ...]] = (F1, ACCURACY, Metric("precision"), Metric("recall"))
    recipe: TaggingRecipe

    @classmethod
    def trial_for(cls, request: TrialRequest, settings: Settings) -> Trial:
        """See `Task.trial_for`; a feature that neither words nor the data have is refused here."""
        trial = super().trial_for(request, settings)
        known = [*SPELLING, CHARACTERS, *DATASETS.get(request.data).columns]
        for name in trial.recipe["features"]:
            if "tokenizer" in MODELS.entry(trial.model).facts:
                raise InputError(f"features={name}: model '{trial.model}' has tokens of its own, not words")
            if name not in known:
                raise unknown_name(f"feature of data '{request.data}'", name, known)
        return trial
