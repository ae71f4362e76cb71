"""Predictions for single images next to the ground truth: boxes, pairs, meshes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dropbench.harness.analysis import Findings
from dropbench.harness.analysis.options import Options
from dropbench.harness.analysis.pictures.attention_figure import draw_faint, short
from dropbench.harness.analysis.trained import Trained
from dropbench.harness.errors import InputError
from dropbench.harness.trials.sample_view import Overlay, Overlays, SampleView

SAMPLES = 4
COLORS = ("#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#17becf", "#8c564b", "#e377c2")
"""Colors of labels; from the ninth label on they repeat."""
MAX_LABELS, MAX_CHARS, LABEL_HEIGHT = 6, 24, 0.18
"""Labels listed below an image, characters per label, and the height of a label in inches."""
MESH_MIN_POINTS = 400
"""Outlines with more points are meshes and get thin lines."""


def predictions(trained: Trained, options: Options) -> Findings:
    """Draw ground truth and predictions over images, without scalars; raise InputError if the task has no overlays."""
    options = Options(options.split, options.samples or min(SAMPLES, trained.task.size(options.split)))
    indices = trained.indices(options)
    task, model, split = trained.task, trained.model, options.split
    with trained.evaluation_context():
        samples = [sample for index in indices if (sample := task.sample_view(split, index))]
        overlays = [pair for index in indices if (pair := task.overlays(model, split, index))]
    if not len(samples) == len(overlays) == len(indices):
        raise InputError(f"predictions: task '{trained.trial.task}' draws no overlays on its samples")
    arrays: dict[str, NDArray[Any]] = {"indices": np.array(indices)}
    for i, (sample, sample_overlays) in enumerate(zip(samples, overlays, strict=True)):
        arrays[f"shown.{i}"] = np.asarray(sample.image)
        for name, group in sample_overlays._asdict().items():
            arrays[f"{name}.{i}.labels"] = np.array([overlay.label for overlay in group], dtype=np.str_)
            arrays[f"{name}.{i}.scores"] = np.array([overlay.score for overlay in group], dtype=np.float64)
            for number, overlay in enumerate(group):
                arrays[f"{name}.{i}.{number}"] = overlay.line
    return Findings({}, arrays, lambda: overlay_figure(trained.title(), samples, overlays))


def overlay_figure(title: str, samples: Sequence[SampleView], overlays: Sequence[Overlays]) -> Figure:
    """Draw each image twice: ground truth above, predictions below, with one color per label of an image."""
    entries = max(min(MAX_LABELS + 1, len(_by_label(group))) for pair in overlays for group in pair)
    figure = Figure(figsize=(2.6 * len(samples) + 0.6, 5.6 + 2 * LABEL_HEIGHT * entries), layout="constrained")
    grid = figure.subplots(2, len(samples), squeeze=False)
    for column, sample, pair in zip(grid.T, samples, overlays, strict=True):
        labels = list(_by_label([*pair.true, *pair.found]))
        colors = {label: COLORS[number % len(COLORS)] for number, label in enumerate(labels)}
        for axes, group in zip(column, pair, strict=True):
            _draw(axes, np.asarray(sample.image), group, colors)
    for axes, label in zip(grid[:, 0], ("true", "predicted"), strict=True):
        axes.set_ylabel(label, fontsize=10)
    figure.suptitle(title, fontsize=10)
    return figure


def _by_label(overlays: Sequence[Overlay]) -> dict[str, list[Overlay]]:
    groups: dict[str, list[Overlay]] = {}
    for overlay in overlays:
        groups.setdefault(overlay.label, []).append(overlay)
    return groups


def _draw(axes: Axes, image: NDArray[np.uint8], overlays: Sequence[Overlay], colors: Mapping[str, str]) -> None:
    """Draw overlays on a faint image, with a legend below: label, count and maximum score per color."""
    draw_faint(axes, image)
    groups = _by_label(overlays)
    for number, (label, group) in enumerate(groups.items()):
        scores = [overlay.score for overlay in group if overlay.score is not None]
        entry = short(label, MAX_CHARS) + (f" ×{len(group)}" if len(group) > 1 else "")
        entry += f" {max(scores):.2f}" if scores else ""
        for i, overlay in enumerate(group):
            mesh = len(overlay.line) > MESH_MIN_POINTS
            axes.plot(
                overlay.line[:, 0],
                overlay.line[:, 1],
                color=colors[label],
                linewidth=0.25 if mesh else 1.5,
                alpha=0.6 if mesh else 1.0,
                label=entry if label and not i and number < MAX_LABELS else None,
            )
    if len(groups) > MAX_LABELS:
        axes.plot([], [], color="none", label=f"and {len(groups) - MAX_LABELS} more")
    axes.set_xlim(0, image.shape[1])
    axes.set_ylim(image.shape[0], 0)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if any(groups):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False, fontsize=8, handlelength=1.0)
