"""Shell completion of filters: words, keys, and the values and trials in the database."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dropbench.db.cli.output import opened
from dropbench.harness.cli.completion import Item, completer
from dropbench.harness.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection

MAX_TRIALS = 200
"""Ids that are listed for one beginning."""


def _filters(word: str) -> Iterator[Item]:
    from dropbench.db.schema.connection import reading
    from dropbench.db.store.filters import COLUMNS, TRIAL_KEYS

    key, comparison, value = re.split("(!?=)", word, maxsplit=1) if "=" in word else (word, "", "")
    with opened(Settings.from_environment()) as store, reading(store.engine) as connection:
        keys = [name for name in (*TRIAL_KEYS, *COLUMNS) if name.startswith(key)]
        if comparison:
            done = value.rpartition(",")[0]
            start = f"{key}{comparison}" + (f"{done}," if done else "")
            yield from ((start + name, "") for name in (_values(connection, key) if key in keys else ()))
            return
        yield from _words(connection, word)
        yield from ((f"{name}=", "") for name in keys)
        if len(keys) == 1:  # with two candidates at least, bash adds no space after the equals sign
            yield from ((f"{keys[0]}={name}", "") for name in _values(connection, keys[0]))


def _words(connection: Connection, word: str) -> Iterator[Item]:
    """Yield states, suites and, from their first character on, trials."""
    from sqlalchemy import text

    from dropbench.harness.suites.suite import suite_names

    yield from ((name, "") for name in ("not", *_values(connection, "state"), *suite_names()))
    if re.fullmatch("[0-9a-f]+", word):
        columns = "trial_id, regularizer, data, model, seed, state"
        query = f"SELECT {columns} FROM v_trials WHERE trial_id LIKE :start ORDER BY trial_id LIMIT {MAX_TRIALS}"
        for id, regularizer, data, model, seed, state in connection.execute(text(query), {"start": f"{word}%"}):
            yield id, f"{regularizer}, {data}, {model}, seed {seed}: {state}"


def _values(connection: Connection, key: str) -> list[str]:
    """Return the values of a key in the database."""
    from sqlalchemy import select

    from dropbench.db.schema.tables import Configs, Requests, Trials
    from dropbench.db.store.filters import COLUMNS
    from dropbench.harness.trials.trial import TRIAL_STATES

    if key == "state":
        return list(TRIAL_STATES)
    columns = {"suite": Requests.c.suite, "seed": Trials.c.seed, **{name: Configs.c[name] for name in COLUMNS}}
    rows = connection.execute(select(columns[key]).distinct()) if key in columns else ()
    return sorted(str(value) for (value,) in rows if value is not None)


complete_filter = completer(_filters)
