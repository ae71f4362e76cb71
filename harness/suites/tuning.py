"""Candidates of a tuned preset: three values of the regularizer's strength, or of the learning rate without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.spec import class_of
from dropbench.harness.suites.search_space import RECIPE_PREFIX, Search, Sweep, sweep_for
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import TrialRequest
from dropbench.harness.validation import validated

LR_FACTORS = (0.5, 1.0, 2.0)
"""The learning rates of rows without a tuned parameter, the baseline's included, as multiples of the recipe's."""
LR = f"{RECIPE_PREFIX}lr"
DIGITS = 4
"""Significant digits of a learning rate."""


def tuned_sweep(request: TrialRequest, given: Mapping[str, Any], search: Search, where: str) -> Sweep | None:
    """Return the candidates of a cell; None if its task knows no learning rate before it reads data.

    Args:
        request: the cell's trials, with the values of suite and row.
        given: parameters that the user gave, which stay as they are.
        search: how the candidates are searched.
        where: the beginning of messages.

    Raises:
        InputError: the card or class of the regularizer declares a parameter that it does not have, or no list.
    """
    tuning = declared_tuning(request.regularizer)
    if tuning and not tuning.keys() & given.keys():
        return sweep_for(request.regularizer, dict(tuning), search, f"tuning of {request.regularizer}", strict=True)
    rate = _learning_rate(request)
    if rate is None:
        return None
    rates = [rate if factor == 1.0 else float(f"{rate * factor:.{DIGITS}g}") for factor in LR_FACTORS]
    fields = {"space": {LR: rates}, "search": search, "recipe": {LR: rate}}
    return validated(Sweep, fields, where, f"key of {where}")


def _learning_rate(request: TrialRequest) -> float | None:
    try:
        draft = spec_of(request.task).draft_for(request)
    except InputError:  # the cell's trials raise the same, and only if they are requested
        return None
    return draft.recipe.get("lr") if draft is not None else None


def declared_tuning(regularizer: str) -> Mapping[str, Any]:
    """Return the tuned values of a regularizer by parameter, of its card or else of its class; empty without any."""
    if regularizer not in REGULARIZERS:  # a composition, or a name that the trial will refuse
        return {}
    from dropbench.harness.regularizers.cards import find_card

    card = find_card(regularizer)
    return card.tuning if card is not None and card.tuning else class_of(regularizer).tuning
