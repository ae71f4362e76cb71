"""Reference trials are marked as of an older rule if the current one would give them other numbers, and only then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from math import floor

import pytest
import torch

from dropbench.db.queries.marks import UNCHANGED, is_older, outdated_notes
from dropbench.db.reference.load import REFERENCE, open_reference
from dropbench.harness.regularizers.spec import part_names, split_params
from dropbench.harness.trials.trial import Trial

SIZES = range(2, 1025)
"""Numbers of patches, tokens, keys and dimensions."""


def in_float64(share: float, number: int) -> int:
    return int(share * number)


def in_float32(share: float, number: int) -> int:
    return int((share * torch.tensor(number)).long())


REST, SHARE = (lambda value: 1 - value), (lambda value: value)
ROUNDED: dict[str, tuple[str, Callable[..., Fraction], Callable[[float, int], int]]] = {
    "patchdropout": ("ratio", REST, in_float64),
    "masksub": ("ratio", REST, in_float64),
    "hiddencut": ("ratio", SHARE, in_float64),
    "dropdim": ("ratio", SHARE, in_float64),
    "ad-drop": ("region", REST, in_float32),
}
"""The parameter whose share of a number is rounded down, the share, and the product of result version 1."""
PENALTIES = {"attention-entropy", "disagreement", "diverse-attention"}


@pytest.fixture(scope="module")
def trials() -> Iterator[list[Trial]]:
    with open_reference(REFERENCE) as store:
        yield list(store.trials(list(store.states())).values())


def older(trial: Trial) -> bool:
    return is_older(trial.task, trial.model, trial.regularizer.name, trial.result_versions_text)


def test_the_trials_without_a_mark_have_the_numbers_of_the_current_rule(trials: list[Trial]) -> None:
    assert {f"regularizer {name}" for name in (*ROUNDED, *PENALTIES)} == UNCHANGED
    seen = set()
    for trial in trials:
        for name, params in split_params(trial.regularizer.name, trial.regularizer.params).items():
            if name in PENALTIES:  # version 2 counts the padding of a decoder otherwise
                assert trial.task in ("image-classification", "text-classification")
            elif name in ROUNDED:
                key, share, before = ROUNDED[name]
                assert trial.schedule == "constant"
                exact, written = share(Fraction(str(params[key]))), float(share(params[key]))
                assert all(before(written, number) == floor(exact * number) for number in SIZES), (name, params)
            seen.add(name)
    assert {*ROUNDED, *PENALTIES} <= seen
    assert in_float64(1 - 0.8, 20) == 3  # where version 1 differs


def test_the_trials_that_another_rule_trained_have_a_mark(trials: list[Trial]) -> None:
    marked = {name for trial in trials if older(trial) for name in part_names(trial.regularizer.name)}
    assert marked == {"attendout", "weight-orthogonality"}
    assert {note.split("regularizer ")[1].split(";")[0] for note in outdated_notes(trials) if "‡" in note} == marked


def test_ones_own_trials_of_an_older_rule_have_a_mark(trials: list[Trial]) -> None:
    trial = next(trial for trial in trials if trial.regularizer.name == "patchdropout")
    own = trial.model_copy(update={"result_versions": {}})
    assert older(own)
    assert not older(trial)
    assert outdated_notes([own]) != outdated_notes([trial])
