"""Limits on what a page shows, so that it stays small and fast."""

from __future__ import annotations


class Limits:
    """The largest numbers on a page of a suite and on the dashboard."""

    table_cells = 1500
    file_length = 500_000
    """Characters of the table as a file; the page's script writes a longer one from the texts that the page shows."""

    full_trials = 120
    """Trials with attempts, environment and log."""
    listed_trials = 1500
    """Trials in one line each."""
    configs = 200
    """Cells with the full configuration; if there are more, only baselines have it."""
    log_lines, log_line_length, log_bytes = 20, 240, 16_384

    rows, charts = 40, 24
    """Rows of a table that are plotted, and charts per group."""
    seeds = 10
    """Seeds of a cell that are plotted."""
    trials = 300
    """Trials whose run directories are read for charts."""
    points, page_points = 200, 16_000
    """Points per curve, and of all curves of a group."""
    marked_points = 12
    """Points of a curve that are shown as dots."""
    label = 120
    """Characters of a label."""

    analyzed_cells, analyzed_seeds = 200, 5
    """Cells whose analyses are read, and seeds of each."""
    pictures, samples = 12, 3
    """Pictures or rows of attention maps per group, and samples of each map."""

    running, latest, curves = 60, 12, 6
    """On the dashboard: running trials, trials that changed last, and curves of a trial."""


def points_per_curve(curves: int) -> int:
    """Return the largest number of points of each of some curves of a group."""
    return max(20, min(Limits.points, Limits.page_points // max(1, curves)))
