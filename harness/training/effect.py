"""Detect a regularizer that changes nothing, before a run's first step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from harness.errors import InputError
from harness.regularizers.auxiliary_loss import with_penalty
from harness.regularizers.base import Regularizer, Site
from harness.regularizers.composition import Composition, Part
from harness.regularizers.output import SiteModule, SiteModules, WeightModule
from harness.seeding import derive, seed_all
from harness.training.data_loading import StepBatches, to_device
from harness.training.regularization import regularized_loss
from harness.training.trainer import Trainer

DRAWS = 16
"""Draws in which a regularizer may change nothing by chance, such as one that skips few layers."""
LOSS_TOLERANCE, GRADIENT_TOLERANCE, NOISE = 1e-5, 1e-3, 1e-4
"""Relative differences within rounding; gradients below NOISE times the largest of a parameter are only rounding."""
CERTAIN_RATIO = 0.5
"""A ratio at which something would be dropped in `DRAWS` draws."""


class Acting(NamedTuple):
    """The parts of a regularizer that act in a comparison, and the smallest ratio of their sites."""

    parts: tuple[Part, ...]
    ratio: float = 0.0


def require_effect(trainer: Trainer) -> None:
    """Compare the first batch with and without each part of the regularizer.

    Schedules over steps are at their full strength. The model, its buffers and all later random numbers stay the same.

    Raises:
        InputError: a part with a strength above 0 changes neither the loss nor the gradients.
    """
    parts = _parts(trainer.regularizer, trainer.task.trial.regularizer.name)
    strong = [part for part in parts if _has_strength(part, trainer.bound_sites)]
    if not strong:
        return
    ranks = trainer.accelerator.process_index, trainer.accelerator.num_processes
    batches = StepBatches(trainer.task, trainer.task.seed_of("order"), *ranks, trainer.settings.micro_batch_splits)
    batch = to_device(batches[0][0], trainer.accelerator.device)
    model = trainer.raw_model
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.train()
    with torch.compiler.set_stance("force_eager"):
        for part in strong:
            _require_effect(trainer, batch, part, tuple(strong))
    with torch.no_grad():
        for name, buffer in model.named_buffers():
            if not torch.equal(buffer, buffers[name]):
                buffer.copy_(buffers[name])


def _require_effect(trainer: Trainer, batch: Any, part: Part, strong: tuple[Part, ...]) -> None:
    several = part.regularizer.num_passes > 1
    # A part that compares passes needs those that make them differ. Any other is alone: random numbers that it draws
    # would shift those of the others, which would look like an effect.
    acting, without = (strong, tuple(other for other in strong if other is not part)) if several else ((part,), ())
    with ExitStack() as stack:
        if not several:
            stack.enter_context(_without_dropout(trainer.raw_model))
        for ratio in (0.0, CERTAIN_RATIO):
            changes = _changes(trainer, batch, Acting(acting, ratio), Acting(without, ratio))
            if trainer.any_rank(changes):
                if ratio:
                    trainer.log(f"note: {part.name} changed nothing in {DRAWS} draws: its strength may be too small")
                return
    reason = "its passes are equal: add a part that drops" if several else "remove it, or change its parameters"
    raise InputError(f"regularizer {part.name}: it changes neither the loss nor the gradients: {reason}")


def _parts(regularizer: Regularizer, name: str) -> tuple[Part, ...]:
    return regularizer.parts if isinstance(regularizer, Composition) else (Part(name, regularizer),)


def _has_strength(part: Part, sites: Sequence[Site]) -> bool:
    regularizer = part.regularizer
    own = [own for site in sites for own in (site, *site.parts) if own.regularizer is regularizer]
    loss = regularizer.has_objective and regularizer.strength_at(None) > 0.0
    return loss or any(site.scheduled_ratio > 0.0 for site in own)


def _changes(trainer: Trainer, batch: Any, acting: Acting, without: Acting) -> bool:
    """Return whether the loss differs in a draw, or else the gradients in the draw whose losses differ most."""
    differences = []
    for draw in range(DRAWS):
        with torch.no_grad():
            first, second = (float(_loss(trainer, batch, each, draw)) for each in (acting, without))
        difference = abs(first - second)
        if not difference <= LOSS_TOLERANCE * max(abs(first), abs(second)):
            return True
        differences.append(difference)
    draw = differences.index(max(differences))
    parameters = [parameter for parameter in trainer.raw_model.parameters() if parameter.requires_grad]
    gradients = [
        torch.autograd.grad(_loss(trainer, batch, each, draw), parameters, allow_unused=True)
        for each in (acting, without)
    ]
    return _gradients_differ(*gradients)


def _gradients_differ(first: Sequence[Tensor | None], second: Sequence[Tensor | None]) -> bool:
    """Return whether the gradients of a parameter differ beyond rounding."""

    def norm(gradient: Tensor | None) -> float:
        return 0.0 if gradient is None else float(gradient.norm())

    sizes = [max(norm(a), norm(b)) for a, b in zip(first, second, strict=True)]
    for a, b, size in zip(first, second, sizes, strict=True):
        difference = size if a is None or b is None else float((a - b).norm())
        if size > NOISE * max(sizes) and not difference <= GRADIENT_TOLERANCE * size:
            return True
    return False


def _loss(trainer: Trainer, batch: Any, acting: Acting, draw: int) -> Tensor:
    """Return the loss of a batch if only some parts act, without autocasting."""
    parts = acting.parts
    regularizer = parts[0].regularizer if len(parts) == 1 else Composition(parts) if parts else None
    epoch = 1  # the first in which regularizers act that alternate with epochs of plain training
    with _acting(trainer, acting) as modules:
        seed_all(derive(trainer.seed, "effect", draw))
        if regularizer is None:
            loss = trainer.task.loss(trainer.raw_model, batch)
        else:
            loss = regularized_loss(
                regularizer, trainer.task, trainer.raw_model, batch, trainer.bound_sites, None, epoch
            )
        return with_penalty(loss, modules, 0)


@contextmanager
def _acting(trainer: Trainer, acting: Acting) -> Iterator[list[nn.Module]]:
    """Let only some parts act, at their full strength; yield the modules that may add to the loss."""
    regularizers = {id(part.regularizer) for part in acting.parts}
    idle: set[int] = set()
    before = [(site, site.ratio, site.module) for bound in trainer.bound_sites for site in (bound, *bound.parts)]
    for bound in trainer.bound_sites:
        for site in bound.parts or (bound,):
            on = id(site.regularizer) in regularizers
            site.ratio = max(site.scheduled_ratio, acting.ratio) if on and site.scheduled_ratio > 0.0 else 0.0
            if not on and site.module is not None:
                idle.add(id(site.module))
                site.module = None
        if bound.parts:
            bound.ratio = max(part.ratio for part in bound.parts)
            modules: list[Any] = [part.module for part in bound.parts if part.module is not None]
            if bound.module is not None and bound.kind != "weight":
                bound.module = SiteModules(modules) if len(modules) > 1 else next(iter(modules), None)
    weights = [
        module for module in trainer.raw_model.modules() if id(module) in idle if isinstance(module, WeightModule)
    ]
    for weight in weights:
        vars(weight)["forward"] = lambda matrix: matrix
    try:
        yield [
            module
            for module in trainer.aux_loss_modules
            if not (isinstance(module, SiteModule | WeightModule) and id(module) in idle)
        ]
    finally:
        for site, ratio, module in before:
            site.ratio, site.module = ratio, module
        for weight in weights:
            vars(weight).pop("forward", None)


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """Turn the model's own dropout off, but not what a regularizer does with its output."""
    modules = [module for module in model.modules() if "Drop" in type(module).__name__]
    before: list[tuple[nn.Module, str, Any]] = [(module, "p", module.p) for module in modules if hasattr(module, "p")]
    before += [(module, "training", module.training) for module in modules if not hasattr(module, "p")]
    for module, name, _ in before:
        setattr(module, name, 0.0 if name == "p" else False)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
