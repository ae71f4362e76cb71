"""Distributions of the values measured by an analysis, from the arrays in the run directories."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from dropbench.db.report.view.cells import CellResult
from dropbench.harness.analysis import analysis_of
from dropbench.harness.errors import InputError
from dropbench.harness.files import open_regular
from dropbench.harness.runs.run_directory import RunDirectory

Array = NDArray[Any]
Arrays = Mapping[str, Array]
"""Arrays of an analysis of one trial, by name."""

BINS = 40
COVERED = 0.999
"""Share of the values of each row that is below the last edge, so that outliers do not squeeze the others."""


@dataclass(frozen=True)
class Distribution:
    """A histogram of all seeds of a row: shares of the values (N,) between the edges (N + 1,), and their mean."""

    row: str
    shares: Array
    edges: Array
    mean: float


def distributions(seeds_of: Mapping[str, Sequence[Arrays]], layer: str) -> list[Distribution]:
    """Return one distribution per row with arrays, all with the same edges; the last bin includes larger outliers.

    Args:
        seeds_of: arrays of an analysis of each seed, by row.
        layer: name of a layer, "last", or any other text for all layers.
    """
    measured = {row: seeds for row, seeds in seeds_of.items() if seeds}
    if any(name.endswith(".counts") for seeds in measured.values() for name in seeds[0]):
        return _from_counts(measured, layer)
    samples = {row: values for row, seeds in measured.items() if len(values := _samples(seeds, layer))}
    if not samples:
        return []
    low = min(values.min() for values in samples.values())
    high = max(np.quantile(values, COVERED, method="inverted_cdf") for values in samples.values())
    edges = np.linspace(low, max(high, low + 1e-9), BINS + 1)
    return [
        Distribution(row, np.histogram(np.minimum(values, edges[-1]), edges)[0] / len(values), edges, values.mean())
        for row, values in samples.items()
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


def _samples(seeds: Sequence[Arrays], layer: str) -> Array:
    """Return the finite values of all seeds (N,), averaged over heads, and over layers if all are selected."""
    parts: list[Array] = []
    for arrays in seeds:
        layers = {name: values if values.ndim == 1 else values.mean(axis=1) for name, values in arrays.items()}
        if layer == "last":
            parts.append(layers[list(layers)[-1]])
        else:
            parts.append(layers[layer] if layer in layers else np.mean(list(layers.values()), axis=0))
    pooled = np.concatenate(parts)
    finite: Array = pooled[np.isfinite(pooled)]
    return finite


def _from_counts(measured: Mapping[str, Sequence[Arrays]], layer: str) -> list[Distribution]:
    """Merge histograms whose bins start at 0 and differ in width by powers of two (`harness.analysis.sparsity`)."""
    histograms: dict[str, list[tuple[Array, float]]] = {}
    means: dict[str, float] = {}
    for row, seeds in measured.items():
        layers = [name.removesuffix(".counts") for name in seeds[0] if name.endswith(".counts")]
        selected = [layer] if layer in layers else layers[-1:] if layer == "last" else layers
        pairs = [(arrays, name) for arrays in seeds for name in selected]
        histograms[row] = [
            (arrays[f"{name}.counts"].sum(axis=0), float(arrays[f"{name}.edges"][1])) for arrays, name in pairs
        ]
        means[row] = float(np.mean([np.mean(arrays[f"{name}.heads"]) for arrays, name in pairs]))
    width = max(width for parts in histograms.values() for _, width in parts)
    totals = {
        row: np.sum([_merge_bins(counts, round(width / own)) for counts, own in parts], axis=0)
        for row, parts in histograms.items()
    }
    last = 1 + max(int(np.searchsorted(total.cumsum(), COVERED * total.sum())) for total in totals.values())
    factor = -(-last // BINS)
    bins = -(-last // factor)
    edges = np.arange(bins + 1) * width * factor
    found = []
    for row, total in totals.items():
        merged = _merge_bins(total, factor)
        merged[bins - 1] += merged[bins:].sum()
        found.append(Distribution(row, merged[:bins] / max(total.sum(), 1), edges, means[row]))
    return found


def _merge_bins(counts: Array, factor: int) -> Array:
    """Return the counts of bins `factor` times as wide, (N,) like `counts`; the last bins are empty."""
    merged = np.pad(counts, (0, -len(counts) % factor)).reshape(-1, factor).sum(axis=1)
    return np.pad(merged, (0, len(counts) - len(merged)))
