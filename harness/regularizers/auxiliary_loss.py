"""Auxiliary losses: terms that regularizers and models add to the loss of any task."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.output import SiteModule, WeightModule

MAX_PENDING = 32
"""Penalties of forward passes that may wait to be added to a loss."""


class AuxLoss(nn.Module, ABC):
    """A model with a loss of its own in addition to the task's, such as one that balances experts."""

    @abstractmethod
    def aux_loss(self) -> Tensor | None:
        """Return the scalar to add to the loss of the last training forward pass, once per pass; None: nothing."""


def modules_with_aux_loss(model: nn.Module) -> list[nn.Module]:
    """Return the modules of a model that may add to its loss. A training loop looks them up once, not at each step."""
    return [
        module
        for module in model.modules()
        if isinstance(module, SiteModule | WeightModule | AuxLoss) or _site_with_penalties(module) is not None
    ]


def _site_with_penalties(module: nn.Module) -> Site | None:
    """Return the attention site of a module whose regularizer adds penalties to it, or None."""
    site = getattr(module, "site", None)
    if not isinstance(site, Site) or site.regularizer is None:
        return None
    acting = [site, *site.parts]
    return site if any(part.regularizer is not None and part.regularizer.adds_penalties for part in acting) else None


def add_penalty(site: Site, term: Tensor) -> None:
    """Append a term of the loss to `Site.penalties`, unless activation checkpointing runs the forward pass again.

    Raises:
        InputError: nothing has collected the terms of many forward passes, or checkpointing passed gradients by.
    """
    if recomputing():
        if not site.observed:  # the first forward pass had no gradients
            raise InputError(f"{site.name}: its penalty has no gradient: checkpoint with use_reentrant=False")
        return
    if len(site.penalties) >= MAX_PENDING:
        raise never_collected(site, f"{MAX_PENDING} training forward passes")
    site.penalties.append(term)
    site.observed = True


def never_collected(site: Site, uses: str) -> InputError:
    """Return the error for a training loop that leaves the penalties of a site out of the loss."""
    return InputError(
        f"{site.name}: the penalties of {uses} were never collected: use"
        " `dropbench.training_loss(model, forward, batch)` as the loss"
    )


def penalty(model: nn.Module | Sequence[nn.Module], step: int) -> Tensor | None:
    """Return the penalty of all forward passes since the last call, to be added to the loss of these passes.

    Args:
        model: a model, or the result of `modules_with_aux_loss` for it.
        step: the optimizer step, from 0, for coefficients that have a schedule.

    Returns:
        a scalar: for each regularizer the mean over the sites that have its penalty, but the sum over weights, plus the
        model's own losses; None if there are none.

    Raises:
        InputError: a penalty that should have a gradient has none.
    """
    penalties: dict[int | None, list[Tensor]] = {}  # by regularizer; None: the modules of sites
    losses = []
    for module in modules_with_aux_loss(model) if isinstance(model, nn.Module) else model:
        if isinstance(module, SiteModule) and (term := module.penalty(step)) is not None:
            penalties.setdefault(None, []).append(term)
        if isinstance(module, WeightModule) and (term := module.penalty(step)) is not None:
            losses.append(term)
        site = _site_with_penalties(module)
        for part in () if site is None else (site, *site.parts):
            if part.penalties:
                mean = torch.stack(part.penalties).mean()  # over forward passes
                penalties.setdefault(id(part.regularizer), []).append(mean)
                part.penalties.clear()
        if isinstance(module, AuxLoss) and (term := module.aux_loss()) is not None:
            losses.append(term)
    losses += [torch.stack(terms).mean() for terms in penalties.values()]
    return torch.stack(losses).sum() if losses else None


def recomputing() -> bool:
    """Return whether a backward pass is under way: activation checkpointing then runs the forward pass again."""
    return not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1


def with_penalty(loss: Tensor, model: nn.Module | Sequence[nn.Module], step: int) -> Tensor:
    """Return a loss plus the model's penalty for the same forward pass; see `penalty`."""
    extra = penalty(model, step)
    return loss if extra is None else loss + extra


def coefficient(step: int, maximum: float, minimum: float = 0.0, rate: float = 0.0) -> float:
    """Return the coefficient of a penalty at a step (Learned Dropout, "Next steps": the exponential schedule).

    Args:
        step: optimizer step, from 0.
        maximum: the constant value, or the limit of a growing one.
        minimum: the value at step 0 of a growing one.
        rate: growth per step: exp(rate · step) − 1 + minimum, at most the maximum; 0: constant.
    """
    if rate == 0:
        return maximum
    # The exponent is clamped so that exp stays a float; the result is far above any maximum by then.
    return min(math.exp(min(rate * step, 500.0)) - 1.0 + minimum, maximum)
