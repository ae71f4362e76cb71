"""Print rows of texts as a table: fitted to a terminal, or one line per row in a pipe or a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from unicodedata import combining, east_asian_width

import typer


def print_items(items: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print mappings as JSON, or as a table with their keys as columns."""
    if as_json:
        typer.echo(json.dumps(items, ensure_ascii=False, indent=1))
        return
    keys = list(dict.fromkeys(key for item in items for key in item))
    numbers = [index for index, key in enumerate(keys) if all(isinstance(item.get(key), int | float) for item in items)]
    print_table(keys, [[_text(item.get(key)) for key in keys] for item in items], numbers)


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[int] = (),
    *,
    rule: bool = False,
    above: Sequence[str] = (),
    below: Sequence[str] = (),
) -> None:
    """Print a table of texts without control characters, between the lines `above` and `below`.

    Long texts wrap on a terminal only. `right` are the indices of the columns that are aligned right, and `rule` draws
    a line below the header.
    """
    if not sys.stdout.isatty():  # without rich, which takes a quarter of the start-up time
        typer.echo("\n".join([*above, *table_lines(header, rows, right, rule=rule), *below]))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    table = Table(box=box.SIMPLE_HEAD if rule else None, pad_edge=False, show_edge=False, header_style="bold")
    # Texts wrap between words only. On a terminal that is too narrow for that, the table overflows.
    columns = [*zip(header, *rows, strict=True)]
    least = [max(_width(word) for text in column for word in text.split() or [""]) for column in columns]
    missing = [max(map(_width, column)) - low for column, low in zip(columns, least, strict=True)]
    spare = console.width - sum(least) - 3 * len(least)
    console.width = max(console.width, console.width - spare)
    for index, name in enumerate(header):
        width = least[index] + missing[index] * min(max(spare, 0), sum(missing)) // max(1, sum(missing))
        table.add_column(Text(name), justify="right" if index in right else "left", overflow="fold", width=width)
    for row in rows:
        table.add_row(*map(Text, row))
    for line in above:
        console.print(Text(line, style="dim"))
    console.print(table)
    for line in below:
        console.print(Text(line, style="dim"), soft_wrap=True)


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = (), *, rule: bool = False
) -> list[str]:
    """Return the lines of a table as wide as its texts; arguments as for `print_table`."""
    widths = [max(map(_width, column)) for column in zip(header, *rows, strict=True)]
    gap = "   " if rule else "  "

    def line(row: Sequence[str]) -> str:
        cells = []
        for index, (text, width) in enumerate(zip(row, widths, strict=True)):
            padding = " " * (width - _width(text))
            cells.append(padding + text if index in right else text + padding)
        return gap.join(cells).rstrip()

    lines = [line(header), *map(line, rows)]
    if rule:
        lines.insert(1, "─" * (sum(widths) + len(gap) * (len(widths) - 1)))
    return lines


def _width(text: str) -> int:
    """Return the number of terminal columns of a text."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(character) else 2 if east_asian_width(character) in "WF" else 1 for character in text)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(part)}" for key, part in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
