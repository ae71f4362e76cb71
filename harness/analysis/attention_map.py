"""What the model attends to in single samples (DropKey, Fig. 5), over the image or between the words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from harness.analysis import Findings, Options
from harness.analysis.attention_figure import attention_figure
from harness.analysis.statistics import has_class_token
from harness.analysis.trained import Trained
from harness.errors import InputError
from harness.site import Site

Array = NDArray[np.float64]

SAMPLES = 4


def attention_map(trained: Trained, options: Options) -> Findings:
    """The last encoder layer's attention, mean over heads, of a few samples.

    Of an image, the class token's on the patches; where no token stands for the whole image, the mean over all places.
    Of a text, every word's on every word. `peak` is the largest weight against even ones, mean over the samples.

    Raises:
        InputError: the task cannot show its samples, or the model has no such attention.
    """
    count = options.samples or min(SAMPLES, trained.task.size(options.split))
    options = Options(options.split, count)
    indices = trained.indices(options)
    samples = [sample for index in indices if (sample := trained.task.shown(options.split, index)) is not None]
    images = all(sample.image is not None for sample in samples)
    if len(samples) < count or not (images or all(sample.words is not None for sample in samples)):
        raise InputError(f"attention-map: task '{trained.trial.task}' has no way to show its samples")
    site, weights = _last(trained, options, images)
    maps = [
        _on_grid(site, found) if images else _between_words(found, len(sample.words or ()))
        for found, sample in zip(weights, samples, strict=True)
    ]
    arrays: dict[str, NDArray[Any]] = {"indices": np.array(indices)}
    for place, (found, sample) in enumerate(zip(maps, samples, strict=True)):
        arrays[f"map.{place}"] = found
        arrays[f"shown.{place}"] = sample.image if sample.image is not None else np.array(sample.words, dtype=np.str_)
    peaks = [float(found.max(axis=-1).mean() * found.shape[-1]) for found in maps if found.size]
    if images:
        peaks = [float(found.max() * found.size) for found in maps]
    title = f"{trained.title()}\n{trained.label(site)}, mean over {site.heads} heads"
    return Findings({"peak": float(np.mean(peaks))}, arrays, lambda: attention_figure(title, samples, maps))


def _last(trained: Trained, options: Options, images: bool) -> tuple[Site, list[Array]]:
    """The last site with a class token, else the last of an encoder; its weights (H, T, S) for each sample."""
    found: dict[str, tuple[Site, list[Array]]] = {}

    def probe(site: Site, weights: Tensor) -> None:
        if len(weights) == trained.batch_size and (site.grid is not None or not images):
            kept = found.setdefault(site.name, (site, []))[1]
            kept.extend(sample.double().cpu().numpy() for sample in weights)

    trained.evaluate(options, probe=probe)
    ordered = [found[site.name] for site in trained.sites if site.name in found]
    encoder = [one for one in ordered if one[0].kind == "encoder-self"]
    chosen = [one for one in ordered if one[0].prefix] or encoder or ordered
    if not chosen:
        raise InputError(f"attention-map: model '{trained.trial.model}' has no attention between whole samples")
    site, weights = chosen[-1]
    return site, weights[: options.samples]


def _between_words(weights: Array, count: int) -> Array:
    """(H, T, T) → the mean over heads between the sample's words, which are those that anything may attend to."""
    mean: Array = weights.mean(axis=0)
    real = np.flatnonzero(mean.max(axis=0))[:count]
    return mean[np.ix_(real, real)] if mean.shape[0] == mean.shape[1] else mean[:count, :count]


def _on_grid(site: Site, weights: Array) -> Array:
    """(H, T, S) → the class token's weights on the key grid (rows, columns), or the mean over queries."""
    assert site.grid is not None
    mean: Array = weights.mean(axis=0)
    row: Array = mean[0] if has_class_token(site, *mean.shape) else mean.mean(axis=0)
    return row[site.prefix :].reshape(site.grid)
