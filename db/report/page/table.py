"""The text of a table (`db.report.layout`) as cells of HTML, with what they are sorted by and what lies behind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from db.report.layout import MINUS, Entry, Grid, Line, long_grid, wide_grid
from db.report.view import View

Names = Mapping[tuple[str, str], str]
"""Row and column → what its details are called on the page."""

_NUMBER = re.compile(r"[-+−]?\d[\d,]*(?:\.\d+)?")
_MARK = re.compile(r" ?\[(\d+)\]\)?$")
_STATES = frozenset(("queued", "submitted", "running", "failed", "cancelled", "skipped"))


@dataclass(frozen=True)
class Place:
    """A place of the table.

    Attributes:
        main: its number, or its whole text.
        rest: what stands behind the number: deviation, seeds.
        note: number of the note that it refers to.
        sort: the number to sort by; "" sorts last.
        behind: the details that it opens.
        state: where it is a state instead of a number.
    """

    main: str
    rest: str = ""
    note: int | None = None
    sort: str = ""
    best: bool = False
    behind: str | None = None
    state: str | None = None


@dataclass(frozen=True)
class Body:
    """A row with what stands below it; moved as one when the table is sorted."""

    label: str
    places: tuple[Place, ...]
    below: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Table:
    """A table as the template sets it."""

    title: str
    header: tuple[str, ...]
    bodies: tuple[Body, ...]
    notes: tuple[str, ...]
    about: tuple[str, ...]


def table_of(view: View, names: Names) -> Table:
    """The table in the layout of its source; with one column, its numbers have columns of their own."""
    wide = len(view.columns) > 1
    grid = wide_grid(view) if wide else long_grid(view)
    bodies: list[Body] = []
    for line in grid.lines:
        if line.kind == "row":
            bodies.append(_body(line, names, view.rows[len(bodies)], view.columns, wide))
        elif line.kind == "below":
            label, *texts = (entry.text for entry in line.entries)
            bodies[-1] = Body(bodies[-1].label, bodies[-1].places, (*bodies[-1].below, (label, tuple(texts))))
    return Table(grid.title, _header(grid), tuple(bodies), tuple(grid.notes), tuple(grid.about))


def _header(grid: Grid) -> tuple[str, ...]:
    return (grid.header[0] or "row", *grid.header[1:])


def _body(line: Line, names: Names, row: str, columns: tuple[str, ...], wide: bool) -> Body:
    label, *entries = line.entries
    places = []
    for position, entry in enumerate(entries):
        column = columns[position] if wide else columns[0]
        places.append(_place(entry, names.get((row, column)) if wide or not position else None))
    return Body(label.text, tuple(places), ())


def _place(entry: Entry, behind: str | None) -> Place:
    text, note = entry.text, None
    if found := _MARK.search(text):
        note = int(found[1])
        text = text[: found.start()] + (")" if found[0].endswith(")") else "")
    number = _NUMBER.match(text)
    if number is None:
        return Place(text, note=note, behind=behind if text else None, state=text if text in _STATES else None)
    sort = number[0].replace(",", "").replace(MINUS, "-")
    return Place(number[0], text[number.end() :], note, sort, entry.best, behind)
