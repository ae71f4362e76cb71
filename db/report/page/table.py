"""Convert the lines of a table (`formats.layout`) to HTML cells with sort keys and links to their details."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import starmap, zip_longest

from dropbench.db.report.formats.layout import source_grid
from dropbench.db.report.formats.numbers import MINUS
from dropbench.db.report.view.view import View
from dropbench.harness.cli.text_table import Entry, TextTable

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


@dataclass
class TableRow:
    """A row with the label and texts of the lines below it, which move with it when the table is sorted."""

    label: str
    cells: list[TableCell]
    below: list[tuple[str, list[str]]] = field(default_factory=list)


@dataclass(frozen=True)
class Table:
    """A table as the template renders it."""

    grid: TextTable
    rows: list[TableRow]


def table_of(view: View, anchors: Anchors) -> Table:
    """Return the table in the layout of its source; a single column has its numbers in columns of their own."""
    table = Table(source_grid(view), [])
    for line in table.grid.lines:
        label, *entries = line.entries
        if line.kind == "below":
            table.rows[-1].below.append((label.text, [entry.text for entry in entries]))
        else:
            row = view.rows[len(table.rows)]
            details = [anchors.get((row, column)) for column in view.columns]
            table.rows.append(TableRow(label.text, list(starmap(_cell, zip_longest(entries, details)))))
    return table


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
