"""`check`: whether a regularizer acts in a model, and what it costs, tried on one batch."""

from __future__ import annotations

import copy
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dropbench.harness.checking.findings import Check, Finding
from dropbench.harness.checking.site_effects import Run, SiteEffect, site_effects, tensors
from dropbench.harness.errors import count_of
from dropbench.harness.models.regularize import OBJECTIVE, find_patches, unregularize
from dropbench.harness.models.sites import ATTENTION_KINDS, sites
from dropbench.harness.reach import NAMED
from dropbench.harness.regularizers.auxiliary_loss import with_penalty
from dropbench.harness.seeding import seed_all

MIN_ROUNDS, MIN_SECONDS = 5, 0.5
"""How often, and how long, training steps with and without the regularizer take turns; their medians are compared."""


def check(model: nn.Module, batch: Tensor | Mapping[str, Any] | Sequence[Any] | Callable[[nn.Module], Any]) -> Check:
    """Try a regularized model on one batch: does its regularizer act, and does it do nothing else?

    The checks: each site attends and changes the output of its module in training; the model's output in evaluation is
    equal, bit for bit, to that without the regularizer; the keys of the state dict are equal; gradients are finite; and
    how much longer a training step takes. All run on two copies, so the model and torch's random state do not change.

    A site with ratio 0, such as the last of a decreasing schedule, may do nothing if another acts. A site that does not
    attend fails, unless the model was regularized with ``unreached="ignore"``. The loss of a regularizer that changes
    the loss is not computed.

    Args:
        model: a model after `regularize`, before it is compiled or wrapped; without a regularizer, the check fails.
        batch: the model's argument, its keyword arguments, or a tuple or list of its arguments; or a function that runs
            the model that it gets and returns its output.

    Returns:
        the findings, which print as a table; ``ok`` is False if something fails.

    Raises:
        Exception: whatever the model raises for this batch without its regularizer.
    """
    run = _runner(batch)
    regularized = [site for site in sites(model) if site.regularizer is not None]
    objective = vars(model).get(OBJECTIVE)
    if not regularized and objective is None:
        missing = "nothing is regularized: call `dropbench.regularize(model, …)` first"
        return Check(type(model).__name__, (Finding("sites", "fails", missing),))
    acting = {type(site.regularizer).__name__ for site in regularized} or {type(objective).__name__}
    title = f"{' and '.join(sorted(acting))} in {type(model).__name__}"
    with same_random_state():
        plain, active = unregularize(copy.deepcopy(model)), copy.deepcopy(model)
        for site in sites(active):
            site.reach = None
        findings, slowdown = [_evaluation(plain, active, run), _keys(plain, active)], float("nan")
        _step(plain, run)
        try:
            findings.append(_gradients(active, run))
            slowdown = _slowdown(plain, active, run)
            effects = site_effects(active, run)
        except Exception as error:  # of the regularizer, as the model ran without it
            findings.append(Finding("training", "fails", f"{type(error).__name__}: {error}"))
            effects = []
    if effects:
        ignored = all(site.reach is None for site in regularized)
        names = {site.name for site in regularized}
        others = sum(each.site.kind in ATTENTION_KINDS and each.site.name not in names for each in find_patches(plain))
        attention = any(site.kind in ATTENTION_KINDS for site in regularized)
        findings = [*_of_sites(effects, others if attention else 0, ignored=ignored), *findings]
    if any(site.regularizer is not None and site.regularizer.has_objective for site in regularized) or objective:
        findings.append(Finding("loss", "unchecked", "the regularizer changes it: compute it by `training_loss`"))
    if slowdown == slowdown:  # it was measured
        findings.append(Finding("training step", "ok", f"{slowdown:.2f} × the time without the regularizer"))
    return Check(title, tuple(findings), slowdown)


def _runner(batch: Any) -> Run:
    if isinstance(batch, Mapping):
        return lambda model: model(**batch)
    if isinstance(batch, list | tuple):
        return lambda model: model(*batch)
    return batch if callable(batch) and not isinstance(batch, Tensor) else lambda model: model(batch)


@contextmanager
def same_random_state() -> Iterator[None]:
    """Restore the random generators that models draw from."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(python)
    np.random.set_state(numpy)


def _of_sites(effects: Sequence[SiteEffect], others: int, *, ignored: bool) -> Iterator[Finding]:
    """Yield how many sites act, and a line for each with which something is wrong; `others` are not regularized."""
    in_forward = [effect for effect in effects if not effect.in_loss]
    if not in_forward:
        yield Finding("sites", "unchecked", f"{count_of(len(effects), 'site')} act in `training_loss` alone")
        return
    acting = sum(effect.acts and effect.reached and not effect.is_off for effect in in_forward)
    off = sum(effect.is_off for effect in in_forward)
    wrong = [each for each in in_forward if not each.reached or not (each.acts or each.is_off)]
    failing = [effect for effect in wrong if effect.reached or not ignored]
    detail = f"{acting} of {len(in_forward)} sites act"
    if off:
        steps = any(each.site.scheduled_ratio > 0.0 for each in in_forward if each.is_off)
        detail += f", {off} with ratio 0" + (" (`set_progress` raises it in training)" if steps else "")
    if len(in_forward) < len(effects):
        detail += f", {len(effects) - len(in_forward)} more in `training_loss` alone"
    if others:
        detail += f"; {count_of(others, 'other attention module')} not regularized"
    yield Finding("sites", "fails" if failing or not acting else "ok", detail)
    for effect in wrong[:NAMED]:
        state, reason = "fails" if effect in failing else "unchecked", "no draw changes its output"
        if not effect.reached:
            reason = "its module ran, but did not attend" if effect.ran else "not reached: its module did not run"
        yield Finding(effect.site.name, state, reason)  # type: ignore[arg-type]
    if len(wrong) > NAMED:
        yield Finding("…", "fails" if failing else "unchecked", f"{len(wrong) - NAMED} more")


def _evaluation(plain: nn.Module, active: nn.Module, run: Run) -> Finding:
    """Compare the outputs in evaluation, also those of a second pass without the regularizer."""
    first, second, regularized = (_evaluated(model, run) for model in (plain, plain, active))
    if not _equal(first, second):
        return Finding("evaluation", "unchecked", "the model itself does not repeat its output")
    if _equal(first, regularized):
        return Finding("evaluation", "ok", "equal to the model without the regularizer, bit for bit")
    if _acts_in_evaluation(active):
        return Finding("evaluation", "ok", "differs, as the regularizer acts in evaluation, too")
    return Finding("evaluation", "fails", "differs from the model without the regularizer")


def _evaluated(model: nn.Module, run: Run) -> list[Tensor]:
    model.eval()
    seed_all(0)
    with torch.no_grad():
        return tensors(run(model))


def _equal(first: Sequence[Tensor], second: Sequence[Tensor]) -> bool:
    """Return whether outputs are equal, NaN to NaN."""
    if len(first) != len(second):
        return False
    pairs = list(zip(first, second, strict=True))
    return all(one.shape == two.shape and torch.equal(one.nan_to_num(), two.nan_to_num()) for one, two in pairs)


def _acts_in_evaluation(model: nn.Module) -> bool:
    return any(site.regularizer is not None and site.regularizer.acts_in_evaluation for site in sites(model))


def _keys(plain: nn.Module, active: nn.Module) -> Finding:
    before, now = list(plain.state_dict()), list(active.state_dict())
    if before == now:
        return Finding("state dict", "ok", f"equal keys ({len(now)})")
    added, lost = [key for key in now if key not in before], [key for key in before if key not in now]
    if not lost and _acts_in_evaluation(active):
        return Finding("state dict", "ok", f"{len(added)} more keys, of the regularizer's parameters")
    changed = f"{len(added)} more, {len(lost)} fewer" if added or lost else "in another order"
    return Finding("state dict", "fails", f"other keys: {changed}")


def _step(model: nn.Module, run: Run) -> None:
    """Compute gradients of all that the model returns, in training."""
    model.train()
    seed_all(0)
    outputs = [each for each in tensors(run(model)) if each.requires_grad]
    loss = sum((each[~each.isinf()].float().square().mean() for each in outputs), start=torch.zeros(()))
    loss = with_penalty(loss, model, 0)
    if loss.requires_grad:
        loss.backward()


def _gradients(active: nn.Module, run: Run) -> Finding:
    _step(active, run)
    gradients = {name: each.grad for name, each in active.named_parameters() if each.grad is not None}
    wrong = [name for name, gradient in gradients.items() if not gradient.isfinite().all()]
    if not gradients:
        return Finding("gradients", "fails", "no parameter has one")
    if wrong:
        return Finding("gradients", "fails", f"not finite for {len(wrong)} of {len(gradients)} parameters: {wrong[0]}")
    return Finding("gradients", "ok", f"finite ({count_of(len(gradients), 'parameter')})")


def _slowdown(plain: nn.Module, active: nn.Module, run: Run) -> float:
    """Return the time of a training step by that without the regularizer; both have run once."""
    times: dict[bool, list[float]] = {False: [], True: []}
    while len(times[True]) < MIN_ROUNDS or sum(times[True]) < MIN_SECONDS:
        for regularized in (False, True) if len(times[True]) % 2 else (True, False):
            model = active if regularized else plain
            model.zero_grad(set_to_none=True)
            started = _now()
            _step(model, run)
            times[regularized].append(_now() - started)
    return statistics.median(times[True]) / statistics.median(times[False])


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()
