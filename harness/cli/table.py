"""Print rows of texts as a table: fitted to a terminal, or one line per row in a pipe or a file."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from itertools import zip_longest
from typing import Any
from unicodedata import combining, east_asian_width

import typer

SPACES = re.compile(r"(?<= )(?=[^ ])")
HYPHENS = re.compile(r"(?<= )(?=[^ ])|(?<=[/,:])(?=\w)|(?<=\w-)(?<!\de-)(?=\w)")
"""Places where a text may wrap, the latter also within names such as ``dropattention-e:window=2``, but not in 1e-05."""


def print_items(items: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print mappings as JSON, or as a table with their keys as columns."""
    if as_json:
        typer.echo(json.dumps(items, ensure_ascii=False, indent=1))
        return
    keys = sorted(dict.fromkeys(key for item in items for key in item), key="help".__eq__)  # the longest text last
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

    On a terminal the table fits the width; names wrap between words only. `right` are the indices of the columns that
    are aligned right, and `rule` draws a line below the header.
    """
    if not sys.stdout.isatty():
        typer.echo("\n".join([*above, *table_lines(header, rows, right, rule=rule), *below]))
        return
    width = shutil.get_terminal_size().columns
    styled = os.environ.get("TERM") != "dumb"
    above, below = (
        [typer.style(part, dim=styled) for line in lines for part in wrap(line, width)] for lines in (above, below)
    )
    typer.echo("\n".join([*above, *fitted_lines(header, rows, width, right, rule=rule, bold=styled), *below]))


def fitted_lines(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    right: Collection[int] = (),
    *,
    rule: bool = False,
    bold: bool = False,
) -> list[str]:
    """Return the lines of a table within `width`: cells wrap at spaces, or if that is not enough after hyphens.

    If the columns need more even so, return each row as ``column: text; column: text``. Other arguments as for
    `print_table`.
    """
    columns = [[name, *texts] for name, *texts in zip(header, *rows, strict=True)]
    for gap, breaks in ((3 if rule else 2, SPACES), (2, SPACES), (2, HYPHENS)):
        room = width - gap * (len(columns) - 1)
        if (widths := _fit(columns, room, right, breaks)) is not None:
            cells = [[wrap(text, widths[index], breaks) for index, text in enumerate(row)] for row in (header, *rows)]
            lines = [_joined(row, widths, right, " " * gap) for row in cells]
            head = [typer.style(line, bold=True) for line in lines[0]] if bold else lines[0]
            ruled = ["─" * (sum(widths) + gap * (len(widths) - 1))] if rule else []
            return [*head, *ruled, *(line for row in lines[1:] for line in row)]
    records = ("; ".join(f"{name}: {text}" for name, text in zip(header, row, strict=True) if text) for row in rows)
    return [("  " if number else "") + line for text in records for number, line in enumerate(_fill(text, width - 2))]


def print_facts(facts: Sequence[tuple[str, str]]) -> None:
    """Print labels and texts, indented; on a terminal the texts wrap."""
    indent = max(len(label) for label, _ in facts) + 4
    width = shutil.get_terminal_size().columns - indent
    for label, text in facts:
        for number, line in enumerate(wrap(text, width) if sys.stdout.isatty() else [text]):
            typer.echo(f"  {'' if number else label:<{indent - 2}}{line}")


def _fill(text: str, width: int) -> list[str]:
    """Return the lines of a text, broken within names only if a name is longer than a line."""
    lines = wrap(text, width)
    return lines if max(map(_width, lines)) <= width else wrap(text, width, HYPHENS)


def _fit(
    columns: Sequence[Sequence[str]], room: int, right: Collection[int], breaks: re.Pattern[str]
) -> list[int] | None:
    """Return widths of columns that sum up to `room` at most; None if words need more.

    The widest columns are narrowed first, and those of numbers last.
    """
    widths = [max(map(_width, texts)) for texts in columns]
    least = [max(_width(piece.rstrip()) for text in texts for piece in breaks.split(text)) for texts in columns]
    while sum(widths) > room:
        spare = [index for index, width in enumerate(widths) if width > least[index]]
        if not spare:
            return None
        widths[max(spare, key=lambda index: (index not in right, widths[index]))] -= 1
    return widths


def wrap(text: str, width: int, breaks: re.Pattern[str] = SPACES) -> list[str]:
    """Return a text as lines of at most `width` columns, broken at `breaks` only; longer pieces stay whole."""
    lines, line = [], ""
    for piece in breaks.split(text):
        if line and _width((line + piece).rstrip()) > width:
            lines.append(line.rstrip())
            line = ""
        line += piece
    return [*lines, line.rstrip()]


def _joined(cells: Sequence[Sequence[str]], widths: Sequence[int], right: Collection[int], gap: str) -> list[str]:
    """Return the lines of a row of wrapped cells."""
    lines = []
    for parts in zip_longest(*cells, fillvalue=""):
        texts = []
        for index, (text, width) in enumerate(zip(parts, widths, strict=True)):
            padding = " " * (width - _width(text))
            texts.append(padding + text if index in right else text + padding)
        lines.append(gap.join(texts).rstrip())
    return lines


def table_lines(
    header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = (), *, rule: bool = False
) -> list[str]:
    """Return the lines of a table as wide as its texts; arguments as for `print_table`."""
    columns = [*zip(header, *rows, strict=True)]
    gap = "   " if rule else "  "
    widths = [max(map(_width, texts)) for texts in columns]
    lines = [line for row in (header, *rows) for line in _joined([[text] for text in row], widths, right, gap)]
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
