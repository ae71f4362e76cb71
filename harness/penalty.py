"""What regularizers, and models themselves, add to the loss of any task."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from harness.feedforward import SiteModule


class OwnLoss(nn.Module, ABC):
    """A model with a loss of its own beside the task's, such as one that balances experts."""

    @abstractmethod
    def own_loss(self) -> Tensor | None:
        """What it adds to the loss of its last forward pass in training, a scalar, asked for once; None: nothing."""


def penalized(model: nn.Module) -> list[nn.Module]:
    """The modules of a model that may add to its loss. A loop looks them up once, not at each of its steps."""
    return [module for module in model.modules() if isinstance(module, SiteModule | OwnLoss)]


def penalty(model: nn.Module | Sequence[nn.Module], step: int) -> Tensor | None:
    """The penalty of the forward passes since it was last asked for, to be added to the loss of these passes.

    Args:
        model: regularised, or not; or what `penalized` says of it.
        step: the optimizer step, from 0, for coefficients that have a schedule.

    Returns:
        a scalar, the mean over all sites that have a penalty, and the model's own loss; None where there are none.

    Raises:
        InputError: the passes did not leave a gradient that they should have.
    """
    terms, own = [], []
    for module in penalized(model) if isinstance(model, nn.Module) else model:
        if isinstance(module, SiteModule) and (term := module.penalty(step)) is not None:
            terms.append(term)
        if isinstance(module, OwnLoss) and (term := module.own_loss()) is not None:
            own.append(term)
    if terms:
        own.append(torch.stack(terms).mean())
    return torch.stack(own).sum() if own else None


def with_penalty(loss: Tensor, model: nn.Module | Sequence[nn.Module], step: int) -> Tensor:
    """A loss with the model's penalty for the same forward pass; see `penalty`."""
    extra = penalty(model, step)
    return loss if extra is None else loss + extra


def coefficient(step: int, maximum: float, minimum: float = 0.0, rate: float = 0.0) -> float:
    """The factor of a penalty at a step (Learned Dropout, "Next steps": the exponential schedule).

    Args:
        step: optimizer step, from 0.
        maximum: the constant value, or where the growth ends.
        minimum: the value at step 0 of a growing one.
        rate: growth a step: exp(rate · step) − 1 + minimum, at most the maximum; 0: constant.
    """
    if rate == 0:
        return maximum
    # The exponent is cut where the result is far above any maximum, and still a float.
    return min(math.exp(min(rate * step, 500.0)) - 1.0 + minimum, maximum)
