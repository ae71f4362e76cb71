"""Which sites of a regularized model attend, and which change the output of their module, in one evaluation pass."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from dropbench.harness.models.sites import ATTENTION_KINDS, set_on_sites, sites_of, turn_off_dropout
from dropbench.harness.reach import Reach
from dropbench.harness.regularizers.base import Site

Run = Callable[[nn.Module], Any]
DRAWS = 16
"""Draws in which a site may change nothing by chance, such as a layer that is kept."""
CERTAIN_RATIO = 0.5
"""The least ratio of a site in these draws, so that something is dropped."""


@dataclass
class SiteEffect:
    """The effect of a site.

    Attributes:
        site: the site.
        module: the module that computes it.
        ratio: its ratio in the model.
        ran: whether its module was called.
        reached: whether it attends; for other kinds than attention, whether its module was called.
        acts: whether the regularizer changes its module's output in training, or adds a penalty.
        in_loss: whether the regularizer acts in `training_loss` alone.
    """

    site: Site
    module: nn.Module
    ratio: float
    ran: bool = False
    reached: bool = False
    acts: bool = False
    in_loss: bool = False

    @property
    def is_off(self) -> bool:
        """True if its ratio is 0, and it has no module that acts on an output nevertheless (learned-dropout)."""
        return self.ratio <= 0.0 and (self.site.module is None or self.site.kind == "weight")


def site_effects(model: nn.Module, run: Run) -> list[SiteEffect]:
    """Find what each regularized site does; the model does not stay as it was.

    In an evaluation pass, in which no layer is skipped, the module of each site runs once more in training, with this
    site alone regularized, at a ratio of at least `CERTAIN_RATIO`, and without any other dropout. Parameters that are
    all 0 are drawn anew, as they would hide what a site does.
    """
    model.eval()
    _prepare(model)
    effects = [
        SiteEffect(site, module, site.ratio) for module in model.modules() for site in sites_of(module)
        if site.regularizer is not None
    ]  # fmt: skip
    attention = [effect.site for effect in effects if effect.site.kind in ATTENTION_KINDS]
    reach = Reach((site.name for site in attention), in_evaluation=True)
    strengths = [_strengths(effect) for effect in effects]
    for effect in effects:
        _set_ratios(effect.site, {})
    hooks = [hook for effect, own in zip(effects, strengths, strict=True) for hook in _observe(effect, own)]
    with torch.no_grad(), set_on_sites(attention, "reach", reach):
        run(model)
    for hook in hooks:
        hook.remove()
    for effect in effects:
        site = effect.site
        computed = site.kind == "weight"  # a parametrization acts whenever something reads the weight
        effect.reached = computed or (reach.calls[site.name] > 0 if site.kind in ATTENTION_KINDS else effect.ran)
        effect.acts |= site.module is not None and effect.reached
    return effects


def _prepare(model: nn.Module) -> None:
    """Turn off all dropout but the regularizer's, and draw parameters anew that are all 0."""
    turn_off_dropout(model)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.is_floating_point() and not parameter.any():
                parameter.normal_(std=0.1)


def _strengths(effect: SiteEffect) -> dict[int, float]:
    """Return the ratios of the parts of a site that act in a forward pass, by identity."""
    parts = effect.site.parts or (effect.site,)
    acting = [part for part in parts if part.ratio > 0.0]
    own = [part for part in acting if part.regularizer is not None and not part.regularizer.has_objective]
    effect.in_loss = bool(acting) and not own
    return {id(part): max(part.ratio, CERTAIN_RATIO) for part in own}


def _set_ratios(site: Site, ratios: Mapping[int, float]) -> None:
    for part in site.parts or (site,):
        part.ratio = ratios.get(id(part), 0.0)
    site.ratio = max(part.ratio for part in site.parts or (site,))


def _observe(effect: SiteEffect, ratios: Mapping[int, float]) -> Iterator[Any]:
    """Hook into the module of a site to run it again in training, from copies of its inputs: caches change in place."""
    inputs: list[Any] = []

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        effect.ran = True
        if ratios and not effect.acts:
            inputs[:] = [copy.deepcopy((args, kwargs))]

    def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        if not ratios or effect.acts:
            return
        penalized = any(part.regularizer.adds_penalties for part in _parts(effect.site) if part.regularizer is not None)
        _set_ratios(effect.site, ratios)
        module.train()
        for _ in range(DRAWS):
            own_args, own_kwargs = copy.deepcopy(inputs[0])
            with torch.set_grad_enabled(penalized):
                regularized = module.forward(*own_args, **own_kwargs)
            effect.acts = _differ(output, regularized) or any(part.penalties for part in _parts(effect.site))
            if effect.acts:
                break
        module.eval()
        _set_ratios(effect.site, {})

    if effect.site.kind != "weight":
        yield effect.module.register_forward_pre_hook(before, with_kwargs=True)
        yield effect.module.register_forward_hook(after, with_kwargs=True)


def _parts(site: Site) -> tuple[Site, ...]:
    return (site, *site.parts)


def _differ(first: Any, second: Any) -> bool:
    """Return whether outputs differ by more than the rounding of another kernel."""
    for one, two in zip(tensors(first), tensors(second), strict=False):
        if not one.is_floating_point():
            continue
        if one.shape != two.shape:  # tokens were left out
            return True
        one, two = one.nan_to_num().float(), two.nan_to_num().float()
        tolerance = max(1e-5, 2 * torch.finfo(tensors(first)[0].dtype).eps)
        if float((one - two).norm()) > tolerance * float(one.norm()):
            return True
    return False


def tensors(output: Any) -> list[Tensor]:
    """Return the tensors in what a model returns, in order."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Mapping):
        output = list(output.values())
    elif is_dataclass(output) and not isinstance(output, type):
        output = list(vars(output).values())
    return [each for part in output for each in tensors(part)] if isinstance(output, list | tuple) else []
