"""What lies behind a cell: its configuration, what became of its trials, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from db.report.choices import chosen_text
from db.report.layout import difference, incomplete, number, spread
from db.report.page.records import Record, configs, records
from db.report.page.table import Names
from db.report.text import cut
from db.report.view import Outcome, Seed, View
from db.store import Store
from db.usage import Usage

MOST_FULL = 120
"""Trials of which a page has attempts, environment and log."""
MOST_LINES = 1500
"""Trials of which it has a line."""
MOST_CONFIGS = 200
"""Cells with the whole configuration; where there are more, only baselines have theirs."""
LOG_LINES = 20
LOG_BYTES = 16_384
LOG_LETTERS = 240


@dataclass(frozen=True)
class Run:
    """A trial as a page shows it: texts, all of them in order."""

    record: Record
    cost: Usage
    attempts: list[dict[str, str]]
    environment: list[tuple[str, str]]
    told: list[str]
    sites: list[str]
    log: list[str]
    metrics: list[tuple[str, str]]


@dataclass(frozen=True)
class Behind:
    """What lies behind a cell.

    Attributes:
        id: of its place on the page.
        label: row and column.
        value: mean ± std, or the states of its seeds.
        facts: what it is, in pairs.
        differences: key, the baseline's value, its own.
        config: all of its configuration, in pairs.
        why: what happened to seeds without a number.
        seeds: those that have a line.
        left_out: how many have none.
        runs: by id, those that are told in full.
    """

    id: str
    label: str
    outcome: Outcome
    value: str
    facts: list[tuple[str, str]]
    differences: list[tuple[str, str, str]] | None
    config: list[tuple[str, str]]
    why: str | None
    seeds: Sequence[Seed]
    left_out: int
    runs: Mapping[str, Run] = field(default_factory=dict)


def cells_of(view: View, names: Names, store: Store, runs: Path, *, full: bool = True) -> list[Behind]:
    """Every cell of a table that has a name; the first seeds of each, and those that failed, are told in full first.

    Args:
        view: the table.
        names: what the cells are called.
        store: the database.
        runs: the root of the run directories.
        full: tell trials in full, `MOST_FULL` of them.
    """
    outcomes = [view.cells[place] for place in names]
    order = sorted(
        (seed.state != "failed", place, number, seed.id)
        for number, one in enumerate(outcomes)
        for place, seed in enumerate(one.seeds)
        if seed.state not in ("queued", "not run")
    )
    told = {
        id: trial_run(record, runs)
        for id, record in records(store, runs, [id for *_, id in order[: MOST_FULL if full else 0]]).items()
    }
    first = [one.seeds[0].id for one in outcomes if one.seeds]
    flattened = {id: flat(config) for id, config in configs(store, first).items()}
    lines = max(3, MOST_LINES // max(1, len(outcomes)))
    baselines = _baselines(view)
    whole = len(outcomes) <= MOST_CONFIGS
    return [
        _behind(
            one, names[one.row, one.column], baselines.get((one.row, one.column)), flattened, told, lines, whole=whole
        )
        for one in outcomes
    ]


def _baselines(view: View) -> dict[tuple[str, str], Outcome]:
    """The baseline that each cell is held against: the nearest above in its column, else the first."""
    found: dict[tuple[str, str], Outcome] = {}
    for column in view.columns:
        cells = view.column(column)
        nearest = next((one for one in cells if one.cell.baseline), None)
        for one in cells:
            if one.cell.baseline:
                nearest = one
            elif nearest is not None:
                found[one.row, column] = nearest
    return found


def _behind(
    one: Outcome,
    name: str,
    baseline: Outcome | None,
    configs: Mapping[str, Mapping[str, str]],
    told: Mapping[str, Run],
    lines: int,
    *,
    whole: bool,
) -> Behind:
    config = configs.get(one.seeds[0].id, {}) if one.seeds else {}
    base = configs.get(baseline.seeds[0].id) if baseline is not None and baseline.seeds else None
    states = [seed.state for seed in one.seeds]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    seeds = sorted(one.seeds, key=lambda seed: (seed.id not in told, seed.seed))[:lines]
    return Behind(
        id=name,
        label=f"{cut(one.row, 200)} · {cut(one.column, 200)}",
        outcome=one,
        value=spread(one.mean, one.std, one.metric) or counts or "no trials",
        facts=_facts(one, counts),
        differences=None if base is None or not config else differences(base, config),
        config=sorted(config.items()) if whole or base is None else [],
        why=incomplete(one),
        seeds=sorted(seeds, key=lambda seed: seed.seed),
        left_out=len(one.seeds) - len(seeds),
        runs={seed.id: told[seed.id] for seed in seeds if seed.id in told},
    )


def _facts(one: Outcome, counts: str) -> list[tuple[str, str]]:
    """What a reader asks first."""
    request = one.cell.request
    params = ", ".join(f"{key} {value}" for key, value in one.regularizer.items())
    facts = [
        ("metric", f"{one.metric.name} {one.metric.arrow}".strip()),
        ("seeds", counts),
        ("chosen", chosen_text(one)),
        ("Δ base", difference(one) + (f" over {one.paired} pairs" if one.paired else "")),
        ("published", spread(one.published, one.published_std, one.metric)),
        ("Δ published", number(one.delta_published, one.metric, signed=True)),
        ("model", request.model),
        ("data", f"{request.data} ({one.fingerprint})" if one.fingerprint else request.data),
        ("regularizer", f"{request.regularizer}: {params}" if params else request.regularizer),
        ("schedule", one.schedule if request.regularizer != "none" else ""),
        ("align", request.align if request.align != "none" else ""),
        ("preset", request.preset),
        ("overrides", ", ".join(f"{key}={value}" for key, value in request.overrides.items())),
    ]
    return [(name, text) for name, text in facts if text]


def flat(config: Mapping[str, Any], above: str = "") -> dict[str, str]:
    """A configuration as texts by dotted key."""
    found: dict[str, str] = {}
    for key, value in config.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{above}{key}.")
        elif value not in (None, {}):
            found[f"{above}{key}"] = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return found


def differences(base: Mapping[str, str], config: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """The keys in which two configurations differ: key, the one's value, the other's; "–" for none."""
    keys = sorted({*base, *config})
    return [(key, base.get(key, "–"), config.get(key, "–")) for key in keys if base.get(key) != config.get(key)]


def trial_run(record: Record, runs: Path) -> Run:
    """A trial in full; what of its run directory is missing or damaged is left out."""
    directory = runs / record.id
    known = _environment(directory)
    libraries = known.get("libraries")
    environment: list[tuple[str, str]] = [
        (key, str(known[key])) for key in ("host", "device", "cores", "threads", "python", "platform") if key in known
    ]
    if isinstance(libraries, dict):
        environment.append(("libraries", ", ".join(f"{name} {version}" for name, version in libraries.items())))
    return Run(
        record=record,
        cost=cost(record.attempts),
        attempts=[_attempt(one) for one in record.attempts],
        environment=environment,
        told=[str(line) for key in ("notes", "deviations") for line in _list(known.get(key))],
        sites=[str(line) for line in _list(known.get("sites"))][:200],
        log=log_lines(directory / "log.txt"),
        metrics=[
            (name, "no finite number" if value is None else f"{value:.6g}")
            for name, value in sorted(record.metrics.items())
        ][:60],
    )


def cost(attempts: Sequence[Mapping[str, Any]]) -> Usage:
    """What the attempts of a trial cost together; one that runs counts until now."""
    whole = Usage("")
    for attempt in attempts:
        whole.add(SimpleNamespace(**attempt), hours(attempt))
    return whole


def hours(attempt: Mapping[str, Any]) -> float:
    """How long an attempt has lasted."""
    if not attempt["started_at"]:
        return 0.0
    try:
        ended = datetime.fromisoformat(attempt["ended_at"]) if attempt["ended_at"] else datetime.now(UTC)
        return max(0.0, (ended - datetime.fromisoformat(attempt["started_at"])).total_seconds() / 3600)
    except (ValueError, TypeError):
        return 0.0


def _attempt(one: Mapping[str, Any]) -> dict[str, str]:
    memory = one["peak_memory_bytes"]
    where = ", ".join(
        str(part) for part in (one["host"], one["executor"], one["job_id"] and f"job {one['job_id']}") if part
    )
    return {
        "number": str(one["number"]),
        "state": one["state"],
        "cause": one["cause"] or "",
        "where": where,
        "device": one["device"] or "",
        "started": str(one["started_at"] or "")[:19].replace("T", " "),
        "lasted": duration(3600 * hours(one)),
        "memory": "" if memory is None else f"{memory / 2**30:.1f} GiB",
        "steps": "" if one["steps_done"] is None else f"{one['steps_done']:,}",
        "message": cut(one["message"] or "", 1500),
    }


def duration(seconds: float) -> str:
    """``3 min 20 s``: two units at most."""
    whole = round(seconds)
    units = [(86_400, "d"), (3600, "h"), (60, "min"), (1, "s")]
    parts: list[str] = []
    for size, unit in units:
        if whole >= size and len(parts) < 2:
            parts.append(f"{whole // size} {unit}")
            whole %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"


def log_lines(file: Path) -> list[str]:
    """The last lines of a log, each a harmless one; of a line that a progress bar wrote again and again, the last."""
    try:
        with open(file, "rb") as opened:
            start = max(0, opened.seek(0, 2) - LOG_BYTES)
            opened.seek(start)
            lines = opened.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return []
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines[1 if start else 0 :]]
    return [cut(line, LOG_LETTERS) for line in lines if line.strip()][-LOG_LINES:]


def _environment(directory: Path) -> dict[str, Any]:
    try:
        found = json.loads((directory / "environment.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
