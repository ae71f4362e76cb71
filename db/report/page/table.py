"""Convert the lines of a table (`formats.layout`) to HTML cells with sort keys and links to their details."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from db.report.formats.layout import MINUS, Entry, Line, long_grid, wide_grid
from db.report.view.view import View

Anchors = Mapping[tuple[str, str], str]
"""Anchor of the details of each cell, by row and column."""

_NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?")
_MARK = re.compile(r" ?\[(\d+)\]\)?$")
_STATES = frozenset(("queued", "submitted", "running", "failed", "cancelled", "skipped"))


@dataclass(frozen=True)
class TableCell:
    """A cell of the table.

    Attributes:
        main: its number, or its full text.
        rest: the text after the number: std, seeds.
        note: number of the note that it cites.
        sort: the number to sort by; "" sorts last.
        details: anchor of its details.
        state: its state, if it shows one instead of a number.
    """

    main: str
    rest: str = ""
    note: int | None = None
    sort: str = ""
    best: bool = False
    details: str | None = None
    state: str | None = None


@dataclass(frozen=True)
class TableRow:
    """A row with the lines below it, which move with it when the table is sorted."""

    label: str
    cells: tuple[TableCell, ...]
    below: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Table:
    """A table as the template renders it."""

    title: str
    header: tuple[str, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...]
    about: tuple[str, ...]


def table_of(view: View, anchors: Anchors) -> Table:
    """Return the table in the layout of its source; a single column has its numbers in columns of their own."""
    wide = len(view.columns) > 1
    grid = wide_grid(view) if wide else long_grid(view)
    rows: list[TableRow] = []
    for line in grid.lines:
        if line.kind == "row":
            rows.append(_row(line, anchors, view.rows[len(rows)], view.columns, wide))
        elif line.kind == "below":
            label, *texts = (entry.text for entry in line.entries)
            rows[-1] = replace(rows[-1], below=(*rows[-1].below, (label, tuple(texts))))
    header = (grid.header[0] or "row", *grid.header[1:])
    return Table(grid.title, header, tuple(rows), tuple(grid.notes), tuple(grid.about))


def _row(line: Line, anchors: Anchors, row: str, columns: tuple[str, ...], wide: bool) -> TableRow:
    label, *entries = line.entries
    cells = []
    for index, entry in enumerate(entries):
        column = columns[index] if wide else columns[0]
        cells.append(_cell(entry, anchors.get((row, column)) if wide or not index else None))
    return TableRow(label.text, tuple(cells))


def _cell(entry: Entry, details: str | None) -> TableCell:
    text, note = entry.text, None
    if mark := _MARK.search(text):
        note = int(mark[1])
        text = text[: mark.start()] + (")" if mark[0].endswith(")") else "")
    number = _NUMBER.match(text)
    if number is None:
        return TableCell(text, note=note, details=details if text else None, state=text if text in _STATES else None)
    sort = number[0].replace(",", "").replace(MINUS, "-")
    return TableCell(number[0], text[number.end() :], note, sort, entry.best, details)
