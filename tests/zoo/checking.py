"""Checks what `regularize` promises of any model, site by site."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from dropbench import InputError, Site, training_loss, unregularize
from dropbench.harness.interception.models import OTHER_ATTENTION
from dropbench.harness.models.regularize import OBJECTIVE, bind
from dropbench.harness.models.sites import ATTENTION_KINDS
from tests.zoo.counting import Count, count, tensors

Run = Callable[[nn.Module], Any]
HIDDEN = 1e-4
"""The size of parameters that hide what a site does, such as scales of layers at the start of training."""
DRAWS = 16
"""Draws in which a site may change nothing by chance, such as one that keeps all heads."""
ROUNDING = 1e-6
"""The relative difference of two kernels for the same attention, at most."""
DROPKEY = "dropkey:ratio=0.5"
METHODS = ("dropattention-c:ratio=0.5,window=2", "drophead:ratio=0.5", "attention-entropy", f"{DROPKEY} + r-drop")
"""A drop of columns, of heads, a penalty, and a comparison of two passes."""


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


@dataclass
class Plain:
    """A model without a regularizer, and what it computes."""

    model: nn.Module
    run: Run
    outputs: list[Tensor]
    is_repeatable: bool
    keys: list[str]
    counted: Count


def check(model: nn.Module, run: Run, regularizer: str = DROPKEY) -> Verdict:
    """Regularize a model and check it: evaluation, keys, report, gradients, and that each site acts by itself.

    Args:
        model: a model; its parameters that are all about 0 are drawn anew: they would hide what a site does. Its own
            dropout is turned off, which would hide a site that does nothing.
        run: calls it.
        regularizer: a regularizer of attention, as on the command line.
    """
    return check_each(model, run, regularizer)[0]


def check_each(model: nn.Module, run: Run, *regularizers: str) -> list[Verdict]:
    """Check several regularizers, one after the other; see `check`."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and (parameter.abs() < HIDDEN).all():
                parameter.normal_(std=0.1)
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("drop" in name or (name == "p" and "Drop" in type(module).__name__)):
                setattr(module, name, 0.0)
    model.eval()
    outputs = _seeded(model, run)
    is_repeatable = _equal(outputs, _seeded(model, run))
    plain = Plain(model, run, outputs, is_repeatable, list(model.state_dict()), count(model, run))
    return [_check(plain, regularizer) for regularizer in regularizers]


def _check(plain: Plain, regularizer: str) -> Verdict:
    model, run, counted = plain.model, plain.run, plain.counted
    verdict = Verdict(len(counted.found))
    try:
        report = bind(model, regularizer, kinds=ATTENTION_KINDS)
    except InputError as error:
        verdict.skipped[str(error).partition(": ")[2]] += 1
        return verdict
    if report.regularizer.has_objective:
        vars(model)[OBJECTIVE] = report.regularizer
    bound = {site.name for site in report.bound}
    skipped = {site.name: reason for site, reason in report.skipped if site.kind in ATTENTION_KINDS}
    verdict.bound, verdict.skipped = len(bound), Counter(skipped.values())
    wrong = {
        "evaluation differs": plain.is_repeatable and not _equal(plain.outputs, _seeded(model, run)),
        "keys differ": list(model.state_dict()) != plain.keys,
        f"not in the report: {sorted(counted.found - bound - skipped.keys())}": counted.found - bound - skipped.keys(),
        f"no attention: {sorted(bound & counted.called - counted.found)}": bound & counted.called - counted.found,
    }
    verdict.problems += [text for text, holds in wrong.items() if holds]
    sites = {model.get_submodule(site.name): site for site in report.bound}
    idle = bound & counted.found - counted.indifferent - _acting(model, sites, run)
    verdict.problems += [f"without effect: {sorted(idle)}"] if idle else []
    verdict.problems += _training_problems(model, sites, run)
    unregularize(model.eval())
    return verdict


def _acting(model: nn.Module, sites: dict[nn.Module, Site], run: Run) -> set[str]:
    """Return the sites that change the output of their module, or add to the loss, if they alone are trained.

    In an evaluation pass, the module of each site runs again in training, from copies of its inputs.
    """
    acting: set[str] = set()

    def observe(module: nn.Module, site: Site) -> Iterator[Any]:
        inputs: list[Any] = []

        def before(_: nn.Module, args: Any, kwargs: Any) -> None:
            inputs[:] = [copy.deepcopy((args, kwargs))]  # some modules change their inputs

        def after(_: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            if site.name in acting or any(each.training for each in sites):  # a module around this one runs again
                return
            _train(module, besides=sites)
            if any(_acts(module, site, output, *copy.deepcopy(inputs[0])) for _ in range(DRAWS)):
                acting.add(site.name)
            module.eval()

        yield module.register_forward_pre_hook(before, with_kwargs=True)
        yield module.register_forward_hook(after, with_kwargs=True)

    hooks = [hook for module, site in sites.items() for hook in observe(module, site)]
    _seeded(model, run)
    for hook in hooks:
        hook.remove()
    return acting


def _train(module: nn.Module, besides: Collection[nn.Module] = ()) -> None:
    """Train a module, but not its batch normalization, which changes outputs by itself, nor the modules of others."""
    for each in module.modules():
        each.training = each is module or (each not in besides and not isinstance(each, _BatchNorm))


def _acts(module: nn.Module, site: Site, output: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a module in training returns another output than in evaluation, or a penalty."""
    penalized = site.regularizer is not None and site.regularizer.adds_penalties
    with torch.set_grad_enabled(penalized):
        regularized = module.forward(*args, **kwargs)
    terms, site.penalties = site.penalties, []
    return bool(terms) or _differ(tensors(output), tensors(regularized))


def _training_problems(model: nn.Module, modules: Collection[nn.Module], run: Run) -> Iterator[str]:
    """Yield what is wrong with a training step in which some modules alone are trained."""
    passes: list[list[Tensor]] = []

    def forward(_: None) -> tuple[Tensor, Tensor]:
        outputs = [each for each in tensors(_plain(run(model))) if each.requires_grad]
        passes.append(outputs)
        loss = sum((each.square().mean() for each in outputs), start=torch.zeros(()))
        return loss, outputs[0] if outputs[0].dim() > 1 else outputs[0][None]

    for module in modules:
        _train(module)
    model.zero_grad()
    torch.manual_seed(0)
    training_loss(model, forward, None).backward()
    if len(passes) > 1 and _equal(*passes):
        yield "passes are equal"
    if not all(each.grad is None or each.grad.isfinite().all() for each in model.parameters()):
        yield "gradients are not finite"


def _seeded(model: nn.Module, run: Run) -> list[Tensor]:
    torch.manual_seed(0)
    with torch.no_grad():
        return [each for each in tensors(_plain(run(model))) if each.is_floating_point()]


def _plain(output: Any) -> Any:
    return dict(output) if hasattr(output, "items") else output


def _equal(first: list[Tensor], second: list[Tensor]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(one.shape == two.shape and torch.equal(one.nan_to_num(), two.nan_to_num()) for one, two in pairs)


def _differ(first: list[Tensor], second: list[Tensor]) -> bool:
    """Return whether outputs differ by more than the rounding of another kernel."""
    pairs = ((one.nan_to_num(), two.nan_to_num()) for one, two in zip(first, second, strict=True))
    return any(
        float((one - two).norm()) > ROUNDING * float(one.norm()) for one, two in pairs if one.is_floating_point()
    )
