"""Robustness against occlusion (DropKey 4.1.1, Table 3): the task's metrics with a part of each sample hidden."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from harness.adapter import site_of
from harness.analysis import Findings, Options
from harness.analysis.figures import lines
from harness.analysis.subset import random_subset
from harness.analysis.trained import Trained
from harness.errors import InputError
from harness.feed import to_device
from harness.seeding import derive
from harness.site import Site

LOSSES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
"""Information loss: the share of a sample that is hidden."""
DRAWS = 5


def occlusion(trained: Trained, options: Options) -> Findings:
    """Every metric of the task at each information loss, the mean over five draws of what is hidden.

    Of an image, patches are hidden: no query of the encoder attends to them, so that the class token's output is that
    of a sequence without them ("dropped before input to self-attention layer"). Of a text, words become padding. The
    draws are the same for every trial: models see the same parts of the same samples.

    Raises:
        InputError: the task is not made of words, and the model's answer is not its class token's.
    """
    hide = _by_words(trained, options) or _by_patches(trained)
    metric = trained.task.selecting
    whole = trained.evaluate(options)
    # The one that is drawn comes first.
    names = sorted(whole, key=lambda name: name != metric.name)
    values = np.zeros((len(names), len(LOSSES), DRAWS))
    values[:, 0] = np.array([[whole[name]] for name in names])
    for column, loss in enumerate(LOSSES[1:], 1):
        for draw in range(DRAWS):
            # A seed for each draw alone: it does not depend on the trial.
            generator = torch.Generator().manual_seed(derive(0, "occlusion", str(loss), draw))
            found = trained.evaluate(options, change=partial(hide, loss, generator))
            values[:, column, draw] = [found[name] for name in names]
        _show_all(trained)
    means = values.mean(axis=2)
    scalars = {
        f"{name}@{loss:g}": float(means[row, column])
        for row, name in enumerate(names)
        for column, loss in enumerate(LOSSES)
    }
    arrays = {"losses": np.array(LOSSES), **dict(zip(names, values, strict=True))}
    axis = (f"information loss (mean of {DRAWS} draws ± deviation)", metric.name + (" (%)" * (metric.unit == "%")))
    spread = values[0].std(axis=1, ddof=1)
    return Findings(scalars, arrays, lambda: lines(trained.title(), axis, LOSSES, means[0], spread))


Hide = Callable[[float, torch.Generator, Any], Any]
"""(information loss, generator, batch) → the batch that is evaluated."""


def _by_words(trained: Trained, options: Options) -> Hide | None:
    """Hiding words, where the task is made of them."""
    task = trained.task
    sample = task.batch(options.split, trained.indices(options)[:1])
    if task.without_words(sample, 0.0, torch.Generator()) is None:
        return None
    return lambda loss, generator, batch: task.without_words(batch, loss, generator) if loss else batch


def _by_patches(trained: Trained) -> Hide:
    """Hiding keys at every site of an encoder with a class token."""
    sites = [site for site in trained.sites if site.kind == "encoder-self" and site.prefix and site.grid]
    keys = {(site.grid, site.prefix) for site in sites}
    if len(keys) != 1 or not _answers_by_class_token(trained, sites[-1]):
        raise InputError(
            f"occlusion: model '{trained.trial.model}': expected a Vision Transformer that answers by its class token,"
            " or a task on texts"
        )
    grid, prefix = sites[0].grid, sites[0].prefix
    assert grid is not None

    def hide(loss: float, generator: torch.Generator, batch: Any) -> Any:
        patches = torch.ones(trained.batch_size, grid[0] * grid[1], dtype=torch.bool)
        hidden = random_subset(patches, loss, generator)
        hidden = torch.cat([torch.zeros(len(hidden), prefix, dtype=torch.bool), hidden], dim=1).to(trained.device)
        for site in sites:
            site.hidden = hidden if loss else None
        return batch

    return hide


def _show_all(trained: Trained) -> None:
    for site in trained.sites:
        site.hidden = None


def _answers_by_class_token(trained: Trained, last: Site) -> bool:
    """Whether the loss has no gradient at what the last layer's attention gives the patches: only prefix tokens count.

    Where it has one (mean pooling), hidden patches would still be part of the answer.
    """
    outputs: list[Tensor] = []

    def keep(module: nn.Module, given: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    module = next(module for module in trained.model.modules() if site_of(module) is last)
    handle = module.register_forward_hook(keep)
    try:
        batch = to_device(trained.task.batch("dev", [0, 1][: trained.task.size("dev")]), trained.device)
        with torch.enable_grad():
            loss = trained.task.loss(trained.model, batch)
            (gradient,) = torch.autograd.grad(loss, outputs[-1])
    finally:
        handle.remove()
    assert last.grid is not None
    tokens = last.grid[0] * last.grid[1] + last.prefix
    axis = next((axis for axis in (1, 0) if gradient.shape[axis] == tokens), None)
    if gradient.dim() != 3 or axis is None:
        return False
    return not gradient.narrow(axis, last.prefix, tokens - last.prefix).any()
