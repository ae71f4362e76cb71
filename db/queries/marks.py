"""Differences between trials that results must not hide: generated data, subsets, versions of libraries and items."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, null, select, tuple_

from dropbench.db.schema.reference import Details, has_reference
from dropbench.db.schema.tables import Attempts, Configs, Trials
from dropbench.db.store.filters import Filter, distinct_values
from dropbench.db.store.rows import Row, in_list
from dropbench.harness.errors import InputError, count_of
from dropbench.harness.regularizers.spec import part_names
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.settings import MAX_SEEDS, Settings
from dropbench.harness.trials.result_versions import item_version, version_notes
from dropbench.harness.trials.task import SUBSET
from dropbench.harness.trials.trial import SYNTHETIC, Trial

VERSIONED = ("task", "model", "regularizer", "result_versions")
"""The columns of a configuration that `all_versions` takes."""
OLDER, OLDER_SIGN = "older rule", "‡"
"""The mark of configurations that an earlier result version of their task, model or regularizer has trained, and the
sign of it beside a number."""
SHIPPED_ENGINE = "0"
"""The result version of the engine that all reference trials, and only they, have."""
UNCHANGED = frozenset(f"regularizer {name}" for name in (
    "ad-drop", "attention-entropy", "disagreement", "diverse-attention", "dropdim", "hiddencut", "masksub",
    "patchdropout",
))  # fmt: skip
"""Items whose result version was raised for values or tasks that no reference trial has."""
TUNING = Trials.c.seed >= MAX_SEEDS
"""Trials that only compare the candidates of a tuned preset: no table has their seeds."""
Machine = tuple[str, int | None]
"""A GPU, or a processor with a number of threads."""
DIGEST_LENGTH = 8
"""Characters of a digest, or another field of a configuration, in a mark."""
LIMIT = 100
"""Runs of a data set that are tried: those of an imported database are elsewhere."""


def subset_notes(runs: Path, ids: Iterable[str]) -> tuple[str, ...]:
    """Return the notes on subsets of the first run that has a result file, among the first `LIMIT`."""
    directories = Runs(runs)
    for id in filter(directories.__contains__, islice(ids, LIMIT)):
        with suppress(InputError, TypeError):  # notes that are no list
            if (content := directories[id].result()) is not None:
                return _subsets(content.get("notes", ()))
    return ()


def reference_notes(connection: Connection) -> dict[tuple[str, str | None], tuple[str, ...]]:
    """Return the notes on subsets of reference trials by data set and fingerprint."""
    if not has_reference(connection):
        return {}
    query = select(Configs.c.data, Configs.c.fingerprint, func.min(Details.c.notes)).select_from(Details)
    query = query.join(Trials, Trials.c.id == Details.c.trial_id).join(Configs, Configs.c.id == Trials.c.config_id)
    rows = connection.execute(query.group_by(Configs.c.data, Configs.c.fingerprint))
    return {(data, fingerprint): _subsets(json.loads(text)) for data, fingerprint, text in rows}


def _subsets(notes: Iterable[object]) -> tuple[str, ...]:
    texts = [note for note in notes if isinstance(note, str)]
    return tuple(note.removeprefix(SUBSET) for note in texts if note.startswith(SUBSET))


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Return a configuration as texts by dotted key, without the folder of its data."""
    texts: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            texts |= flatten(value, f"{prefix}{key}.")
        elif value not in (None, {}) and (prefix, key) != ("data.", "path"):
            texts[f"{prefix}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return texts


def mark_alike(labels: Sequence[Row], config_json: Sequence[str]) -> None:
    """Mark labels that are equal by the fields in which their configurations differ, such as a recipe's."""
    alike: dict[str, list[int]] = {}
    for position, label in enumerate(labels):
        alike.setdefault(repr(label), []).append(position)
    for positions in (positions for positions in alike.values() if len(positions) > 1):
        fields = differing_fields([json.loads(config_json[position]) for position in positions])
        for position, texts in zip(positions, fields, strict=True):
            labels[position]["mark"] = mark_text([labels[position]["mark"], *texts])


def differing_fields(configs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the fields of each configuration that not all of them have, such as ``recipe.lr 0.001``."""
    fields = [set(flatten(config).items()) for config in configs]
    common = set.intersection(*fields)
    return [[f"{name} {text[:DIGEST_LENGTH]}" for name, text in own - common] for own in fields]


def data_sets(connection: Connection, *clauses: ColumnElement[bool]) -> list[tuple[str, str]]:
    """Return the data sets of the configurations that match, each with its fingerprint."""
    query = select(Configs.c.data, Configs.c.fingerprint).where(*clauses).distinct()
    return [(data, fingerprint) for data, fingerprint in connection.execute(query)]


def marks_of(connection: Connection) -> dict[tuple[Any, ...], str | None]:
    """Return ``subset`` or ``synthetic``, None if it is the published one, by data set and fingerprint.

    Subsets are known from the run directories (`DROPBENCH_RUNS`) and from reference trials.
    """
    # One trial for each configuration: SQLite stops after `LIMIT` of them, instead of reading all trials.
    done = select(func.min(Trials.c.id)).where(Trials.c.config_id == Configs.c.id, Trials.c.state == "succeeded")
    trial = done.scalar_subquery()
    runs = Settings.from_environment().runs
    theirs = reference_notes(connection)
    marks: dict[tuple[Any, ...], str | None] = {}
    for data, fingerprint in data_sets(connection):
        clauses = Configs.c.data == data, Configs.c.fingerprint == fingerprint, trial.is_not(None)
        if data.endswith(SYNTHETIC):
            marks[data, fingerprint] = "synthetic"
        else:
            ids = connection.scalars(select(trial).where(*clauses).limit(LIMIT))
            subset = theirs.get((data, fingerprint)) or subset_notes(runs, ids)
            marks[data, fingerprint] = "subset" if subset else None
    return marks


def mark_columns(connection: Connection, marks: Mapping[tuple[Any, ...], str | None]) -> list[ColumnElement[Any]]:
    """Return the marks of a configuration as columns of a query: of its data, and `OLDER`."""
    cases = [
        ((Configs.c.data == data) & (Configs.c.fingerprint == fingerprint), mark)
        for (data, fingerprint), mark in marks.items()
        if mark
    ]
    columns = [*(Configs.c[name] for name in VERSIONED[:-1]), func.coalesce(Configs.c.result_versions, "")]
    older = [row for row in connection.execute(select(*columns).distinct()).all() if is_older(*row)]
    rules = [(tuple_(*columns).in_(older), OLDER)] if older else []
    return [case(*each, else_=None) if each else null() for each in (cases, rules)]


def is_older(task: str, model: str, regularizer: str, result_versions: str | None) -> bool:
    """Return whether a configuration was trained by another rule: an earlier version of its task, model or regularizer.

    The engine's is no rule of a method: version 0 is that of all reference trials.
    """
    versions = all_versions(task, model, regularizer, result_versions)
    same = _without_rule(versions["engine"])
    return any(_is_earlier(item, version) for item, version in versions.items() if item not in same)


def _without_rule(engine: object) -> frozenset[str]:
    """Return the items whose versions say nothing on the rule of trials that a version of the engine has trained."""
    return frozenset({"engine"}) | (UNCHANGED if str(engine) == SHIPPED_ENGINE else frozenset())


def _is_earlier(item: str, version: str) -> bool:
    try:
        return int(version) < item_version(item)
    except (InputError, ValueError):  # an item that is not registered, or of a plug-in
        return False


def libraries_differ(*connections: Connection) -> bool:
    """Return whether the trials of databases were trained with different versions of a library."""
    present = Trials.c.libraries.is_not(None)
    trained = (distinct_values(connection, Trials.c.libraries, present) for connection in connections)
    return differing_versions(chain.from_iterable(trained)) is not None


def trial_labels(*connections: Connection) -> list[str]:
    """Return the keys besides the configuration that keep trials apart: ``libraries``, ``origin``, ``seeds``."""
    needed = {
        "libraries": libraries_differ(*connections),
        "origin": any(map(has_reference, connections)),
        "seeds": any(connection.scalar(select(Trials.c.id).where(TUNING).limit(1)) for connection in connections),
    }
    return [label for label, present in needed.items() if present]


def table_labels(connection: Connection, filter: Filter) -> list[str]:
    """Return the labels of `trial_labels` but ``seeds``; the filter leaves seeds out that no table has."""
    labels = trial_labels(connection)
    if "seeds" in labels:
        labels.remove("seeds")
        filter.clauses.append(~TUNING)
    return labels


def differing_versions(trained: Iterable[str]) -> str | None:
    """Return the versions of libraries that occur in several versions, such as ``torch 2.12, torch 2.13``, or None."""
    versions = {version for text in trained for version in text.split(", ")}
    counts = Counter(version.partition(" ")[0] for version in versions)
    return ", ".join(sorted(version for version in versions if counts[version.partition(" ")[0]] > 1)) or None


def differing_items(connection: Connection, *clauses: ColumnElement[bool]) -> frozenset[str]:
    """Return the items, such as a regularizer, that the configurations that match have in several result versions."""
    query = select(*(Configs.c[name] for name in VERSIONED)).distinct()
    others = select(Configs.c.id).where(Configs.c.result_versions.is_not(None), *clauses).limit(1)
    if connection.scalar(others) is None:
        return frozenset()
    versions: dict[str, set[str]] = defaultdict(set)
    for row in connection.execute(query.where(*clauses)):
        for item, version in all_versions(*row).items():
            versions[item].add(version)
    return frozenset(item for item, own in versions.items() if len(own) > 1)


def only_items(result_versions: str | None, items: Container[str]) -> str | None:
    """Return the result versions of these items, None if there are none."""
    texts = (result_versions or "").split(", ")
    return ", ".join(text for text in texts if text and text.rpartition(" ")[0] in items) or None


def all_versions(task: str, model: str, regularizer: str, result_versions: str | None) -> dict[str, str]:
    """Return the result versions of all items of a configuration, including those that are 1."""
    items = ["engine", f"task {task}", f"model {model}"]
    items += [f"regularizer {name}" for name in part_names(regularizer) if name != "none"]
    others = (text.rpartition(" ") for text in (result_versions or "").split(", ") if text)
    return dict.fromkeys(items, "1") | {item: version for item, _, version in others}


def mark_text(marks: Iterable[str | None]) -> str | None:
    """Return marks as text, None if there are none."""
    return ", ".join(sorted({*filter(None, marks)})) or None


def libraries_of(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """Return the libraries of trials that succeeded, as far as they are known."""
    query = select(Trials.c.id, Trials.c.libraries).where(
        Trials.c.state == "succeeded", Trials.c.libraries.is_not(None)
    )
    return dict(connection.execute(query.where(in_list(connection, Trials.c.id, ids))).all())


def machines(connection: Connection, keys: Callable[..., Select[Any]]) -> Iterator[tuple[tuple[Any, ...], Machine]]:
    """Yield the keys of finished trials, each with a machine that trained some of them; nothing if there is only one.

    `keys` returns a query for keys of trials with more columns (`dropbench.db.queries.groups.GroupKeys.select`).
    Machines change the order of sums alone; what changes the computed function is in ``libraries``.
    """
    columns = Attempts.c.device, Attempts.c.cpus
    bounds = select(*map(func.min, columns)), select(*map(func.max, columns))
    lowest, highest = (connection.execute(query).one() for query in bounds)
    if lowest == highest:  # the join would take a second for a million trials
        return
    threads = case((Attempts.c.gpu_seconds > 0, null()), else_=Attempts.c.cpus)
    query = keys(Attempts.c.device, threads).join(Attempts, Attempts.c.trial_id == Trials.c.id).distinct()
    query = query.where(Trials.c.state == "succeeded", Attempts.c.device.is_not(None))
    for *key, device, cpus in connection.execute(query):
        yield tuple(key), (device, cpus)


def machine_text(connection: Connection, ids: Sequence[str]) -> str | None:
    """Return the machines of trials as ``2 machines (AMD EPYC 7763, 1 thread; NVIDIA H100)``; None for a single one."""
    chosen = in_list(connection, Trials.c.id, ids)
    own = {
        machine for _, machine in machines(connection, lambda *more: select(*more).select_from(Trials).where(chosen))
    }
    texts = sorted(device + (f", {count_of(cpus, 'thread')}" if cpus else "") for device, cpus in own)
    return f"{len(texts)} machines ({'; '.join(texts)})" if len(texts) > 1 else None


def outdated_notes(trials: Iterable[Trial]) -> tuple[str, ...]:
    """Return what differs between the result versions of trials and the current ones, a note for each item."""
    notes: dict[str, str] = {}
    for trial in trials:
        same = _without_rule(trial.result_versions.get("engine")) - {"engine"}
        notes |= {item: note for item, note in version_notes(trial).items() if item not in same}
    return tuple(note if item == "engine" else f"{OLDER_SIGN} {OLDER}: {note}" for item, note in notes.items())
