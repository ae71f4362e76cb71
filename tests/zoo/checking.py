"""Checks what `regularize` promises of any model, site by site."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from dropbench import InputError, unregularize
from dropbench.harness.interception.models import OTHER_ATTENTION
from dropbench.harness.models.regularize import bind
from dropbench.harness.models.sites import ATTENTION_KINDS
from tests.zoo.counting import count, tensors

Run = Callable[[nn.Module], Any]
HIDDEN = 1e-4
"""The size of parameters that hide what a site does, such as scales of layers at the start of training."""


@dataclass
class Verdict:
    """The findings for one model.

    Attributes:
        attends: the number of modules that attend, by the independent count.
        bound: the number of regularized sites.
        skipped: the reasons of the others, with their number.
        problems: what does not hold; empty if all does.
    """

    attends: int
    bound: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def outcome(self) -> str:
        """Return "holds", "fails", "refused", "other attention" (none is over tokens), or "no attention"."""
        if self.problems:
            return "fails"
        if self.bound:
            return "holds"
        if any(reason in text for reason in OTHER_ATTENTION.values() for text in self.skipped):
            return "other attention"
        return "refused" if self.attends else "no attention"


def check(model: nn.Module, run: Run, regularizer: str = "dropkey", **params: Any) -> Verdict:
    """Regularize a model and check it: evaluation, keys, report, gradients, and that each site acts by itself.

    Args:
        model: a model; its parameters that are all about 0 are drawn anew: they would hide what a site does.
        run: calls it.
        regularizer: a regularizer of attention that changes its output.
        params: its parameters.
    """
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and (parameter.abs() < HIDDEN).all():
                parameter.normal_(std=0.1)
    model.eval()
    before, keys = _seeded(model, run), list(model.state_dict())
    is_repeatable = _equal(before, _seeded(model, run))
    counted = count(model, run)
    verdict = Verdict(len(counted.found))
    try:
        report = bind(model, regularizer, kinds=ATTENTION_KINDS, **params)
    except InputError as error:
        verdict.skipped[str(error).partition(": ")[2]] += 1
        return verdict
    bound = {site.name for site in report.bound}
    skipped = {site.name: reason for site, reason in report.skipped if site.kind in ATTENTION_KINDS}
    verdict.bound, verdict.skipped = len(bound), Counter(skipped.values())
    wrong = {
        "evaluation differs": is_repeatable and not _equal(before, _seeded(model, run)),
        "keys differ": list(model.state_dict()) != keys,
        f"not in the report: {sorted(counted.found - bound - skipped.keys())}": counted.found - bound - skipped.keys(),
        f"no attention: {sorted(bound & counted.called - counted.found)}": bound & counted.called - counted.found,
    }
    verdict.problems += [text for text, holds in wrong.items() if holds]
    idle = [name for name in sorted(bound & counted.found - counted.indifferent) if not _acts(model, name, run)]
    verdict.problems += [f"without effect: {idle}"] if idle else []
    for name in bound:
        model.get_submodule(name).train()
    outputs = [each for each in tensors(_seeded(model, run, grad=True)) if each.requires_grad]
    sum((each.square().mean() for each in outputs), start=torch.zeros(())).backward()
    if not all(each.grad is None or each.grad.isfinite().all() for each in model.parameters()):
        verdict.problems.append("gradients are not finite")
    unregularize(model.eval())
    return verdict


def _acts(model: nn.Module, name: str, run: Run) -> bool:
    """Return whether a site changes the output of its module if that alone is trained, without its own dropout."""
    module, seen = model.get_submodule(name), []
    hook = module.register_forward_hook(lambda module, inputs, output: seen.append(tensors(output)))
    rates = {each: each.p for each in module.modules() if isinstance(each, nn.Dropout)}
    for training in (False, True):
        module.train(training)
        for each in rates:
            each.p = 0.0
        _seeded(model, run)
    hook.remove()
    module.eval()
    for each, rate in rates.items():
        each.p = rate
    calls = len(seen) // 2
    return any(not _equal(first, second) for first, second in zip(seen[:calls], seen[calls:], strict=True))


def _seeded(model: nn.Module, run: Run, *, grad: bool = False) -> list[Tensor]:
    torch.manual_seed(0)
    with torch.set_grad_enabled(grad):
        return [each for each in tensors(_plain(run(model))) if each.is_floating_point()]


def _plain(output: Any) -> Any:
    return dict(output) if hasattr(output, "items") else output


def _equal(first: list[Tensor], second: list[Tensor]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(one.shape == two.shape and torch.equal(one.nan_to_num(), two.nan_to_num()) for one, two in pairs)
