"""Results of `dropbench analyze` for the trials of a suite: histograms, lines, attention maps and pictures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dropbench.db.report.figures.distributions import Array, distributions, load_arrays
from dropbench.db.report.figures.maps import draw_maps, scale_end
from dropbench.db.report.formats.escaping import cut
from dropbench.db.report.page.charts import Group, histogram_chart, labels, parameter_chart, rounded
from dropbench.db.report.page.limits import Limits
from dropbench.db.report.view.cells import CellResult
from dropbench.db.report.view.view import View
from dropbench.harness.analysis.figures import png
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import Runs

HISTOGRAMS = {
    "entropy": ("Entropy of the attention", "entropy (nats)"),
    "diversity": ("Div, the overlap of heads", "Div (large: heads overlap)"),
    "disagreement": ("Disagreement of heads", "Disagreement (1: all alike)"),
    "sparsity": ("Sparsity of the attention", "largest weight × length"),
}
"""Title and axis of each analysis with values."""
LINES = {"keep-rate": "Share of the attention kept", "occlusion": "Robustness to occlusion"}
MAPS = {"attention-map": "Attention maps", "interactions": "Attention of body joints"}
PICTURES = {"predictions": "Predictions"}
ANALYSES = (*HISTOGRAMS, *LINES, *MAPS, *PICTURES)
"""Ids of the groups, in order."""


def analysis_groups(view: View, runs: Path) -> list[Group]:
    """Return a group for each kind of analysis that any of the trials has."""
    cells: dict[str, list[CellResult]] = {kind: [] for kind in ANALYSES}
    for cell in list(view.cells.values())[: Limits.analyzed_cells]:
        for kind in {
            kind for seed in cell.averaged[: Limits.analyzed_seeds] for kind in _analyses(runs, seed.id)
        } & cells.keys():
            cells[kind].append(cell)
    groups = [_histograms(kind, view, cells[kind], runs) for kind in HISTOGRAMS]
    groups += [_lines(kind, view, cells[kind], runs) for kind in LINES]
    groups += [_maps(kind, cells[kind], runs) for kind in MAPS]
    groups += [_pictures(kind, cells[kind], runs) for kind in PICTURES]
    return [group for group in groups if group.charts or group.pictures]


def _analyses(runs: Path, id: str) -> list[str]:
    """Return the analyses of a trial."""
    try:
        return [file.stem for file in (runs / id / "analysis").iterdir()]
    except OSError:
        return []


def _histograms(kind: str, view: View, cells: list[CellResult], runs: Path) -> Group:
    """Return one chart per column with the values of the last layer, and a table of the means of all layers."""
    title, axis = HISTOGRAMS[kind]
    seeds_of = {(cell.row, cell.column): seeds for cell in cells if (seeds := list(_arrays(kind, cell, runs)))}
    rows, legend = list(view.rows), labels(view.rows)
    plotted = sorted({rows.index(row) for row, _ in seeds_of})
    group = Group(kind, title, ["The last layer, over all analyzed seeds."], [(row, legend[row]) for row in plotted])
    group.header = ("column", "row", "seeds", "layer", "mean")
    for column in view.columns:
        column_seeds = {row: seeds for (row, label), seeds in seeds_of.items() if label == column}
        if not column_seeds or len(group.charts) == Limits.charts:
            continue
        points = [
            {"r": rows.index(outline.row), "x": rounded(x), "y": rounded(y)}
            for outline in distributions(column_seeds, "last")
            for x, y in zip(outline.edges, [*outline.shares, outline.shares[-1]], strict=True)
        ]
        if points:
            group.charts.append(histogram_chart(column, f"{title}, last layer: {column}", legend, points, axis))
        group.rows += [
            (column, legend[rows.index(row)], str(len(seeds)), cut(layer, 80), f"{mean:.4g}")
            for row, seeds in column_seeds.items()
            for layer, mean in _layer_means(kind, seeds).items()
        ]
    return group


def _layer_means(kind: str, seeds: list[dict[str, Array]]) -> dict[str, float]:
    """Return the mean of each layer over all seeds."""
    suffix = ".heads" if kind == "sparsity" else ""
    means: dict[str, list[float]] = {}
    for arrays in seeds:
        for name, values in arrays.items():
            if name.endswith(suffix):
                mean = float(np.nanmean(values)) if values.size else float("nan")
                means.setdefault(name.removesuffix(suffix), []).append(mean)
    return {name: float(np.mean(values)) for name, values in means.items()}


def _lines(kind: str, view: View, cells: list[CellResult], runs: Path) -> Group:
    """Return one chart per column: the share kept at each site, or the metric over the hidden share of samples."""
    keep = kind == "keep-rate"
    x, references = ("site", ("1 − drop ratio",)) if keep else ("hidden share of a sample", ())
    rows, legend = list(view.rows), labels(view.rows)
    lead = "Lines: mean over seeds; bands: ± standard deviation; small points: single seeds"
    group = Group(kind, LINES[kind], ["; hollow diamonds: ".join([lead, *references]) + "."])
    group.header = ("column", "row", "seeds", x, "value", *references)
    plotted: set[int] = set()
    for column in view.columns:
        points: list[dict[str, Any]] = []
        y = "share kept"
        for cell in (cell for cell in cells if cell.column == column):
            seeds = [line for arrays in _arrays(kind, cell, runs) if (line := _line(kind, arrays)) is not None]
            seeds = [line for line in seeds if line.names == seeds[0].names]
            if not seeds:
                continue
            row, y = rows.index(cell.row), seeds[0].y
            values = np.array([line.values for line in seeds])
            mean, std = values.mean(axis=0), values.std(axis=0, ddof=min(1, len(seeds) - 1))
            for number, name in enumerate(seeds[0].names):
                nominal, text = seeds[0].reference[number], f"{mean[number]:.4g}"
                reference = f"{nominal:.4g}" if np.isfinite(nominal) else ""
                point: dict[str, Any] = {"r": row, "x": number + 1 if keep else float(name), "y": rounded(mean[number])}
                point |= {"n": len(seeds), "m": text}
                if len(seeds) > 1:
                    point |= {"l": rounded(mean[number] - std[number]), "h": rounded(mean[number] + std[number])}
                    point["s"] = [rounded(value) for value in values[:, number]]
                if reference:
                    point |= {"p": rounded(nominal), "q": reference}
                points.append(point)
                texts = (column, legend[row], str(len(seeds)), cut(name, 80), text, reference)
                group.rows.append(texts[: len(group.header)])
            plotted.add(row)
        if points and len(group.charts) < Limits.charts:
            description = f"{LINES[kind]}: {column}"
            group.charts.append(parameter_chart(column, description, legend, points, x, y, ("seeds", *references)))
    group.legend = [(row, legend[row]) for row in sorted(plotted)]
    return group


@dataclass(frozen=True)
class _Line:
    """A line of one seed: names of its points, values, reference values (NaN: none), and the name of the values."""

    names: list[str]
    values: Array
    reference: Array
    y: str


def _line(kind: str, arrays: Mapping[str, Array]) -> _Line | None:
    """Return the line that an analysis measured; None if there is no finite one."""
    if kind == "keep-rate":
        line = _Line([str(name) for name in arrays["sites"]], arrays["kept"], arrays["nominal"], "share kept")
    else:
        (losses, values), name = list(arrays.values())[:2], list(arrays)[1]
        line = _Line([f"{loss:g}" for loss in losses], values.mean(axis=1), np.full(len(losses), np.nan), name)
    return line if np.isfinite(line.values).all() and line.names else None


def _maps(kind: str, cells: list[CellResult], runs: Path) -> Group:
    """Return one figure per column with the maps of each row's first analyzed seed, all on one color scale."""
    group = Group(kind, MAPS[kind])
    group.lead.append("The first analyzed seed of each row, on the same samples; all maps have the same color scale.")
    analyzed = [(cell, arrays) for cell in cells for arrays in islice(_arrays(kind, cell, runs), 1)]
    columns: dict[str, list[tuple[str, Mapping[str, Array]]]] = {}
    for cell, arrays in analyzed[: Limits.pictures]:
        columns.setdefault(cell.column, []).append((cell.row, arrays))
    top = max((scale_end(rows, Limits.samples) for rows in columns.values()), default=1.0)
    for column, rows in columns.items():
        content = _shrink(BytesIO(png(draw_maps(rows, top, Limits.samples))))
        assert content is not None
        group.add_picture(column, f"{group.title}: {column}: {', '.join(row for row, _ in rows)}", content)
    _note_omitted(group, len(analyzed) - Limits.pictures)
    return group


def _pictures(kind: str, cells: list[CellResult], runs: Path) -> Group:
    """Return the analysis' own figure of the first seed that has one, for each cell."""
    group = Group(kind, PICTURES[kind], ["The first analyzed seed of each cell, on the same samples."])
    omitted = 0
    for cell in cells:
        files = {seed: Runs(runs)[seed.id].analyses / f"{kind}.png" for seed in cell.averaged[: Limits.analyzed_seeds]}
        seed, file = next(((seed, file) for seed, file in files.items() if file.is_file()), (None, None))
        if seed is None or file is None:
            continue
        content = _shrink(file) if len(group.pictures) < Limits.pictures else None
        if content is None:
            omitted += 1
        else:
            caption = f"{cut(cell.row, 60)} · {cut(cell.column, 60)}, seed {seed.seed}"
            group.add_picture(caption, f"{group.title}: {caption}", content)
    _note_omitted(group, omitted)
    return group


def _note_omitted(group: Group, count: int) -> None:
    if count > 0:
        group.lead.append(f"{count} more are in the run directories, as analysis/{group.id}.png.")


def _shrink(file: Path | BytesIO, width: int = 900) -> bytes | None:
    """Return a PNG file with a palette, at most `width` pixels wide; None if it is no valid picture."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(file, formats=("PNG",)) as image:
            picture = image.convert("RGB")
    except (OSError, UnidentifiedImageError, ValueError, Image.DecompressionBombError):
        return None
    picture.thumbnail((width, 4 * width))
    content = BytesIO()
    picture.quantize(256, Image.Quantize.FASTOCTREE).save(content, format="PNG", optimize=True)  # keeps color scales
    return content.getvalue()


def _arrays(kind: str, cell: CellResult, runs: Path) -> Iterator[dict[str, Array]]:
    """Yield the arrays that the analysis stored for each seed; damaged files are left out."""
    for seed in cell.averaged[: Limits.analyzed_seeds]:
        with suppress(InputError):
            if arrays := load_arrays(runs / seed.id, kind):
                yield arrays
