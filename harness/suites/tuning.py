"""Candidates of tuned presets, the same number for each row.

- `tuned: true`: three values of the regularizer's strength, or of the learning rate without one.
- `tuned: staged`: three learning rates, then three strengths with the best of these rates, one of which has been tried.
  A row without a strength has five learning rates.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.spec import class_of, complete_spec
from dropbench.harness.settings import MAX_SEEDS
from dropbench.harness.suites.search_space import RECIPE_PREFIX, Search, Sweep, sweep_for
from dropbench.harness.trials.task import spec_of
from dropbench.harness.trials.trial import TrialRequest

LR_FACTORS = (0.5, 1.0, 2.0)
"""The learning rates of rows without a tuned parameter, the baseline's included, as multiples of the recipe's."""
STAGED_LR_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The same of a staged preset: as many as a row with three strengths has candidates."""
TUNING_SEED = MAX_SEEDS
"""The first seed of candidates with seeds of their own: no table has it."""
LR = f"{RECIPE_PREFIX}lr"
DIGITS = 4
"""Significant digits of a learning rate."""


def tuned_sweep(
    request: TrialRequest, given: Mapping[str, Any], search: Search, where: str, *, staged: bool = False
) -> Sweep | None:
    """Return the candidates of a cell; None if its task knows no learning rate before it reads data.

    Args:
        request: the cell's trials, with the values of suite and row.
        given: parameters that the user gave, which stay as they are.
        search: how the candidates are searched.
        where: the beginning of messages.
        staged: take learning rates before strengths.

    Raises:
        InputError: the card or class of the regularizer declares a parameter that it does not have, or no list.
    """
    tuning = declared_tuning(request.regularizer)
    strengths = {} if tuning.keys() & given.keys() else dict(tuning)
    rate = _recipe_of(request).get("lr") if staged or not strengths else None
    if rate is None and not strengths:
        return None
    if staged:
        search = Search(sampler="staged")
    factors = STAGED_LR_FACTORS if staged and not strengths else LR_FACTORS
    rates = [rate if factor == 1.0 else float(f"{rate * factor:.{DIGITS}g}") for factor in factors] if rate else []
    space = {**({LR: rates} if rates else {}), **strengths}
    sweep = sweep_for(request.regularizer, space, search, f"tuning of {request.regularizer}", strict=True)
    return with_known_values(sweep, request) if sweep is not None and (staged or rates) else sweep


def with_known_values(sweep: Sweep, request: TrialRequest) -> Sweep:
    """Return a sweep with the values that its keys have without it, as far as recipe and regularizer define them."""
    params = complete_spec(request.regularizer, request.params).params if request.regularizer in REGULARIZERS else {}
    known = {f"{RECIPE_PREFIX}{key}": value for key, value in _recipe_of(request).items()}
    known |= {**params, "schedule": request.schedule, "align": request.align}
    return sweep.model_copy(update={"recipe": {key: known[key] for key in sweep.space if key in known}})


def _recipe_of(request: TrialRequest) -> Mapping[str, Any]:
    """Return the recipe of a cell, or else what overrides it if its task knows none before it reads data."""
    try:
        draft = spec_of(request.task).draft_for(request)
    except InputError:  # the cell's trials raise the same, and only if they are requested
        return {}
    return draft.recipe if draft is not None else request.overrides


def declared_tuning(regularizer: str) -> Mapping[str, Any]:
    """Return the tuned values of a regularizer by parameter, of its card or else of its class; empty without any."""
    if regularizer not in REGULARIZERS:  # a composition, or a name that the trial will refuse
        return {}
    from dropbench.harness.regularizers.cards import find_card

    card = find_card(regularizer)
    return card.tuning if card is not None and card.tuning else class_of(regularizer).tuning
