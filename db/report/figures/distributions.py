"""Distributions of the values measured by an analysis, from the arrays in the run directories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from db.report.view.cells import CellResult
from harness.analysis import analysis_of
from harness.errors import InputError
from harness.files import open_regular
from harness.runs.run_directory import RunDirectory

Array = NDArray[Any]

BINS = 40


@dataclass(frozen=True)
class Distribution:
    """A histogram of all seeds of a row: shares of the values (N,) between the edges (N + 1,), and their mean."""

    row: str
    shares: Array
    edges: Array
    mean: float


def distributions(results: Sequence[CellResult], runs: Path) -> list[Distribution]:
    """Return one distribution per measured cell, all with the same edges; raise InputError if a file is damaged."""
    measured = [(result, list(arrays_of(result, runs))) for result in results]
    measured = [(result, seeds) for result, seeds in measured if seeds]
    if any(name.endswith(".counts") for _, seeds in measured for name in seeds[0]):
        return _from_counts(measured)
    samples = [(result, values) for result, seeds in measured if (values := _samples(result, seeds)) is not None]
    if not samples:
        return []
    pooled = np.concatenate([values for _, values in samples])
    edges = np.linspace(pooled.min(), max(pooled.max(), pooled.min() + 1e-9), BINS + 1)
    return [
        Distribution(result.row, np.histogram(values, edges)[0] / len(values), edges, float(values.mean()))
        for result, values in samples
    ]


def arrays_of(result: CellResult, runs: Path) -> Iterator[dict[str, Array]]:
    """Yield the arrays of the cell's analysis for each analyzed seed; raise InputError if a file is damaged."""
    kind = str(analysis_of(result.cell.metric))
    for seed in result.averaged:
        if (arrays := load_arrays(runs / seed.id, kind)) is not None:
            yield arrays


def load_arrays(directory: Path, kind: str) -> dict[str, Array] | None:
    """Return the arrays of an analysis, or None if it was not run; raise InputError if the file is damaged."""
    try:
        # np.load does not close the file if it is damaged.
        with open_regular(RunDirectory(directory).analyses / f"{kind}.npz") as file:
            content = np.load(file, allow_pickle=False)
            return {name: content[name] for name in content}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, BadZipFile) as error:
        command = f"dropbench analyze {directory.name} {kind}"
        raise InputError(f"{directory}: its {kind} is damaged ({error}): run `{command}`") from None


def _samples(result: CellResult, seeds: Sequence[dict[str, Array]]) -> Array | None:
    """Return the values of all seeds (N,) whose mean is the cell's metric, averaged over heads; None if there are none.

    A metric that belongs neither to a layer nor to the last one is the mean over all layers.
    """
    scalar = result.cell.metric.partition("/")[2]
    parts: list[Array] = []
    for arrays in seeds:
        layers = {name: values if values.ndim == 1 else values.mean(axis=1) for name, values in arrays.items()}
        if scalar == "last":
            parts.append(layers[list(layers)[-1]])
        else:
            parts.append(layers[scalar] if scalar in layers else np.mean(list(layers.values()), axis=0))
    pooled = np.concatenate(parts)
    pooled = pooled[np.isfinite(pooled)]
    return pooled if pooled.size else None


def _from_counts(measured: Sequence[tuple[CellResult, list[dict[str, Array]]]]) -> list[Distribution]:
    """Merge histograms whose bins start at 0 and differ in width by powers of two (`harness.analysis.sparsity`).

    A metric that does not belong to a layer pools all layers and heads.
    """
    histograms: list[tuple[CellResult, list[tuple[Array, float]], float]] = []
    for result, seeds in measured:
        scalar = result.cell.metric.partition("/")[2]
        parts: list[tuple[Array, float]] = []
        means: list[float] = []
        for arrays in seeds:
            layers = [name.removesuffix(".counts") for name in arrays if name.endswith(".counts")]
            for layer in [scalar] if scalar in layers else layers:
                parts.append((arrays[f"{layer}.counts"].sum(axis=0), float(arrays[f"{layer}.edges"][1])))
                means.append(float(np.mean(arrays[f"{layer}.heads"])))
        histograms.append((result, parts, float(np.mean(means))))
    width = max(width for _, parts, _ in histograms for _, width in parts)
    totals = [
        np.sum([_merge_bins(counts, round(width / own)) for counts, own in parts], axis=0) for _, parts, _ in histograms
    ]
    last = 1 + max(int(np.flatnonzero(total).max(initial=0)) for total in totals)
    factor = -(-last // BINS)
    bins = -(-last // factor)
    edges = np.arange(bins + 1) * width * factor
    return [
        Distribution(result.row, _merge_bins(total, factor)[:bins] / max(total.sum(), 1), edges, mean)
        for (result, _, mean), total in zip(histograms, totals, strict=True)
    ]


def _merge_bins(counts: Array, factor: int) -> Array:
    """Return the counts of bins `factor` times as wide, (N,) like `counts`; the last bins are empty."""
    merged = np.pad(counts, (0, -len(counts) % factor)).reshape(-1, factor).sum(axis=1)
    return np.pad(merged, (0, len(counts) - len(merged)))
