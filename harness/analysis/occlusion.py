"""Robustness to occlusion (DropKey 4.1.1, Table 3): the task's metrics with a part of each sample hidden."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dropbench.harness.analysis import Findings
from dropbench.harness.analysis.figures import lines
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError
from dropbench.harness.models.adapter import site_of
from dropbench.harness.regularizers.base import Site
from dropbench.harness.seeding import derive, random_subset
from dropbench.harness.training.data_loading import to_device

LOSSES = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
"""Values of the information loss, the hidden share of a sample."""
DRAWS = 5


def occlusion(trained: Trained, options: Options) -> Findings:
    """Evaluate every metric of the task at each information loss, averaged over five draws of the hidden part.

    In an image, patches are hidden: no query of the encoder attends to them, so the class token's output is that of a
    sequence without them ("dropped before input to self-attention layer"). In a text, words become padding. The draws
    are the same for every trial, so all models see the same parts of the same samples.

    Raises:
        InputError: the samples are not texts, and the model does not predict from its class token alone.
    """
    hide = _hide_words(trained, options) or _hide_patches(trained)
    metric = trained.task.selection_metric
    unoccluded = trained.evaluate(options)
    # The metric of the figure comes first.
    names = sorted(unoccluded, key=lambda name: name != metric.name)
    values = np.zeros((len(names), len(LOSSES), DRAWS))
    values[:, 0] = np.array([[unoccluded[name]] for name in names])
    for column, loss in enumerate(LOSSES[1:], 1):
        for draw in range(DRAWS):
            # The seed depends on the loss and the draw, but not on the trial.
            generator = torch.Generator().manual_seed(derive(0, "occlusion", str(loss), draw))
            metrics = trained.evaluate(options, change=partial(hide, loss, generator))
            values[:, column, draw] = [metrics[name] for name in names]
        for site in trained.sites:
            site.masked_keys = None
    means = values.mean(axis=2)
    scalars = {
        f"{name}@{loss:g}": float(means[row, column])
        for row, name in enumerate(names)
        for column, loss in enumerate(LOSSES)
    }
    arrays = {"losses": np.array(LOSSES), **dict(zip(names, values, strict=True))}
    axis = (f"information loss (mean of {DRAWS} draws ± std)", metric.name + (" (%)" * (metric.unit == "%")))
    spread = values[0].std(axis=1, ddof=1)
    return Findings(scalars, arrays, lambda: lines(trained.title(), axis, LOSSES, means[0], spread))


Hide = Callable[[float, torch.Generator, Any], Any]
"""(information loss, generator, batch) → batch to evaluate."""


def _hide_words(trained: Trained, options: Options) -> Hide | None:
    """Return a function that hides words, or None if the task's samples are not texts."""
    task = trained.task
    sample = task.batch(options.split, trained.indices(options)[:1])
    if task.mask_tokens(sample, 0.0, torch.Generator()) is None:
        return None
    return lambda loss, generator, batch: task.mask_tokens(batch, loss, generator) if loss else batch


def _hide_patches(trained: Trained) -> Hide:
    """Return a function that hides keys at every site of an encoder with a class token."""
    sites = [site for site in trained.sites if site.kind == "encoder-self" and site.num_prefix_tokens and site.grid]
    grids = {(site.grid, site.num_prefix_tokens) for site in sites}
    if len(grids) != 1 or not _predicts_from_class_token(trained, sites[-1]):
        raise InputError(
            f"occlusion: model '{trained.trial.model}': expected a Vision Transformer that predicts from its class"
            " token alone, or a text task"
        )
    grid, prefix = sites[0].grid, sites[0].num_prefix_tokens
    assert grid is not None

    def hide(loss: float, generator: torch.Generator, batch: Any) -> Any:
        patches = torch.ones(trained.batch_size, grid[0] * grid[1], dtype=torch.bool)
        hidden = random_subset(patches, loss, generator)
        hidden = torch.cat([torch.zeros(len(hidden), prefix, dtype=torch.bool), hidden], dim=1).to(trained.device)
        for site in sites:
            site.masked_keys = hidden if loss else None
        return batch

    return hide


def _predicts_from_class_token(trained: Trained, last: Site) -> bool:
    """Return whether the loss has no gradient with respect to the last attention outputs of the patches.

    If there is a gradient (mean pooling), hidden patches would still contribute to the prediction.
    """
    outputs: list[Tensor] = []

    def record(module: nn.Module, inputs: Any, output: Any) -> None:
        outputs.append(output[0] if isinstance(output, tuple) else output)

    module = next(module for module in trained.model.modules() if site_of(module) is last)
    batch = to_device(trained.task.batch("dev", [0, 1][: trained.task.size("dev")]), trained.device)
    with module.register_forward_hook(record), torch.enable_grad():
        loss = trained.task.loss(trained.model, batch)
        (gradient,) = torch.autograd.grad(loss, outputs[-1])
    assert last.grid is not None
    tokens = last.grid[0] * last.grid[1] + last.num_prefix_tokens
    axis = next((axis for axis in (1, 0) if gradient.shape[axis] == tokens), None)
    if gradient.dim() != 3 or axis is None:
        return False
    return not gradient.narrow(axis, last.num_prefix_tokens, tokens - last.num_prefix_tokens).any()
