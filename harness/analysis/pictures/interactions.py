"""Attention of a body's joints to its joints and vertices (DropKey, Fig. 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from dropbench.harness.analysis import Findings, measures
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.pictures.attention_figure import SCALE, draw_between
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.base import Site

NUM_DRAWN = 4
"""Number of samples in the figure."""
JOINT = "elbow"
"""The joint in the source's figure."""


def interactions(trained: Trained, options: Options) -> Findings:
    """Measure the attention of every joint in the last layer, averaged over heads.

    `keys` is the effective number of tokens attended to, exp of the entropy. `distance` is the attention-weighted
    distance from the joint in the template, in millimeters. Both are means over samples and joints;
    ``keys@right-elbow`` and ``distance@right-elbow`` are those of one joint.

    Raises:
        InputError: the model's tokens are not joints and vertices.
    """
    indices = trained.indices(options)
    task, model, split, drawn = trained.task, trained.model, options.split, indices[:NUM_DRAWN]
    with trained.evaluation_context():
        samples = [sample for index in drawn if (sample := task.sample_view(split, index))]
        tokens = [body for index in drawn if (body := task.body_tokens(model, split, index))]
    if not len(samples) == len(tokens) == len(drawn):
        raise InputError(
            f"interactions: the tokens of model '{trained.trial.model}' are not joints and vertices: expected a trial"
            " of mesh-recovery"
        )
    last, num_tokens, names = trained.sites[-1], len(tokens[0].rest), tokens[0].joints
    batches: list[Tensor] = []

    def probe(site: Site, weights: Tensor) -> None:
        if site is last:
            batches.append(weights.mean(dim=1)[:, : len(names)].double().cpu())

    trained.evaluate(options, probe=probe)
    weights = torch.cat(batches)  # (N, J, T)
    if weights.shape != (len(indices), len(names), num_tokens):
        raise InputError(f"interactions: model '{trained.trial.model}' has no attention between all of its tokens")
    rest = torch.from_numpy(tokens[0].rest)
    distances = (weights * torch.cdist(rest[: len(names)], rest)).sum(dim=2).mean(dim=0)
    effective_keys = measures.entropy(weights[:, None]).exp().mean(dim=(0, 1))
    scalars = {"keys": float(effective_keys.mean()), "distance": float(distances.mean())}
    for number, name in enumerate(names):
        scalars[f"keys@{name.replace(' ', '-')}"] = float(effective_keys[number])
        scalars[f"distance@{name.replace(' ', '-')}"] = float(distances[number])
    query = next((number for number, name in enumerate(names) if JOINT in name), 0)
    arrays: dict[str, NDArray[Any]] = {
        "indices": np.array(indices),
        "weights": weights.float().numpy(),
        "joints": np.array(names, dtype=np.str_),
        "query": np.array(query),
    }
    for i, (sample, body) in enumerate(zip(samples, tokens, strict=True)):
        arrays[f"shown.{i}"] = np.asarray(sample.image)
        arrays[f"places.{i}"] = body.places
        arrays[f"map.{i}"] = weights[i, query].numpy()
    title = f"{trained.title()}\n{names[query]} in {trained.label(last)}, mean over {last.heads} heads"
    return Findings(scalars, arrays, lambda: _figure(title, arrays, len(samples)))


def _figure(title: str, arrays: dict[str, NDArray[Any]], count: int) -> Figure:
    """Draw each image, and below it the attention of the joint."""
    figure = Figure(figsize=(2.6 * count + 1.2, 6.0), layout="constrained")
    grid = figure.subplots(2, count, squeeze=False)
    top = max(1.0, *(float(arrays[f"map.{i}"].max() * arrays[f"map.{i}"].size) for i in range(count)))
    scale = None
    for axes in grid.flat:
        axes.set_axis_off()
    for i in range(count):
        image = arrays[f"shown.{i}"]
        grid[0, i].imshow(image, extent=(0, image.shape[1], image.shape[0], 0), interpolation="nearest")
        positions, weights = arrays[f"places.{i}"], arrays[f"map.{i}"]
        scale = draw_between(grid[1, i], image, positions, int(arrays["query"]), weights, top)
    assert scale is not None
    figure.colorbar(scale, ax=grid, shrink=0.6).set_label(SCALE.format("tokens"), fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure
