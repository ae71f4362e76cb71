"""Print tables: by rich on a terminal, fitted to its width, and as aligned lines in a pipe."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, Literal

import typer

from dropbench.harness.cli.plain_text import plain
from dropbench.harness.cli.text_table import TextTable, fit, to_text, wrap

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES = {"section": "bold italic", "row": "", "below": "dim"}


def print_table(table: TextTable, width: int | None = None) -> None:
    """Print a table, fitted to the terminal if standard output is one; other arguments as for `to_text`."""
    if sys.stdout.isatty():
        from rich.console import Console

        draw_table(table, Console(highlight=False))
    else:
        typer.echo(to_text(table, width))


def draw_table(table: TextTable, console: Console) -> None:
    """Print a table: texts wrap between words, and numbers do not.

    If the columns need more than the width of the console, print each row as ``column: text; column: text``.
    """
    from rich.text import Text

    if table.title:
        console.print(Text(plain(table.title), style="bold"))
    for line in table.above:
        console.print(Text(plain(line), style="dim"))
    columns = table.columns(star=False)
    if fitted := fit(columns, table.right, console.width):
        console.print(_grid(table, columns, *fitted))
    else:
        for row in list(zip(*columns, strict=True))[1:]:
            console.print(Text(_record(table, row, console.width)), soft_wrap=True)
    if table.notes or table.below:
        console.print()
    for line in table.numbered_notes():
        console.print(Text(line))
    for line in table.below:
        console.print(Text(plain(line), style="dim"))


def _grid(table: TextTable, columns: Sequence[Sequence[str]], gap: int, widths: Sequence[int]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # The box adds one space to the padding.
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0))
    for index, (texts, width) in enumerate(zip(columns, widths, strict=True)):
        justify: Literal["right", "left"] = "right" if index in table.right else "left"
        grid.add_column(Text(texts[0], style="bold"), justify=justify, width=width, overflow="fold")
    for number, line in enumerate(table.lines, 1):
        if number > 1 and line.kind == "section":
            grid.add_section()
        bold = [index for index, entry in enumerate(line.entries) if entry.best]
        # rich would break long words anywhere; textwrap prefers hyphens.
        cells = (
            texts[number] if index in table.right else fill(texts[number], widths[index])
            for index, texts in enumerate(columns)
        )
        styled = (Text(cell, "bold" if index in bold else "") for index, cell in enumerate(cells))
        grid.add_row(*styled, style=STYLES[line.kind])
    return grid


def _record(table: TextTable, row: Sequence[str], width: int) -> str:
    """Return a row as a paragraph; numbers do not wrap."""
    texts = (text.replace(" ", "\xa0") if index in table.right else text for index, text in enumerate(row))
    parts = (f"{plain(name)}: {text}" for name, text in zip(table.header, texts, strict=True) if text.strip())
    return wrap("; ".join(parts), width, "  ").replace("\xa0", " ")


def print_items(items: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print mappings as JSON, or as a table with their keys as columns."""
    if as_json:
        typer.echo(json.dumps(items, ensure_ascii=False, indent=1))
        return
    keys = sorted(dict.fromkeys(key for item in items for key in item), key="help".__eq__)  # the longest text last
    print_table(TextTable.of_rows(keys, [[_text(item.get(key)) for key in keys] for item in items]))


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print labels and texts, indented; on a terminal the texts wrap."""
    indent = max(len(label) for label, _ in facts) + 4
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    for label, text in facts:
        typer.echo(wrap(f"  {label:<{indent - 2}}{text}", width, " " * indent))


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
