"""Compute the floors of a trial's data set, once for each version of its files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.files import canonical_json, read_json, write_json
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.data import Source
from dropbench.tasks.data.dataset import SPLIT_SEED
from dropbench.tasks.data.read import read_any
from dropbench.tasks.data.resolve import resolve_data
from dropbench.tasks.data.synthetic_cache import cache_folder
from dropbench.tasks.floors.floor import Floor
from dropbench.tasks.language.spec import LanguageRecipe
from dropbench.tasks.weights import weights_label

# Part of the key of the cache. Raise it when a floor changes.
RULES = 2
TOKENIZER = ("tokenizer", "vocabulary", "tokenizer_digest")
"""Recipe keys on which the floors of a language model depend."""

PIXELS = ("image_size", "channels", "center_crop", "interpolation", "normalization", "model")
"""Recipe keys on which the features of images depend."""


def read_by_floors(trial: Trial) -> dict[str, Any]:
    """Return all of a trial that its floors depend on: trials with the same values have the same floors."""
    names = (*TOKENIZER, *PIXELS, "seed_splits")
    recipe = {name: trial.recipe[name] for name in names if name in trial.recipe}
    seed = trial.seed if recipe.get("seed_splits") == "trial" else None
    weights = trial.weights and {"model": trial.model, **trial.weights.model_dump()}
    return {"task": trial.task, "data": trial.data.model_dump(), **recipe, "seed": seed, "weights": weights}


def floors(trial: Trial, settings: Settings) -> list[Floor]:
    """Return the floors of a trial's data on its own splits; [] for detection, meshes and the data of plug-ins.

    Images have a linear probe of the trial's initial weights, too. Floors are cached in
    ``$XDG_CACHE_HOME/dropbench/floors``.

    Raises:
        InputError: the data or the weights are missing, damaged, or differ from those of the trial.
    """
    source = resolve_data(trial, settings)
    key = {
        "rules": RULES,
        "data": trial.data.fingerprint,
        **({"splits": source.split_seed} if source.split_seed != SPLIT_SEED else {}),
        "kind": source.dataset.kind,
        "recipe": {name: trial.recipe[name] for name in TOKENIZER if name in trial.recipe},
        "scikit-learn": version("scikit-learn"),
    }
    computed = _cached(source, key, lambda: compute(source, trial, settings))
    if source.dataset.kind != "image-classification" or trial.weights is None:
        return computed
    from dropbench.tasks.floors.probe import PROBE_RULES, probe_floors

    recipe = {name: trial.recipe[name] for name in PIXELS if name in trial.recipe}
    weights = {"name": weights_label(trial), "digest": trial.weights.digest, "model": trial.model}
    key |= {"rules": PROBE_RULES, "recipe": recipe, "weights": weights}
    return [*computed, *_cached(source, key, lambda: probe_floors(trial, settings))]


def _cached(source: Source, key: Mapping[str, Any], compute_floors: Callable[[], list[Floor]]) -> list[Floor]:
    digest = hashlib.sha256(canonical_json(key).encode()).hexdigest()[:12]
    file = cache_folder(source.name) / "floors" / f"{source.name}-{digest}.json"
    with suppress(InputError, OSError, TypeError):
        return [Floor(**floor) for floor in read_json(file)]
    computed = compute_floors()
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, [asdict(floor) for floor in computed])
    return computed


def compute(source: Source, trial: Trial, settings: Settings) -> list[Floor]:
    """Return the floors of a source for a trial, without the cache."""
    kind = source.dataset.kind
    if kind == "language-modelling":
        from dropbench.tasks.floors.sequences import language_floors
        from dropbench.tasks.language.token_cache import load_tokens

        recipe = LanguageRecipe.model_validate(trial.recipe)
        return language_floors(load_tokens(source, recipe, settings.data), recipe.vocabulary)
    functions = _functions()
    data = read_any(source) if kind in {cls.kind for cls in functions} else None
    return next((function(data) for cls, function in functions.items() if isinstance(data, cls)), [])


def _functions() -> dict[type[Any], Callable[[Any], list[Floor]]]:
    """Return the function for each class of data; importing them imports torch and scikit-learn."""
    from dropbench.tasks.data.classification import ChoiceData, ImageClassificationData, TextClassificationData
    from dropbench.tasks.data.text.questions import QuestionData
    from dropbench.tasks.data.text.scored import ScoredData
    from dropbench.tasks.data.text.snli import PairData
    from dropbench.tasks.data.text.tagged import TaggedData
    from dropbench.tasks.data.translation.parallel import ParallelText
    from dropbench.tasks.floors import linear, sequences

    return {
        TextClassificationData: linear.text_floors,
        PairData: linear.pair_floors,
        ScoredData: linear.score_floors,
        ChoiceData: linear.choice_floors,
        ImageClassificationData: linear.image_floors,
        TaggedData: sequences.tag_floors,
        QuestionData: sequences.span_floors,
        ParallelText: sequences.translation_floors,
    }
