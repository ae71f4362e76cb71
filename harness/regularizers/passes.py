"""The forward passes of a training step, for regularizers that change the loss or need several passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

Forward = Callable[[Any], tuple[Tensor, Tensor]]
"""A batch → the task's loss, and the logits (…, C) of its terms."""


class HasObjective(Protocol):
    """A `dropbench.harness.regularizers.base.Regularizer`, which imports this module."""

    @property
    def draws_per_batch(self) -> bool: ...

    def strength_at(self, progress: float | None) -> float: ...

    def passes_at(self, progress: float | None) -> int: ...

    def prepare(self, passes: Passes) -> None: ...

    def objective(self, passes: Passes) -> Tensor | None: ...


class Passes:
    """The forward passes of one micro-batch.

    Attributes:
        batch: the micro-batch.
        sites: the regularized sites of the model (`dropbench.harness.regularizers.base.Site`).
        progress: the share of all steps that are done, from 0 to 1; None: schedules are at their full strength.
        epoch: the epoch of the batch, from 0.
        loss: the task's loss, the mean over the regularized passes; set after `Regularizer.prepare`.
        logits: the logits (N, C) of the loss's N terms in each regularized pass, at least in float32; set with it.
    """

    def __init__(
        self, forward: Forward, batch: Any, sites: Sequence[Any], progress: float | None, epoch: int = 0
    ) -> None:
        self.batch, self.sites, self.progress, self.epoch = batch, sites, progress, epoch
        self.loss: Tensor
        self.logits: tuple[Tensor, ...]
        self._forward = forward

    def of(self, regularizer: HasObjective) -> Passes:
        """Return the same passes as one part of a composition sees them: with the sites of this part."""
        own = [part for site in self.sites for part in (site, *site.parts) if part.regularizer is regularizer]
        passes = Passes(self._forward, self.batch, own, self.progress, self.epoch)
        vars(passes).update({key: value for key, value in vars(self).items() if key in ("loss", "logits")})
        return passes

    def run(self, batch: Any) -> tuple[Tensor, Tensor]:
        """Pass a batch through the model; return the loss and the logits (N, C)."""
        loss, logits = self._forward(batch)
        logits = logits.flatten(0, -2) if logits.dim() > 2 else logits
        return loss, logits.to(torch.promote_types(logits.dtype, torch.float32))

    def strength(self, regularizer: HasObjective) -> float:
        """Return the regularizer's parameter `strength`, multiplied by its schedule over steps."""
        return regularizer.strength_at(self.progress)


def loss_of_passes(regularizer: HasObjective, passes: Passes, repeat: Callable[[Any, int], Any] | None) -> Tensor:
    """Return the loss of a micro-batch, the mean over the regularizer's passes, plus its objective.

    Several passes are one pass of a larger batch, which `repeat` makes, unless the regularizer draws once per batch.
    Penalties of passes before them (`Regularizer.prepare`) are no part of the loss.
    """
    regularizer.prepare(passes)
    for site in passes.sites:
        for part in (site, *site.parts):
            part.penalties.clear()
    number = regularizer.passes_at(passes.progress)
    if number == 1 or repeat is None or regularizer.draws_per_batch:
        losses, logits = zip(*(passes.run(passes.batch) for _ in range(number)), strict=True)
        passes.loss, passes.logits = torch.stack(losses).mean(), logits
    else:
        passes.loss, joined = passes.run(repeat(passes.batch, number))
        passes.logits = joined.chunk(number)
    term = regularizer.objective(passes)
    return passes.loss if term is None else passes.loss + term
