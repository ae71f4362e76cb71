"""One line on the machines of a reference, and how they differ from the user's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import Details, has_reference
from dropbench.db.schema.tables import Trials
from dropbench.db.store.rows import in_list
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.runs.run_directory import Runs

MAX_OWN = 20
"""Run directories of the user's that are tried: those of an imported database are elsewhere."""
MAX_NAMED = 3
"""Values of a key that the line names."""


def describe(store: Store, runs: Path, ids: Iterable[str] | None = None) -> tuple[str, ...]:
    """Return the line for trials of a database of `db.reference.merge.opened_with`; () without reference trials.

    Args:
        store: the database.
        runs: folder of the user's run directories.
        ids: ids of the trials in the database; None: all.
    """
    with reading(store.engine) as connection:
        if not has_reference(connection):
            return ()
        query = select(Trials.c.id).where(Trials.c.state == "succeeded", Trials.c.id < "g")
        own = list(connection.scalars(query.order_by(Trials.c.updated_at.desc()).limit(MAX_OWN)))
    theirs = machines(store, ids)
    if not theirs:
        return ()
    ours = facts(_environments(runs, own))
    differing = ", ".join(text for key, text in ours.items() if theirs.get(key) != text)
    yours = f"; yours on {differing}" if differing else "; yours on the same" if ours else ""
    return (
        f"reference: trained on {', '.join(theirs.values())}{yours}. Another processor, number of threads or version "
        "changes the last digits and, through training, single results; reference and own trials are never averaged.",
    )


def machines(store: Store, ids: Iterable[str] | None = None) -> dict[str, str]:
    """Return `facts` of the environments of those of the trials that are a reference's; None: all of its trials."""
    query = select(Details.c.environment).distinct()
    with reading(store.engine) as connection:
        if ids is not None:
            query = query.where(in_list(connection, Details.c.trial_id, ids))
        return facts(json.loads(text) for text in connection.scalars(query))


def _environments(runs: Path, ids: Iterable[str]) -> Iterable[dict[str, Any]]:
    for id in ids:
        with suppress(OSError, InputError):
            yield Runs(runs)[id].read("environment.json")


def facts(environments: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the values that matter for equal results, by key; several values of a key are listed."""
    values: dict[str, dict[str, None]] = {}
    for environment in environments:
        libraries = environment.get("libraries")
        torch = libraries.get("torch") if isinstance(libraries, dict) else None
        threads = environment.get("threads")
        texts = {
            "device": environment.get("device"),
            "threads": count_of(threads, "thread") if isinstance(threads, int) else None,
            "python": f"Python {environment['python']}" if environment.get("python") else None,
            "torch": f"torch {torch}" if torch else None,
        }
        for key, text in texts.items():
            if text:
                values.setdefault(key, {})[str(text)[:60]] = None
    return {
        key: " or ".join([*islice(sorted(texts), MAX_NAMED), *(["…"] if len(texts) > MAX_NAMED else [])])
        for key, texts in values.items()
    }
