"""What a body's joints attend to among its joints and vertices (DropKey, Fig. 6)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from harness.analysis import Findings, Options, measures
from harness.analysis.attention_figure import SCALE, draw_between
from harness.analysis.trained import Trained
from harness.errors import InputError
from harness.site import Site
from harness.task import BodyTokens, Shown

DRAWN = 4
"""Samples that the figure shows."""
JOINT = "elbow"
"""Of the joint that the source shows."""


def interactions(trained: Trained, options: Options) -> Findings:
    """The last layer's attention, mean over heads, of every joint.

    `keys` is how many tokens it is spread over, exp of its entropy; `distance` how far from the joint they are at rest,
    weighted by attention, in millimetres. Both are means over the samples and the joints; ``keys@right-elbow`` and such
    are those of one.

    Raises:
        InputError: the model's tokens are no joints and vertices.
    """
    indices = trained.indices(options)
    samples, tokens = _drawn(trained, options, indices[:DRAWN])
    site, count, names = trained.sites[-1], len(tokens[0].rest), tokens[0].joints
    kept: list[Tensor] = []

    def probe(seen: Site, weights: Tensor) -> None:
        if seen is site:
            kept.append(weights.mean(dim=1)[:, : len(names)].double().cpu())

    trained.evaluate(options, probe=probe)
    weights = torch.cat(kept)  # (N, J, T)
    if weights.shape != (len(indices), len(names), count):
        raise InputError(f"interactions: model '{trained.trial.model}' has no attention between all of its tokens")
    rest = torch.from_numpy(tokens[0].rest)
    distances = (weights * torch.cdist(rest[: len(names)], rest)).sum(dim=2).mean(dim=0)
    spread = measures.entropy(weights[:, None]).exp().mean(dim=(0, 1))
    scalars = {"keys": float(spread.mean()), "distance": float(distances.mean())}
    for number, name in enumerate(names):
        scalars[f"keys@{name.replace(' ', '-')}"] = float(spread[number])
        scalars[f"distance@{name.replace(' ', '-')}"] = float(distances[number])
    query = next((number for number, name in enumerate(names) if JOINT in name), 0)
    arrays: dict[str, NDArray[Any]] = {
        "indices": np.array(indices),
        "weights": weights.float().numpy(),
        "joints": np.array(names, dtype=np.str_),
        "query": np.array(query),
    }
    for place, (sample, found) in enumerate(zip(samples, tokens, strict=True)):
        arrays[f"shown.{place}"] = np.asarray(sample.image)
        arrays[f"places.{place}"] = found.places
        arrays[f"map.{place}"] = weights[place, query].numpy()
    title = f"{trained.title()}\n{names[query]} in {trained.label(site)}, mean over {site.heads} heads"
    return Findings(scalars, arrays, lambda: _figure(title, arrays, len(samples)))


def _drawn(trained: Trained, options: Options, indices: list[int]) -> tuple[list[Shown], list[BodyTokens]]:
    """The samples of the figure, and where their tokens are."""
    samples, tokens = [], []
    with trained.looking():
        for index in indices:
            sample = trained.task.shown(options.split, index)
            found = trained.task.body_tokens(trained.model, options.split, index)
            if sample is None or found is None:
                raise InputError(
                    f"interactions: the tokens of model '{trained.trial.model}' are no joints and vertices: "
                    "expected a trial of mesh-recovery"
                )
            samples.append(sample)
            tokens.append(found)
    return samples, tokens


def _figure(title: str, arrays: dict[str, NDArray[Any]], count: int) -> Figure:
    """Each image above what the joint attends to in it."""
    figure = Figure(figsize=(2.6 * count + 1.2, 6.0), layout="constrained")
    grid = figure.subplots(2, count, squeeze=False)
    top = max(1.0, *(float(arrays[f"map.{place}"].max() * arrays[f"map.{place}"].size) for place in range(count)))
    scale = None
    for axes in grid.flat:
        axes.set_axis_off()
    for place in range(count):
        image = arrays[f"shown.{place}"]
        grid[0, place].imshow(image, extent=(0, image.shape[1], image.shape[0], 0), interpolation="nearest")
        places, weights = arrays[f"places.{place}"], arrays[f"map.{place}"]
        scale = draw_between(grid[1, place], image, places, int(arrays["query"]), weights, top)
    assert scale is not None
    figure.colorbar(scale, ax=grid, shrink=0.6).set_label(SCALE.format("tokens"), fontsize=9)
    figure.suptitle(title, fontsize=10)
    return figure
