"""Alignment of the expected attention weights in training and evaluation (DropKey, Section 3.2 and Table 4).

A regularizer that is off in evaluation changes the mean attention weights that the model was trained with.
``monte-carlo-<n>`` evaluates the trained model with the mean of n draws; ``finetune`` continues training without the
regularizer. Both begin with the weights that a trial with ``none`` selects.
"""

from __future__ import annotations

import re

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers import BASELINES
from dropbench.harness.regularizers.spec import RegularizerSpec
from dropbench.harness.trials.trial import Trial

FINETUNE = "finetune"
FINETUNE_KEYS = frozenset({"finetune_epochs", "finetune_lr"})
"""Recipe keys of the second phase, which trials without one do not have."""
MAX_DRAWS = 10**6
_MONTE_CARLO = re.compile(r"monte-carlo-([1-9]\d*)")


def num_mc_samples(align: str) -> int:
    """Return the number of draws that an alignment averages in evaluation; 0 if it averages none."""
    match = _MONTE_CARLO.fullmatch(align)
    return int(match[1]) if match else 0


def validate_alignment(align: str, regularizer: RegularizerSpec) -> str:
    """Return the alignment, "none" if nothing aligns; raise InputError if unknown, or the regularizer is always on."""
    if align not in ("none", FINETUNE) and not 0 < num_mc_samples(align) <= MAX_DRAWS:
        raise InputError(
            f"align '{align}': expected none, finetune, or monte-carlo-<draws> such as monte-carlo-2000"
            f" (at most {MAX_DRAWS:,} draws)"
        )
    if align == "none" or regularizer.name in BASELINES:
        return "none"
    built = regularizer.build()
    if built.acts_in_evaluation:
        raise InputError(f"align '{align}': {regularizer.name} is on in evaluation too: expected none")
    return align if getattr(built, "ratio", 1.0) > 0 else "none"


def base_trial(trial: Trial) -> Trial:
    """Return the trial without alignment, from whose selected weights the alignment of `trial` begins."""
    recipe, overrides = (
        {key: value for key, value in values.items() if key not in FINETUNE_KEYS}
        for values in (trial.recipe, trial.overrides)
    )
    return trial.model_copy(update={"align": "none", "recipe": recipe, "overrides": overrides})
