"""The critical-difference diagram of a ranking (Demšar 2006, figure 1)."""

from __future__ import annotations

from io import BytesIO
from math import ceil, floor
from typing import Literal

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dropbench.db.queries.rank import Ranking
from dropbench.db.report.formats.comparison_tables import row_label
from dropbench.db.statistics.corrections import SIGNIFICANCE
from dropbench.db.statistics.ranks import groups
from dropbench.harness.analysis.figures import DPI
from dropbench.harness.cli.plain_text import plain
from dropbench.harness.errors import InputError

WIDTH, LABEL_WIDTH = 8.0, 2.2
"""Inches of the diagram, and of the labels on either side of it."""
HEAD, LINE, GAP = 0.75, 0.22, 0.12
"""Inches above the axis, between labels, and between bars."""
MAX_TICKS, MAX_LABEL = 12, 30
"""Ticks of the axis, characters of a label."""
INK, BAR, QUIET = "#1b1f24", "#c2410c", "#6b7280"


def critical_difference_diagram(ranking: Ranking, kind: Literal["png", "svg"]) -> bytes:
    """Return the mean ranks on an axis, with a bar over each group of regularizers that do not differ.

    Raises:
        InputError: the ranking has too few regularizers or blocks for Friedman's test.
    """
    if ranking.friedman is None or ranking.critical_difference is None:
        reason = next((note for note in ranking.notes if "Friedman" in note), "no ranks")
        raise InputError(f"no critical-difference diagram: {reason}")
    drawn = _draw(ranking, ranking.critical_difference, ranking.friedman["p"])
    file = BytesIO()
    # Text remains text, and the same ranking gives the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "dropbench"}):
        drawn.savefig(file, format=kind, dpi=DPI, metadata={"Date": None} if kind == "svg" else None)
    return file.getvalue()


def _draw(ranking: Ranking, difference: float, p: float) -> Figure:
    """Draw in inches: x from the left, y from the axis of the ranks upwards."""
    labels = [plain(row_label(row)) for row in ranking.rows]
    names = [label if len(label) <= MAX_LABEL else f"{label[: MAX_LABEL - 1]}…" for label in labels]
    ranks = [float(row["rank"]) for row in ranking.rows]
    everyone = [list(range(len(ranks)))]
    bars = [members for members in (groups(ranks, difference) if p < SIGNIFICANCE else everyone) if len(members) > 1]
    low, high = floor(ranks[0]), max(ceil(ranks[-1]), floor(ranks[0]) + 1)
    left = ceil(len(ranks) / 2)
    below = GAP * (len(bars) + 2)
    drawn = Figure(figsize=(WIDTH, HEAD + below + LINE * left))
    axes = drawn.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(-below - LINE * left, HEAD))
    axes.axis("off")
    scale = (WIDTH - 2 * LABEL_WIDTH) / (high - low)
    x = [LABEL_WIDTH + (rank - low) * scale for rank in ranks]
    _axis(axes, low, high, scale)
    text = f"critical difference {difference:.2f}; {ranking.blocks} blocks; Friedman's test: p = {p:.2g}"
    if difference <= high - low:
        axes.plot([LABEL_WIDTH, LABEL_WIDTH + difference * scale], [0.45, 0.45], color=BAR, linewidth=2, marker="|")
    axes.text(LABEL_WIDTH, 0.55, text, va="bottom", fontsize=8, color=INK)
    for number, members in enumerate(bars, 1):
        ends = [x[members[0]] - 0.05, x[members[-1]] + 0.05]
        axes.plot(ends, [-GAP * number] * 2, color=BAR, linewidth=3.5, solid_capstyle="round", zorder=3)
    for index, name in enumerate(names):
        on_left = index < left
        y = -below - LINE * (index if on_left else len(names) - 1 - index)
        edge, side = (LABEL_WIDTH - 0.1, -1) if on_left else (WIDTH - LABEL_WIDTH + 0.1, 1)
        axes.plot([x[index], x[index], edge], [0, y, y], color=QUIET, linewidth=0.8)
        align: Literal["right", "left"] = "right" if on_left else "left"
        axes.text(edge + 0.05 * side, y, name, parse_math=False, ha=align, va="center", fontsize=8.5, color=INK)
    return drawn


def _axis(axes: Axes, low: int, high: int, scale: float) -> None:
    axes.plot([LABEL_WIDTH, LABEL_WIDTH + (high - low) * scale], [0, 0], color=INK, linewidth=1.2)
    for rank in range(low, high + 1, ceil((high - low) / MAX_TICKS)):
        x = LABEL_WIDTH + (rank - low) * scale
        axes.plot([x, x], [0, 0.07], color=INK, linewidth=1.2)
        axes.text(x, 0.1, str(rank), ha="center", va="bottom", fontsize=8, color=INK)
