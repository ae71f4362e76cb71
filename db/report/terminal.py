"""A table on the terminal, or in a pipe as wide as one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from db.report.layout import Grid, long_grid, wide_grid
from db.report.text import plain
from db.report.view import View

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

NARROWEST_LABEL = 12


def print_table(view: View, console: Console) -> None:
    """Print it with rows and columns as in the source where that fits, else with a line a cell; numbers never wrap."""
    from rich.text import Text

    star = not console.is_terminal
    grid = long_grid(view)
    if _least(grid, star) > console.width:
        grid = long_grid(view, intervals=False)
    if len(view.columns) > 1 and _width(wide := wide_grid(view), star, gap=2) <= console.width:
        grid = wide
    told = [line if console.is_terminal else line.replace("bold: best", "*: best") for line in grid.about]
    console.print(Text(plain(grid.title), style="bold"))
    _print_whole(_table(grid, star, gap=2 if _width(grid, star, gap=2) <= console.width else 0), grid, console)
    console.print()
    for position, note in enumerate(grid.notes, 1):
        console.print(Text(f"[{position}] {plain(note)}"))
    for line in told:
        console.print(Text(plain(line), style="dim"))


def _print_whole(table: Table, grid: Grid, console: Console) -> None:
    """Print the table; where the terminal is too narrow for its numbers, wider than that rather than cut."""
    size = console.size
    console.width = max(console.width, _least(grid, not console.is_terminal))
    console.print(table, highlight=False)
    if console.width != size.width:
        console.size = size


def _table(grid: Grid, star: bool, gap: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold", show_edge=False)
    labels, numbers = _labels(grid), _numbers(grid, star)
    table.add_column(Text(labels[0]), overflow="fold", min_width=min(NARROWEST_LABEL, max(map(len, labels))))
    for texts in numbers:
        table.add_column(Text(texts[0]), no_wrap=True, min_width=len(texts[0]))
    for position, line in enumerate(grid.lines, 1):
        if line.kind == "section":
            if position > 1:
                table.add_section()
            table.add_row(Text(labels[position], style="bold italic"))
            continue
        style = "dim" if line.kind == "below" else ""
        entries = [*line.entries[1:]]
        shown = [
            Text(texts[position], style="bold" if entry.best else style)
            for texts, entry in zip(numbers, entries, strict=True)
        ]
        table.add_row(Text(labels[position], style=style), *shown)
    return table


def _labels(grid: Grid) -> list[str]:
    """The first column with its header; what stands below a row is indented."""
    labels = [("  " if line.kind == "below" else "") + plain(line.entries[0].text) for line in grid.lines]
    return [plain(grid.header[0]), *labels]


def _numbers(grid: Grid, star: bool) -> list[list[str]]:
    """The other columns with their headers, each of one width.

    Texts end at the right; a number without ± ends where those with one have their mean. With `star`, where there is
    no bold, the best has a star behind it.
    """
    columns = []
    for place in range(1, len(grid.header)):
        entries = [line.entries[place] if place < len(line.entries) else None for line in grid.lines]
        texts = [plain(entry.text) if entry else "" for entry in entries]
        tail = max((len(text) - text.index(" ± ") for text in texts if " ± " in text), default=0)
        texts = [text + " " * tail if text[-1:].isdigit() and " " not in text else text for text in texts]
        if star and any(entry is not None and entry.best for entry in entries):
            stars = [" *" if entry is not None and entry.best else "  " for entry in entries]
            texts = [text + mark for text, mark in zip(texts, stars, strict=True)]
        texts = [plain(grid.header[place]), *texts]
        width = max(map(len, texts))
        columns.append([text.rjust(width) for text in texts])
    return columns


def _least(grid: Grid, star: bool) -> int:
    """How narrow it may become: labels wrap, numbers do not."""
    labels = max(map(len, _labels(grid)))
    return _width(grid, star, gap=0) - max(0, labels - NARROWEST_LABEL)


def _width(grid: Grid, star: bool, gap: int) -> int:
    """How wide the table is when nothing wraps: rich puts one place, beside the gap, between columns."""
    numbers = [len(texts[0]) for texts in _numbers(grid, star)]
    return max(map(len, _labels(grid))) + sum(numbers) + (gap + 1) * len(numbers)
