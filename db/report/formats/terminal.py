"""The table of a suite on a terminal, or in a pipe of the same width."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from db.report.formats.escaping import plain
from db.report.formats.layout import Grid, long_grid, wide_grid
from db.report.view.view import View

MIN_LABEL_WIDTH = 12
MAX_WORD = 24
"""Longer words in labels, which users write, may wrap inside."""


def print_suite_table(view: View, console: Console) -> None:
    """Print rows and columns as in the source if they fit, or else one line per cell; numbers never wrap."""
    star = not console.is_terminal
    grid = long_grid(view)
    if _min_width(grid, star) > console.width:
        grid = long_grid(view, intervals=False)
    if len(view.columns) > 1 and _width(wide := wide_grid(view), star, gap=2) <= console.width:
        grid = wide
    table = _table(grid, star, gap=2 if _width(grid, star, gap=2) <= console.width else 0)
    console.print(Text(plain(grid.title), style="bold"))
    # If the terminal is too narrow for its numbers, the table overflows instead of cutting them.
    size = console.size
    console.width = max(console.width, _min_width(grid, star))
    console.print(table, highlight=False)
    console.size = size
    console.print()
    for number, note in enumerate(grid.notes, 1):
        console.print(Text(f"[{number}] {plain(note)}"))
    for line in grid.about:
        console.print(Text(plain(line.replace("bold: best", "*: best") if star else line), style="dim"))


def _table(grid: Grid, star: bool, gap: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold", show_edge=False)
    labels, numbers = _labels(grid), _numbers(grid, star)
    table.add_column(Text(labels[0]), overflow="fold", min_width=_min_label_width(grid))
    for texts in numbers:
        table.add_column(Text(texts[0]), no_wrap=True, min_width=len(texts[0]))
    for index, line in enumerate(grid.lines, 1):
        if line.kind == "section":
            if index > 1:
                table.add_section()
            table.add_row(Text(labels[index], style="bold italic"))
            continue
        style = "dim" if line.kind == "below" else ""
        cells = [
            Text(texts[index], style="bold" if entry.best else style)
            for texts, entry in zip(numbers, line.entries[1:], strict=True)
        ]
        table.add_row(Text(labels[index], style=style), *cells)
    return table


def _labels(grid: Grid) -> list[str]:
    """Return the first column with its header; labels of lines below a row are indented."""
    labels = [("  " if line.kind == "below" else "") + plain(line.entries[0].text) for line in grid.lines]
    return [plain(grid.header[0]), *labels]


def _numbers(grid: Grid, star: bool) -> list[list[str]]:
    """Return the other columns with their headers, padded to one width per column.

    Texts are aligned right; a number without ± is aligned with the means of the others. With `star`, for outputs
    without bold, the best have a star after them.
    """
    columns = []
    for column in range(1, len(grid.header)):
        entries = [line.entries[column] if column < len(line.entries) else None for line in grid.lines]
        texts = [plain(entry.text) if entry else "" for entry in entries]
        tail = max((len(text) - text.index(" ± ") for text in texts if " ± " in text), default=0)
        texts = [text + " " * tail if text[-1:].isdigit() and " " not in text else text for text in texts]
        if star and any(entry is not None and entry.best for entry in entries):
            stars = [" *" if entry is not None and entry.best else "  " for entry in entries]
            texts = [text + mark for text, mark in zip(texts, stars, strict=True)]
        texts = [plain(grid.header[column]), *texts]
        width = max(map(len, texts))
        columns.append([text.rjust(width) for text in texts])
    return columns


def _min_width(grid: Grid, star: bool) -> int:
    """Return the minimum width of the table: labels wrap, numbers do not."""
    labels = max(map(len, _labels(grid)))
    return _width(grid, star, gap=0) - max(0, labels - _min_label_width(grid))


def _min_label_width(grid: Grid) -> int:
    """Return the width that the labels need in order to wrap between words; rich breaks a longer word anywhere."""
    labels = _labels(grid)
    words = (len(word) + len(label) - len(label.lstrip()) for label in labels for word in label.split())
    return min(max(map(len, labels)), max(MIN_LABEL_WIDTH, min(MAX_WORD, max(words, default=0))))


def _width(grid: Grid, star: bool, gap: int) -> int:
    """Return the width of the table if nothing wraps; rich adds one space to each gap between columns."""
    numbers = [len(texts[0]) for texts in _numbers(grid, star)]
    return max(map(len, _labels(grid))) + sum(numbers) + (gap + 1) * len(numbers)
