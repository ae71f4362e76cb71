"""The recipe key `seed_splits`: other splits of the same data, and a refusal where there is none to make."""

from __future__ import annotations

from typing import Any

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.trials.task import Task
from dropbench.tasks.data.splits import SPLITS
from tests.tasks.making import task_of, trial_of


def made(seed_splits: Any = None, *, seed: int = 0, data: str = "digits", **fields: Any) -> Task:
    """Return a task after `setup`."""
    overrides = {} if seed_splits is None else {"seed_splits": seed_splits}
    defaults = {"task": "image-classification", "model": "vit-digits"} | fields
    return task_of(Task, trial_of(data=data, overrides=overrides, seed=seed, **defaults))


def ids(task: Task, split: Any) -> list[str | None]:
    return [task.example_id(split, index) for index in range(task.size(split))]


TEXTS = {"task": "text-classification", "model": "text-transformer"}


@pytest.mark.parametrize(
    "fields",
    [{}, {"data": "mr-synthetic", **TEXTS}, {"data": "conll2000-synthetic", **TEXTS, "task": "sequence-labelling"}],
)
def test_another_seed_gives_other_splits_of_the_same_sizes(fields: dict[str, Any]) -> None:
    usual, same, other = made(**fields), made(2019, **fields), made(1, **fields)
    assert ids(same, "dev") == ids(usual, "dev")
    assert ids(other, "dev") != ids(usual, "dev")
    assert [other.size(split) for split in SPLITS] == [usual.size(split) for split in SPLITS]
    assert any("seed 1)" in note for note in other.notes)
    assert len({task.trial.id for task in (usual, same, other)}) == 3


def test_with_the_word_trial_the_seed_of_the_trial_decides() -> None:
    first, second = (made("trial", seed=seed) for seed in (0, 1))
    assert ids(first, "test") == ids(made(0), "test")
    assert ids(second, "test") == ids(made(1), "test")
    assert first.trial.config_id == second.trial.config_id


@pytest.mark.parametrize(
    "fields",
    [
        {"data": "snli-synthetic", "task": "textual-entailment", "model": "text-transformer"},
        {"data": "multi30k-synthetic", "task": "translation", "model": "transformer-wmt-en-de"},
        {"data": "wikitext-2-synthetic", "task": "language-modelling", "model": "learned-dropout-lm"},
    ],
)
def test_splits_of_the_data_are_left_as_they_are(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"seed_splits: no split of '.*' is made by a seed: remove seed_splits"):
        made(1, **fields)
