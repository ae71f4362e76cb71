"""Attention maps of single samples, over an image or between words (DropKey, Fig. 5)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dropbench.harness.analysis import Findings
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.pictures.attention_figure import attention_figure
from dropbench.harness.analysis.statistics import has_class_token
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError
from dropbench.harness.regularizers.base import Site

Array = NDArray[np.float64]

SAMPLES = 4


def attention_map(trained: Trained, options: Options) -> Findings:
    """Record the last encoder layer's attention, averaged over heads, for a few samples.

    For an image, the map is the class token's attention to the patches, or the mean over queries without a class token.
    For a text, it is every word's attention to every word. `peak` is the largest weight relative to a uniform one,
    averaged over samples.

    Raises:
        InputError: the task cannot display its samples, or the model has no attention within a sample.
    """
    count = options.samples or min(SAMPLES, trained.task.size(options.split))
    options = Options(options.split, count)
    indices = trained.indices(options)
    samples = [sample for index in indices if (sample := trained.task.sample_view(options.split, index)) is not None]
    images = all(sample.image is not None for sample in samples)
    if len(samples) < count or not (images or all(sample.words is not None for sample in samples)):
        raise InputError(f"attention-map: task '{trained.trial.task}' cannot display its samples")
    site, weights = _last_layer(trained, options, images)
    maps = [
        _image_map(site, rows) if images else _word_map(rows, len(sample.words or ()))
        for rows, sample in zip(weights, samples, strict=True)
    ]
    arrays: dict[str, NDArray[Any]] = {"indices": np.array(indices)}
    for i, (array, sample) in enumerate(zip(maps, samples, strict=True)):
        arrays[f"map.{i}"] = array
        arrays[f"shown.{i}"] = sample.image if sample.image is not None else np.array(sample.words, dtype=np.str_)
    if images:
        peaks = [float(array.max() * array.size) for array in maps]
    else:
        peaks = [float(array.max(axis=-1).mean() * array.shape[-1]) for array in maps if array.size]
    title = f"{trained.title()}\n{trained.label(site)}, mean over {site.heads} heads"
    return Findings({"peak": float(np.mean(peaks))}, arrays, lambda: attention_figure(title, samples, maps))


def _last_layer(trained: Trained, options: Options, images: bool) -> tuple[Site, list[Array]]:
    """Return the last site with a class token, or else the last of an encoder, and its weights (H, T, S) per sample."""
    recorded: dict[str, tuple[Site, list[Array]]] = {}

    def probe(site: Site, weights: Tensor) -> None:
        if len(weights) == trained.batch_size and (site.grid is not None or not images):
            per_sample = recorded.setdefault(site.name, (site, []))[1]
            per_sample.extend(sample.double().cpu().numpy() for sample in weights)

    trained.evaluate(options, probe=probe)
    ordered = [recorded[site.name] for site in trained.sites if site.name in recorded]
    encoder = [(site, weights) for site, weights in ordered if site.kind == "encoder-self"]
    candidates = [(site, weights) for site, weights in ordered if site.num_prefix_tokens] or encoder or ordered
    if not candidates:
        raise InputError(f"attention-map: model '{trained.trial.model}' has no attention over whole samples")
    site, weights = candidates[-1]
    return site, weights[: options.samples]


def _word_map(weights: Array, count: int) -> Array:
    """(H, T, T) → mean over heads between the words of the sample, without padding (keys of weight 0)."""
    mean: Array = weights.mean(axis=0)
    real = np.flatnonzero(mean.max(axis=0))[:count]
    return mean[np.ix_(real, real)] if mean.shape[0] == mean.shape[1] else mean[:count, :count]


def _image_map(site: Site, weights: Array) -> Array:
    """(H, T, S) → the class token's weights on the key grid (rows, columns), or the mean over queries."""
    assert site.grid is not None
    mean: Array = weights.mean(axis=0)
    row: Array = mean[0] if has_class_token(site, *mean.shape) else mean.mean(axis=0)
    return row[site.num_prefix_tokens :].reshape(site.grid)
