"""How what an analysis measured is distributed, from the arrays that it kept in the run directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from db.report.view import Outcome
from harness.analysis import analysis_of
from harness.errors import InputError
from harness.rundir import RunDirectory

Array = NDArray[Any]

BINS = 40


@dataclass(frozen=True)
class Distribution:
    """Shares of the values by bin, between the edges, of all seeds of a row; and the mean of the values themselves."""

    row: str
    shares: Array
    edges: Array
    mean: float


def distributions(outcomes: Sequence[Outcome], runs: Path) -> list[Distribution]:
    """One for each outcome of which something was measured, all with the same edges.

    Raises:
        InputError: what was kept is damaged.
    """
    kept = [(outcome, list(arrays_of(outcome, runs))) for outcome in outcomes]
    kept = [(outcome, arrays) for outcome, arrays in kept if arrays]
    if any(name.endswith(".counts") for _, arrays in kept for name in arrays[0]):
        return _counted(kept)
    sampled = [(outcome, values) for outcome, arrays in kept if (values := _by_sample(outcome, arrays)) is not None]
    if not sampled:
        return []
    together = np.concatenate([values for _, values in sampled])
    edges = np.linspace(together.min(), max(together.max(), together.min() + 1e-9), BINS + 1)
    return [
        Distribution(outcome.row, np.histogram(values, edges)[0] / len(values), edges, float(values.mean()))
        for outcome, values in sampled
    ]


def arrays_of(outcome: Outcome, runs: Path) -> Iterator[dict[str, Array]]:
    """What an analysis kept of each seed, where it has.

    Raises:
        InputError: a file is damaged.
    """
    kind = analysis_of(outcome.cell.metric)
    for seed in outcome.seeds:
        try:
            # Opened here: of a damaged file NumPy would leave it open.
            with open(RunDirectory(runs / seed.id).analyses / f"{kind}.npz", "rb") as file:
                kept = np.load(file, allow_pickle=False)
                yield {name: kept[name] for name in kept}
        except FileNotFoundError:
            continue
        except (OSError, ValueError, BadZipFile) as error:
            raise InputError(
                f"{runs / seed.id}: its {kind} is damaged ({error}): dropbench analyze {seed.id} {kind}"
            ) from None


def _by_sample(outcome: Outcome, kept: Sequence[dict[str, Array]]) -> Array | None:
    """What the cell's metric is the mean of, of all seeds (N,), heads averaged; None where nothing was measured.

    Of a metric that is no layer's, and not the last one's, that is the mean of all layers.
    """
    _, _, scalar = outcome.cell.metric.partition("/")
    found: list[Array] = []
    for arrays in kept:
        layers: dict[str, Array] = {
            name: values if values.ndim == 1 else values.mean(axis=1) for name, values in arrays.items()
        }
        if scalar == "last":
            found.append(layers[list(layers)[-1]])
        else:
            found.append(layers[scalar] if scalar in layers else np.mean(list(layers.values()), axis=0))
    together: Array = np.concatenate(found) if found else np.empty(0)
    together = together[np.isfinite(together)]
    return together if together.size else None


def _counted(kept: Sequence[tuple[Outcome, list[dict[str, Array]]]]) -> list[Distribution]:
    """Of histograms with bins from 0 whose widths are a power of two apart (`harness.analysis.sparsity`).

    Of a metric that is no layer's, all layers and heads together.
    """
    summed: list[tuple[Outcome, list[tuple[Array, float]], float]] = []
    for outcome, seeds in kept:
        _, _, scalar = outcome.cell.metric.partition("/")
        parts: list[tuple[Array, float]] = []
        means: list[float] = []
        for arrays in seeds:
            layers = [name.removesuffix(".counts") for name in arrays if name.endswith(".counts")]
            for layer in [scalar] if scalar in layers else layers:
                parts.append((arrays[f"{layer}.counts"].sum(axis=0), float(arrays[f"{layer}.edges"][1])))
                means.append(float(np.mean(arrays[f"{layer}.heads"])))
        summed.append((outcome, parts, float(np.mean(means))))
    width = max(width for _, parts, _ in summed for _, width in parts)
    totals = [np.sum([_merged(counts, round(width / own)) for counts, own in parts], axis=0) for _, parts, _ in summed]
    last = 1 + max(int(np.flatnonzero(total).max(initial=0)) for total in totals)
    merge = -(-last // BINS)
    bins = -(-last // merge)
    edges = np.arange(bins + 1) * width * merge
    return [
        Distribution(outcome.row, _merged(total, merge)[:bins] / max(total.sum(), 1), edges, mean)
        for (outcome, _, mean), total in zip(summed, totals, strict=True)
    ]


def _merged(counts: Array, merge: int) -> Array:
    """Counts of bins `merge` times as wide; as many bins as before, the last ones empty."""
    padded = np.zeros(-(-len(counts) // merge) * merge)
    padded[: len(counts)] = counts
    merged = padded.reshape(-1, merge).sum(axis=1)
    wide: Array = np.zeros(len(counts))
    wide[: len(merged)] = merged
    return wide
