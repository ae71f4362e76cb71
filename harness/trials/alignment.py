"""Align expectation (DropKey, Section 3.2 and Table 4): what a trained model is made to do like in training.

A regularizer that is off in evaluation leaves the model with other attention weights than those that it was trained
with on average. ``monte-carlo-<n>`` evaluates the trained model with the mean of n draws; ``finetune`` goes on training
without the regularizer. Both begin with the weights that a trial with ``none`` selects.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from harness.errors import InputError
from harness.trials.trial import Trial

if TYPE_CHECKING:
    from harness.regularizers.spec import RegularizerSpec

FINETUNE = "finetune"
FINETUNE_KEYS = frozenset({"finetune_epochs", "finetune_lr"})
"""What of a recipe is for the second phase alone, and no part of trials without one."""
MOST_DRAWS = 10**6
_MONTE_CARLO = re.compile(r"monte-carlo-([1-9]\d*)")


def num_mc_samples(align: str) -> int:
    """How many draws an alignment averages in evaluation; 0 where it averages none."""
    found = _MONTE_CARLO.fullmatch(align)
    return int(found[1]) if found else 0


def validate_alignment(align: str, regularizer: RegularizerSpec) -> str:
    """An alignment as a trial holds it: "none" where there is nothing to align.

    Raises:
        InputError: there is no such alignment, or the regularizer is on in evaluation too.
    """
    from harness.regularizers.base import Regularizer

    if align not in ("none", FINETUNE) and not 0 < num_mc_samples(align) <= MOST_DRAWS:
        raise InputError(
            f"align '{align}': expected none, finetune, or monte-carlo-<draws> such as monte-carlo-2000"
            f" (at most {MOST_DRAWS:,} draws)"
        )
    if align == "none" or regularizer.name == "none":
        return "none"
    built = regularizer.build()
    if type(built).site_module is not Regularizer.site_module:
        raise InputError(f"align '{align}': {regularizer.name} is on in evaluation too: expected none")
    return align if getattr(built, "ratio", 1.0) > 0 else "none"


def base_trial(trial: Trial) -> Trial:
    """The trial that is the same but for its alignment: its selected weights are where this one's alignment begins."""
    return trial.model_copy(
        update={
            "align": "none",
            "recipe": {key: value for key, value in trial.recipe.items() if key not in FINETUNE_KEYS},
            "overrides": {key: value for key, value in trial.overrides.items() if key not in FINETUNE_KEYS},
        }
    )
