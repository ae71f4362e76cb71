"""Look up the cells of a table in the requests of a suite: of each cell, the newest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import ColumnElement

from dropbench.db.report.view.cells import CellTrials
from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import ORIGINS, Origin
from dropbench.db.schema.tables import Requests
from dropbench.db.store.requests import load_requests
from dropbench.db.store.store import Store
from dropbench.db.tuning.select import select
from dropbench.harness.errors import InputError, count_of, unknown_name
from dropbench.harness.suites.request import Request, RequestedCell
from dropbench.harness.trials.trial import SYNTHETIC

MAX_NOTES = 5
"""Requests that notes name; the others are counted."""
CHOSEN = ("option",)
"""The conditions that a user chooses, in which own trials and those of a reference have to agree in one table."""


@dataclass(frozen=True)
class RequestTable:
    """Requests of a suite and a preset that train alike, the newest first: they make one table."""

    requests: tuple[Request, ...]
    origin: Origin = "own"

    @property
    def newest(self) -> Request:
        """The newest request."""
        return self.requests[0]

    @property
    def label(self) -> str:
        """The preset and the options that change how it trains."""
        options = self.newest.conditions.get("option", {})
        texts = [text if name == "set" else f"{name} {text}" for name, text in options.items() if text]
        return ", ".join([f"preset {self.newest.preset}", *texts])

    def cells(self) -> Iterator[tuple[RequestedCell, Request]]:
        """Yield each cell with the newest request that has it, in the order of rows and columns."""
        newest = {cell.position: (cell, request) for request in reversed(self.requests) for cell in request.cells}
        rows = {label: None for request in self.requests for label in request.rows}
        columns = {label: None for request in self.requests for label in request.columns}
        positions = ((row, column) for row in rows for column in columns)
        yield from (newest[position] for position in positions if position in newest)

    def trials(self) -> set[str]:
        """Return the ids of all trials in the database, of all candidates."""
        cells = (cell for cell, _ in self.cells())
        return {id for cell in cells for candidate in cell.requested for id in candidate.trials}


@dataclass(frozen=True)
class SuiteTable:
    """The cells of a table with their trials.

    Attributes:
        requests: the requests of the user, or else of the reference, the newest first.
        cells: the cells, row by row, those of a reference before the user's.
        notes: lines on other requests of the suite.
    """

    requests: tuple[Request, ...]
    cells: list[CellTrials]
    notes: list[str] = field(default_factory=list)

    @property
    def request(self) -> Request:
        """The newest request."""
        return self.requests[0]

    def only(self, data: Sequence[str] = (), models: Sequence[str] = ()) -> SuiteTable:
        """Return the table with only these data sets and models; raise InputError if it has no such one."""
        cells = self.cells
        for kind, names in (("data", data), ("model", models)):
            known = {getattr(cell.cell.request, kind).removesuffix(SYNTHETIC) for cell in cells}
            bases = {name.removesuffix(SYNTHETIC): name for name in names}
            for base, name in bases.items():
                if base not in known:
                    raise unknown_name(f"{kind} of this table", name, known)
            if bases:
                cells = [cell for cell in cells if getattr(cell.cell.request, kind).removesuffix(SYNTHETIC) in bases]
        return replace(self, cells=cells)


def tables_of(store: Store, suite: str, preset: str | None = None) -> list[RequestTable]:
    """Return the tables of a suite, those of a preset or of all, the one with the newest request first."""
    clauses = [Requests.c.suite == suite, *([Requests.c.preset == preset] if preset is not None else [])]
    by_origin = _load(store, *clauses)
    return [table for origin in ORIGINS for table in grouped(by_origin[origin], origin)]


def grouped(requests: Sequence[Request], origin: Origin = "own") -> list[RequestTable]:
    """Return the tables of a suite's requests, which are sorted from the newest; each with all that train like it."""
    tables: list[RequestTable] = []
    rest = list(requests)
    while rest:
        alike: list[Request] = []
        others: list[Request] = []
        for request in rest:
            same = request.preset == rest[0].preset and not any(map(request.differences, alike))
            (alike if same else others).append(request)
        tables.append(RequestTable(tuple(alike), origin))
        rest = others
    return tables


def table_of_request(store: Store, id: str) -> RequestTable:
    """Return the table of one request by its id or its beginning, with the requests that extend it.

    Raises:
        InputError: no request or several have this id.
    """
    clause = Requests.c.id.startswith(id, autoescape=True)
    found = [(origin, request) for origin, requests in _load(store, clause).items() for request in requests]
    if len(found) != 1 or not id:
        matches = f"matches {count_of(len(found), 'request')}" if found else "no such request in the database"
        ids = ", ".join(request.id for _, request in found[:4])
        raise InputError(f"--request {id}: {matches}{f': {ids}' if ids else ''}")
    ((origin, request),) = found
    family = _load(store, Requests.c.suite == request.suite.name)[origin] if request.suite.name else []
    return RequestTable((*(other for other in family if other.extends == request.id), request), origin)


def look_up(store: Store, suite: str = "", preset: str | None = None, request: str | None = None) -> SuiteTable | None:
    """Return the table of a suite from its newest request, and of all that train like it; None without a request.

    In a database with reference trials, its requests are shown beside the user's if both were made with equal options.

    Args:
        store: the database.
        suite: the suite's name.
        preset: the preset; None: that of the newest request.
        request: the id, or its beginning, of the only request to show.

    Raises:
        InputError: no request or several have this id.
    """
    only = table_of_request(store, request) if request is not None else None
    if only is not None:
        suite, preset = only.newest.suite.name, only.newest.preset
    tables = tables_of(store, suite, preset) if suite else []
    own = [table for table in tables if table.origin == "own"]
    shown = only or next(iter(own or tables), None)
    if shown is None:
        return None
    newest = shown.newest
    beside = [table for table in tables if table.origin == "reference"] if shown.origin == "own" else []
    beside = [table for table in beside if table.newest.preset == newest.preset]
    alike = [table for table in beside if not newest.differences(table.newest, CHOSEN)][:1]
    notes = _other_notes(shown, own[1:]) if only is None else []
    if beside and not alike:
        options = "; ".join(table.label for table in beside)
        notes.append(f"the reference has trials of this suite with other options only: {options}")
    return SuiteTable(shown.requests, _joined(store, [*alike, shown]), notes)


def resolve(table: RequestTable, store: Store) -> list[CellTrials]:
    """Return the cells of a table with their trials, of a sweep the chosen ones."""
    return [_resolved(cell, request, table.origin, store) for cell, request in table.cells()]


def _resolved(cell: RequestedCell, request: Request, origin: Origin, store: Store) -> CellTrials:
    if cell.sweep is None:
        first = next(iter(cell.candidates), None)
        return CellTrials(cell, first.trials if first else (), first.skipped if first else None, origin=origin)
    selection = select(cell, request.metrics[cell.request.task], store)
    if selection.skipped:
        first_candidate = selection.candidates[0]  # the table shows its reason
        return CellTrials(first_candidate.cell, first_candidate.ids, first_candidate.reason, origin=origin)
    if selection.chosen is None:
        return CellTrials(cell, (), selection=selection, origin=origin)
    ids = selection.chosen.ids
    if selection.sweep.seeds:  # those of the candidates are no seeds of the table
        again = cell.chosen
        ids = again.trials if again is not None and again.config == selection.chosen.config else ()
    return CellTrials(selection.chosen.cell, ids, selection=selection, origin=origin)


def _load(store: Store, *clauses: ColumnElement[bool]) -> dict[Origin, list[Request]]:
    requests: dict[Origin, list[Request]] = {origin: [] for origin in ORIGINS}
    with reading(store.engine) as connection:
        for origin, request in load_requests(connection, *clauses):
            requests[origin].append(request)
    return requests


def _joined(store: Store, tables: Sequence[RequestTable]) -> list[CellTrials]:
    """Return the cells of tables, those of a row next to each other.

    A cell of the user's without any trial in the database is left out if the reference has the cell.
    """
    cells = [cell for table in tables for cell in resolve(table, store)]
    if len(tables) > 1:
        theirs = {cell.cell.position for cell in cells if cell.origin == "reference"}
        known = store.states(list(tables[-1].trials())).keys()
        cells = [
            cell
            for cell in cells
            if cell.origin == "reference" or cell.cell.position not in theirs or not known.isdisjoint(_all_ids(cell))
        ]
    rows = {row: number for number, row in enumerate(dict.fromkeys(cell.cell.row for cell in cells))}
    return sorted(cells, key=lambda cell: rows[cell.cell.row])


def _all_ids(cell: CellTrials) -> set[str]:
    candidates = cell.selection.candidates if cell.selection is not None else ()
    return {*cell.ids, *(id for candidate in candidates for id in candidate.ids)}


def _other_notes(shown: RequestTable, others: Sequence[RequestTable]) -> list[str]:
    """Return a line per table of requests that train otherwise, and one on other presets."""
    lines = []
    for table in others:
        if table.newest.preset != shown.newest.preset:
            lines.append(f"other trials of this suite: `--preset {table.newest.preset}`")
        else:
            differing = table.label if table.label != shown.label else ", ".join(_causes(shown, table))
            lines.append(f"other trials of this suite ({differing}): `--request {table.newest.id}`")
    lines = list(dict.fromkeys(lines))
    more = f"and {len(lines) - MAX_NOTES} more"
    return [*lines[:MAX_NOTES], more] if len(lines) > MAX_NOTES else lines


def _causes(shown: RequestTable, other: RequestTable) -> list[str]:
    """Return what differs between requests with equal options, such as ``recipe text-classification``."""
    causes = (cause for request in shown.requests for cause in request.differences(other.newest))
    return [f"another {cause}" for cause in dict.fromkeys(causes)][:2]
