"""Align expectation (DropKey, Section 3.2 and Table 4): what a trained model is made to do like in training.

A regularizer that is off in evaluation leaves the model with other attention weights than those that it was trained
with on average. ``monte-carlo-<n>`` evaluates the trained model with the mean of n draws; ``finetune`` goes on training
without the regularizer. Both begin with the weights that a trial with ``none`` selects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.trial import Trial

if TYPE_CHECKING:
    from torch import nn

    from harness.engine import Run
    from harness.regularizers.spec import RegularizerSpec

FINETUNE = "finetune"
FINETUNE_KEYS = frozenset({"finetune_epochs", "finetune_lr"})
"""What of a recipe is for the second phase alone, and no part of trials without one."""
MOST_DRAWS = 10**6
_MONTE_CARLO = re.compile(r"monte-carlo-([1-9]\d*)")


def draws_of(align: str) -> int:
    """How many draws an alignment averages in evaluation; 0 where it averages none."""
    found = _MONTE_CARLO.fullmatch(align)
    return int(found[1]) if found else 0


def checked_align(align: str, regularizer: RegularizerSpec) -> str:
    """An alignment as a trial holds it: "none" where there is nothing to align.

    Raises:
        InputError: there is no such alignment, or the regularizer is on in evaluation too.
    """
    from harness.regularizers.base import Regularizer

    if align not in ("none", FINETUNE) and not 0 < draws_of(align) <= MOST_DRAWS:
        raise InputError(
            f"align '{align}': expected none, finetune, or monte-carlo-<draws> such as monte-carlo-2000"
            f" (at most {MOST_DRAWS:,} draws)"
        )
    if align == "none" or regularizer.name == "none":
        return "none"
    built = regularizer.build()
    if type(built).site_module is not Regularizer.site_module:
        raise InputError(f"align '{align}': {regularizer.name} is on in evaluation too: expected none")
    return align if built.ratio > 0 else "none"


def sibling(trial: Trial) -> Trial:
    """The trial that is the same but for its alignment: its selected weights are where this one's alignment begins."""
    return trial.model_copy(
        update={
            "align": "none",
            "recipe": {key: value for key, value in trial.recipe.items() if key not in FINETUNE_KEYS},
            "overrides": {key: value for key, value in trial.overrides.items() if key not in FINETUNE_KEYS},
        }
    )


@dataclass(frozen=True)
class _Trained:
    """What the sibling of a trial has: its id, its result, and the weights that it selected."""

    id: str
    result: dict[str, Any]
    weights: dict[str, Any]


def _trained_sibling(trial: Trial, directory: RunDirectory) -> _Trained | None:
    """The sibling in the same runs folder where it is done and whole; None where the trial must train by itself."""
    if trial.align == "none":
        return None
    from harness import checkpoint  # which needs torch

    other = RunDirectory(directory.path.parent / sibling(trial).id)
    try:
        result = other.result()
        if result is None:
            return None
        weights = checkpoint.load_weights(other.path / "checkpoint", int(result["selected_step"]))
    except (InputError, checkpoint.Damaged, KeyError, TypeError, ValueError):
        return None
    return _Trained(other.id, result, weights)


def borrow(run: Run) -> None:
    """Take the first phase of a trial that begins over from its sibling, where that is done; events say so."""
    from harness import checkpoint

    source = _trained_sibling(run.task.trial, run.directory)
    if run.agreed(source is None) or source is None:
        return
    run.say(f"the weights that {source.id} has selected are taken over")
    if run.last > run.steps:
        finetune(run, source.weights, source.id)
        return
    progress, result = run.progress, source.result
    progress.step, progress.selected = result["steps"], result["selected_step"]
    progress.train_loss, run.ends["train"] = result["metrics"]["train/loss"], result["steps"]
    if run.accelerator.is_main_process:
        checkpoint.save_weights(run.checkpoints, run.selected(), source.weights)
    run.event("borrowed", step=1, weights_of=source.id)


def finetune(run: Run, weights: dict[str, Any], source: str) -> None:
    """Begin a run's second phase: from given weights, those of trial `source`, with all else afresh.

    Its steps are counted from where the first phase ends at the latest, and its selection sees its own weights alone:
    how the first phase went, and which trial went through it, makes no difference.
    """
    for model in (run.plain, run.evaluated()):
        model.load_state_dict(weights)
    if run.average is not None:
        run.average.n_averaged.zero_()
    run.optimizer.state.clear()
    if run.accelerator.scaler is not None:
        run.accelerator.scaler.load_state_dict(run.fresh_scaler)
    run.loss_sum.zero_()
    run.progress = type(run.progress)(step=run.steps, phase="finetune")
    drop_nothing(run.plain)
    run.event("phase", step=run.steps + 1, phase="finetune", weights_of=source)


def drop_nothing(model: nn.Module) -> None:
    """Let a regularised model drop nothing from here on; attention dropout of its own stays replaced."""
    from harness.binding import sites

    for site in sites(model):
        site.ratio = 0.0


@contextmanager
def monte_carlo(model: nn.Module, draws: int) -> Iterator[None]:
    """While it is open, a regularised model in evaluation attends with the mean weights of so many draws; 0: as ever.

    The draws are made anew for each forward pass and site, from torch's default generator.
    """
    from harness.binding import sites

    averaged = [site for site in sites(model) if site.regularizer is not None]
    before = [site.draws for site in averaged]
    with through_attend():
        for site in averaged:
            site.draws = draws
        try:
            yield
        finally:
            for site, was in zip(averaged, before, strict=True):
                site.draws = was


@contextmanager
def through_attend() -> Iterator[None]:
    """While it is open, torch's own encoder layers do not compute attention in one native call, past every module."""
    from torch import backends

    fast = backends.mha.get_fastpath_enabled()
    backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        backends.mha.set_fastpath_enabled(fast)
