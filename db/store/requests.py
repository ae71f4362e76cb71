"""Store requests, and look them up: the newest first."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, select, update

from dropbench.db.schema.connection import damaged
from dropbench.db.schema.reference import Origin, origin_of, stored_id
from dropbench.db.schema.tables import Memberships, Requests
from dropbench.db.store.rows import in_list, insert_rows
from dropbench.harness.suites.request import Request

MEMBERS = (
    select(Requests.c.suite, Memberships.c.trial)
    .join(Memberships, Memberships.c.request == Requests.c.id)
    .where(Requests.c.suite.is_not(None))
    .distinct()
    .subquery("members")
)
"""The suites of each trial; several requests of a suite may name it."""

PublishedValues = dict[tuple[str | None, str | None], dict[str, float | None]]
"""Suite and configuration → metric → published value."""


def add_requests(connection: Connection, requests: Iterable[Request]) -> int:
    """Insert requests with their memberships, of one that exists the later time; return the number of new ones."""
    by_id = {request.id: request for request in requests}
    query = select(Requests.c.id, Requests.c.created_at).where(in_list(connection, Requests.c.id, by_id))
    existing = dict(connection.execute(query).all())
    for id, created_at in existing.items():
        if by_id[id].created_at > created_at:
            times = update(Requests).where(Requests.c.id == id)
            connection.execute(times.values(created_at=by_id[id].created_at, content=_content(by_id[id])))
    new = [request for id, request in by_id.items() if id not in existing]
    insert_rows(connection, Requests, [request_row(request) for request in new])
    insert_rows(connection, Memberships, [row for request in new for row in membership_rows(request)])
    return len(new)


def load_requests(connection: Connection, *clauses: ColumnElement[bool]) -> list[tuple[Origin, Request]]:
    """Return the requests that match, the newest first, each with the origin of its trials.

    The requests of a reference name its trials by the ids that they have in this database
    (`dropbench.db.schema.reference`).

    Raises:
        InputError: the content of a request is damaged.
    """
    query = select(Requests.c.id, Requests.c.content).where(*clauses)
    rows = connection.execute(query.order_by(Requests.c.created_at.desc(), Requests.c.id))
    with _damage(connection):
        return [(origin_of(id), _stored(Request.model_validate(content), origin_of(id))) for id, content in rows]


def published_values(connection: Connection, suites: Collection[str]) -> PublishedValues:
    """Return the published values in the cells of suites.

    A metric of a cell without one has None. Of several requests, the newest counts. Raises InputError if the content of
    a request is damaged.
    """
    values: PublishedValues = {}
    query = select(*Requests.c["id", "suite", "content"]).where(Requests.c.suite.in_(suites))
    # Plain values: a database may have hundreds of requests, and validation would take most of the time.
    with _damage(connection):
        for id, suite, content in connection.execute(query.order_by(Requests.c.created_at.desc(), Requests.c.id)):
            for cell in content["cells"]:
                published = cell["published"][0] if isinstance(cell["published"], list) else cell["published"]
                for candidate in cell["candidates"]:
                    by_metric = values.setdefault((suite, stored_id(candidate["config"], origin_of(id))), {})
                    if by_metric.get(cell["metric"]) is None:
                        by_metric[cell["metric"]] = published
    return values


@contextlib.contextmanager
def _damage(connection: Connection) -> Iterator[None]:
    """Report content of a request that is not as it was written."""
    try:
        yield
    except (ValueError, TypeError, LookupError, AttributeError):  # of JSON, pydantic, and plain values
        raise damaged(connection.engine, "damaged value of requests.content") from None


def suites_of(connection: Connection) -> list[str]:
    """Return the names of the suites that have a request, sorted."""
    query = select(Requests.c.suite).where(Requests.c.suite.is_not(None)).distinct()
    return list(connection.scalars(query.order_by(Requests.c.suite)))


def in_suites(names: Sequence[str]) -> Any:
    """Return a query for the ids of the trials of suites."""
    requests = select(Requests.c.id).where(Requests.c.suite.in_(names))
    return select(Memberships.c.trial).where(Memberships.c.request.in_(requests))


def request_row(request: Request) -> dict[str, Any]:
    """Return a row of `Requests`."""
    return {
        "id": request.id,
        "suite": request.suite.name or None,
        "preset": request.preset,
        "created_at": request.created_at,
        "content": _content(request),
    }


def _content(request: Request) -> dict[str, Any]:
    return request.model_dump(mode="json")


def membership_rows(request: Request) -> Iterator[dict[str, Any]]:
    """Yield the rows of `Memberships` of a request."""
    for cell in request.cells:
        for number, candidate in enumerate(cell.requested):
            for trial in dict.fromkeys(candidate.trials):
                place = {"request": request.id, "row": cell.row, "column": cell.column, "candidate": number}
                yield {**place, "trial": trial}


def _stored(request: Request, origin: Origin) -> Request:
    """Return a request with the ids that its trials and configurations have in this database."""
    if origin == "own":
        return request
    cells = []
    for cell in request.cells:
        candidates = [
            candidate.model_copy(
                update={
                    "config": stored_id(candidate.config, origin),
                    "trials": tuple(stored_id(id, origin) for id in candidate.trials),
                }
            )
            for candidate in cell.requested
        ]
        chosen = candidates.pop() if cell.chosen is not None else None
        cells.append(cell.model_copy(update={"candidates": tuple(candidates), "chosen": chosen}))
    return request.model_copy(update={"cells": tuple(cells)})
