"""A table on the terminal, or in a pipe as wide as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from db.report.layout import Grid, long_grid, wide_grid
from db.report.text import plain
from db.report.view import View

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_table(view: View, console: Console) -> None:
    """Print it with rows and columns as in the source where that fits, else with a line a cell; numbers never wrap."""
    from rich.text import Text

    grid = long_grid(view)
    if len(view.columns) > 1 and _width(wide_grid(view), 2) <= console.width:
        grid = wide_grid(view)
    console.print(Text(plain(grid.title), style="bold"), highlight=False)
    console.print(_table(grid, console))
    console.print()
    for position, note in enumerate(grid.notes, 1):
        console.print(Text(f"[{position}] {plain(note)}"))
    for line in grid.about:
        told = line if console.is_terminal else line.replace("bold: best", "*: best")
        console.print(Text(plain(told), style="dim"))


def _table(grid: Grid, console: Console) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    gap = 2 if _width(grid, 2) <= console.width else 0
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0), header_style="bold", show_edge=False)
    # Labels may wrap when the terminal is very narrow; numbers never.
    table.add_column(plain(grid.header[0]), overflow="fold", min_width=12)
    for text in grid.header[1:]:
        table.add_column(Text(plain(text)), justify="right", no_wrap=True)
    columns = _aligned(grid, star=not console.is_terminal)
    for position, line in enumerate(grid.lines):
        if line.kind == "section":
            if position:
                table.add_section()
            table.add_row(Text(plain(line.entries[0].text), style="bold italic"))
            continue
        indent = "  " if line.kind == "below" else ""
        style = "dim" if line.kind == "below" else ""
        texts = [Text(indent + plain(line.entries[0].text), style=style)]
        for place, entry in enumerate(line.entries[1:]):
            texts.append(Text(columns[place][position], style="bold" if entry.best else style))
        table.add_row(*texts)
    return table


def _aligned(grid: Grid, *, star: bool) -> list[list[str]]:
    """The texts of each column but the first, by line; a number without ± ends where those with one have their mean.

    With `star`, where there is no bold, the best has a star behind it.
    """
    columns = []
    for place in range(1, len(grid.header)):
        entries = [line.entries[place] if place < len(line.entries) else None for line in grid.lines]
        texts = [plain(entry.text) if entry else "" for entry in entries]
        best = [star and entry is not None and entry.best for entry in entries]
        tail = max((len(text) - text.index(" ± ") for text in texts if " ± " in text), default=0)
        texts = [
            text + " " * tail if tail and text and " " not in text and text[-1].isdigit() else text for text in texts
        ]
        if any(best):
            texts = [f"{text} *" if is_best else f"{text}  " for text, is_best in zip(texts, best, strict=True)]
        columns.append(texts)
    return columns


def _width(grid: Grid, gap: int) -> int:
    """How wide the table has to be for nothing to wrap: rich puts one place, beside the gap, between columns."""
    rows: list[Sequence[str]] = [grid.header, *([entry.text for entry in line.entries] for line in grid.lines)]
    wide = [max(len(row[place]) for row in rows if place < len(row)) for place in range(len(grid.header))]
    return sum(wide) + (gap + 1) * (len(wide) - 1) + 2 * (len(wide) - 1)
