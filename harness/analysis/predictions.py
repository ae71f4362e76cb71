"""What a model finds in single images beside what is there: boxes, pairs, meshes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from harness.analysis import Findings, Options
from harness.analysis.attention_figure import draw_faint, short
from harness.analysis.trained import Trained
from harness.errors import InputError
from harness.task import Mark, Marks, Shown

SAMPLES = 4
COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#17becf", "#8c564b", "#e377c2")
"""Labels beyond the eighth begin anew with the first one's."""
MOST_LABELS, MOST_LETTERS, LABEL_HEIGHT = 6, 24, 0.18
"""Labels that are told below an image; letters of each; the height of one in inches."""
FINE = 400
"""Points of an outline from which on it is a mesh, whose lines are thin."""


def predictions(trained: Trained, options: Options) -> Findings:
    """Marks of what is true and of what the model finds, over a few images; there are no numbers.

    Raises:
        InputError: the task marks nothing in its samples.
    """
    options = Options(options.split, options.samples or min(SAMPLES, trained.task.size(options.split)))
    indices = trained.indices(options)
    samples: list[Shown] = []
    marks: list[Marks] = []
    with trained.looking():
        for index in indices:
            sample = trained.task.shown(options.split, index)
            found = trained.task.marks(trained.model, options.split, index)
            if sample is None or found is None:
                raise InputError(f"predictions: task '{trained.trial.task}' marks nothing in its samples")
            samples.append(sample)
            marks.append(found)
    arrays: dict[str, NDArray[Any]] = {"indices": np.array(indices)}
    for place, (sample, found) in enumerate(zip(samples, marks, strict=True)):
        arrays[f"shown.{place}"] = np.asarray(sample.image)
        for name, several in found._asdict().items():
            arrays[f"{name}.{place}.labels"] = np.array([mark.label for mark in several], dtype=np.str_)
            arrays[f"{name}.{place}.scores"] = np.array([mark.score for mark in several], dtype=np.float64)
            for number, mark in enumerate(several):
                arrays[f"{name}.{place}.{number}"] = mark.line
    return Findings({}, arrays, lambda: marks_figure(trained.title(), samples, marks))


def marks_figure(title: str, samples: Sequence[Shown], marks: Sequence[Marks]) -> Figure:
    """Each image twice: above with what is true, below with what was found; of an image, a colour a label."""
    entries = max(min(MOST_LABELS + 1, len(_by_label(several))) for found in marks for several in found)
    figure = Figure(figsize=(2.6 * len(samples) + 0.6, 5.6 + 2 * LABEL_HEIGHT * entries), layout="constrained")
    grid = figure.subplots(2, len(samples), squeeze=False)
    for place, (sample, found) in enumerate(zip(samples, marks, strict=True)):
        labels = list(_by_label([*found.true, *found.found]))
        colours = {label: COLOURS[number % len(COLOURS)] for number, label in enumerate(labels)}
        for axes, several in zip(grid[:, place], found, strict=True):
            _draw(axes, np.asarray(sample.image), several, colours)
    for axes, label in zip(grid[:, 0], ("true", "found"), strict=True):
        axes.set_ylabel(label, fontsize=10)
    figure.suptitle(title, fontsize=10)
    return figure


def _by_label(marks: Sequence[Mark]) -> dict[str, list[Mark]]:
    found: dict[str, list[Mark]] = {}
    for mark in marks:
        found.setdefault(mark.label, []).append(mark)
    return found


def _draw(axes: Axes, image: NDArray[np.uint8], marks: Sequence[Mark], colours: Mapping[str, str]) -> None:
    """A faint image with marks; below it which colour is what, how many there are and how sure the model is at most."""
    draw_faint(axes, image)
    for number, (label, several) in enumerate(_by_label(marks).items()):
        scores = [mark.score for mark in several if mark.score is not None]
        told = short(label, MOST_LETTERS) + (f" ×{len(several)}" if len(several) > 1 else "")
        told += f" {max(scores):.2f}" if scores else ""
        for place, mark in enumerate(several):
            fine = len(mark.line) > FINE
            axes.plot(
                mark.line[:, 0],
                mark.line[:, 1],
                color=colours[label],
                linewidth=0.25 if fine else 1.5,
                alpha=0.6 if fine else 1.0,
                label=told if label and not place and number < MOST_LABELS else None,
            )
    more = len(_by_label(marks)) - MOST_LABELS
    if more > 0:
        axes.plot([], [], color="none", label=f"and {more} more")
    axes.set_xlim(0, image.shape[1])
    axes.set_ylim(image.shape[0], 0)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    if any(mark.label for mark in marks):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False, fontsize=8, handlelength=1.0)
