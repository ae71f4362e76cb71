"""Detect a regularizer that changes nothing, and sites or parameters that nothing reaches, before the first step."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError
from dropbench.harness.models.sites import ATTENTION_KINDS, set_on_sites, sites_of, turn_off_dropout
from dropbench.harness.reach import Reach, first_names
from dropbench.harness.regularizers.auxiliary_loss import with_penalty
from dropbench.harness.regularizers.base import Regularizer, Site
from dropbench.harness.regularizers.composition import Composition, Part
from dropbench.harness.regularizers.output import SiteModules
from dropbench.harness.seeding import derive, seed_all
from dropbench.harness.training.data_loading import StepBatches, to_device
from dropbench.harness.training.regularization import regularized_loss
from dropbench.harness.training.trainer import Trainer

DRAWS = 16
"""Draws in which a regularizer may change nothing by chance, such as one that skips few layers."""
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-5, 1e-4
"""Relative differences within rounding."""
CERTAIN_RATIO = 0.5
"""A ratio at which something would be dropped in `DRAWS` draws."""


def require_reach(trainer: Trainer) -> None:
    """Compute the loss of the first batch in evaluation mode, in which no layer is skipped, and count attention.

    A site on which the loss does not depend, such as those of a tower that the task does not use, is logged.

    Raises:
        InputError: a site does not attend, although the loss depends on parameters of its module.
    """
    attention = [site for site in trainer.bound_sites if site.kind in ATTENTION_KINDS]
    if not attention:
        return
    batch, reach = _first_batch(trainer), Reach((site.name for site in attention), in_evaluation=True)
    trainer.raw_model.eval()
    with torch.compiler.set_stance("force_eager"), trainer.accelerator.autocast():
        seed_all(derive(trainer.seed, "reach"))
        with torch.no_grad(), set_on_sites(attention, "reach", reach):
            trainer.task.loss(trainer.raw_model, batch)
        unused = _unused(trainer, batch, reach.missing)
    missing = [name for name in reach.missing if name not in unused]
    if unused:
        trainer.log(f"note: the loss does not depend on {len(unused)} regularized sites: {first_names(unused)}")
    if trainer.any_rank(bool(missing)):
        raise InputError(
            f"{len(missing)} of {len(attention)} regularized sites do not attend in a forward pass:"
            f" {first_names(missing)}: their attention is computed elsewhere, or by a kernel of its own; select other"
            " sites (`--set kinds=…`), or call attention in these modules"
        )


def _unused(trainer: Trainer, batch: Any, names: Sequence[str]) -> list[str]:
    """Return the sites of these names whose modules have parameters on which the loss in evaluation does not depend."""
    parameters = {
        site.name: [each for each in module.parameters() if each.requires_grad]
        for module in trainer.raw_model.modules() for site in sites_of(module) if site.name in names
    }  # fmt: skip
    own = [each for several in parameters.values() for each in several]
    if not own:
        return []
    loss = trainer.task.loss(trainer.raw_model, batch)
    gradients = torch.autograd.grad(loss, own, allow_unused=True) if loss.requires_grad else [None] * len(own)
    used = {id(each) for each, gradient in zip(own, gradients, strict=True) if gradient is not None}
    return [name for name, several in parameters.items() if several and used.isdisjoint(map(id, several))]


def _first_batch(trainer: Trainer) -> Any:
    """Return the first micro-batch of a run, on its device."""
    ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    batches = StepBatches(trainer.task, trainer.task.seed_of("order"), *ranks, trainer.settings.micro_batch_splits)
    return to_device(batches[0][0].batch, trainer.accelerator.device)


def require_effect(trainer: Trainer) -> None:
    """Compare the first batch with and without each part of the regularizer, on copies of the model.

    Schedules over steps are at their full strength.

    Raises:
        InputError: a part with a strength above 0 changes neither the loss nor the gradients.
    """
    parts = _parts(trainer.regularizer, trainer.task.trial.regularizer.name)
    strong = [index for index, part in enumerate(parts) if _has_strength(part.regularizer, trainer.bound_sites)]
    if not strong:
        return
    batch = _first_batch(trainer)
    with torch.compiler.set_stance("force_eager"):
        for index in strong:
            _require_effect(trainer, batch, index, strong)


def leaves_parameters_unused(trainer: Trainer) -> bool:
    """Return whether, in any process, the training loss of the first batch does not depend on all trained parameters.

    Such a parameter is the mask token of a pre-trained image model. The loss is that of a copy of the model.
    """
    every_part = range(len(_parts(trainer.regularizer, "")))
    model = _ModelCopy.of(trainer, every_part, 0.0, dropout=True)
    with torch.compiler.set_stance("force_eager"), trainer.accelerator.autocast():
        loss = model.loss(trainer, _first_batch(trainer), 0)
    parameters = [parameter for parameter in model.model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return trainer.any_rank(any(gradient is None for gradient in gradients))


def _require_effect(trainer: Trainer, batch: Any, index: int, strong: Sequence[int]) -> None:
    part = _parts(trainer.regularizer, trainer.task.trial.regularizer.name)[index]
    several = part.regularizer.num_passes > 1
    # A part that compares passes needs those that make them differ, dropout included. Any other is alone: random
    # numbers that it draws would shift those of the others, which would look like an effect.
    acting, without = (strong, [other for other in strong if other != index]) if several else ([index], [])
    for ratio in (0.0, CERTAIN_RATIO):
        models = [_ModelCopy.of(trainer, kept, ratio, dropout=several) for kept in (acting, without)]
        if trainer.any_rank(_differ(trainer, batch, *models)):
            if ratio:
                trainer.log(f"note: {part.name} changed nothing in {DRAWS} draws: its strength may be too small")
            return
    reason = "its passes are equal: add a part that drops" if several else "remove it, or change its parameters"
    raise InputError(f"regularizer {part.name}: it changes neither the loss nor the gradients: {reason}")


def _parts(regularizer: Regularizer, name: str) -> tuple[Part, ...]:
    return regularizer.parts if isinstance(regularizer, Composition) else (Part(name, regularizer),)


def _has_strength(regularizer: Regularizer, sites: Sequence[Site]) -> bool:
    own = [own for site in sites for own in (site, *site.parts) if own.regularizer is regularizer]
    loss = regularizer.has_objective and regularizer.strength_at(None) > 0.0
    return loss or any(site.scheduled_ratio > 0.0 for site in own)


class _ModelCopy(NamedTuple):
    """A copy of a trainer's model in which some parts of the regularizer act; `regularizer` is None without any."""

    model: nn.Module
    sites: list[Site]
    regularizer: Regularizer | None

    @classmethod
    def of(cls, trainer: Trainer, kept: Sequence[int], ratio: float, *, dropout: bool) -> _ModelCopy:
        """Let the parts with the indices `kept` act, at `ratio` at least; without `dropout` turn the model's own off.

        What a regularizer does with the output of dropout is not turned off.
        """
        everything: tuple[Any, list[Site], Regularizer] = (trainer.raw_model, trainer.bound_sites, trainer.regularizer)
        model, sites, regularizer = copy.deepcopy(everything)
        all_parts = _parts(regularizer, "")
        parts = [all_parts[index] for index in kept]
        acting = {id(part.regularizer) for part in parts}
        for site in sites:
            for own in site.parts or (site,):
                acts = id(own.regularizer) in acting
                own.ratio = max(own.scheduled_ratio, ratio) if acts and own.scheduled_ratio > 0.0 else 0.0
                if not acts and own.module is not None:
                    _silence(own.module)
                    own.module = None
            if site.parts:
                site.ratio = max(part.ratio for part in site.parts)
                if site.module is not None and site.kind != "weight":
                    site.module = SiteModules.of_parts(site)
        model.train()
        if not dropout:  # random numbers that it draws would be others after those of a part
            turn_off_dropout(model)
        return cls(model, sites, parts[0].regularizer if len(parts) == 1 else Composition(parts) if parts else None)

    def loss(self, trainer: Trainer, batch: Any, draw: int) -> Tensor:
        """Return the loss of a batch, without autocasting."""
        seed_all(derive(trainer.seed, "effect", draw))
        if self.regularizer is None:
            loss = trainer.task.loss(self.model, batch)
        else:
            epoch = 1  # the first in which regularizers act that alternate with epochs of plain training
            loss = regularized_loss(self.regularizer, trainer.task, self.model, batch, self.sites, None, epoch)
        return with_penalty(loss, self.model, 0)


def _silence(module: Any) -> None:
    """Make the module of a site or weight return its input, without a penalty."""
    module.forward = lambda x, *_, **__: x
    module.penalty = lambda step: None


def _differ(trainer: Trainer, batch: Any, first: _ModelCopy, second: _ModelCopy) -> bool:
    """Return whether the losses differ in a draw, or else the gradients in the draw whose losses differ most."""
    differences = []
    for draw in range(DRAWS):
        with torch.no_grad():
            losses = [float(each.loss(trainer, batch, draw)) for each in (first, second)]
        differences.append(abs(losses[0] - losses[1]))
        if not differences[-1] <= LOSS_TOLERANCE * max(map(abs, losses)):
            return True
    draw = differences.index(max(differences))
    gradients = [_gradients(each.model, each.loss(trainer, batch, draw)) for each in (first, second)]
    size = max(float(each.norm()) for each in gradients)
    return not float((gradients[0] - gradients[1]).norm()) <= GRADIENT_TOLERANCE * size


def _gradients(model: nn.Module, loss: Tensor) -> Tensor:
    """Return the gradients of all parameters as one vector on the CPU; 0 if the loss does not depend on them."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([gradient.flatten().float().cpu() for gradient in gradients])
