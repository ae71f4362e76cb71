"""Details of a cell: its configuration, and the outcome and cost of its trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dropbench.db.queries.marks import flatten
from dropbench.db.report.formats.escaping import cut
from dropbench.db.report.formats.legend import incomplete
from dropbench.db.report.formats.numbers import delta_text, format_metric, mean_std
from dropbench.db.report.page.limits import Limits
from dropbench.db.report.page.records import Record, load_configs, load_records
from dropbench.db.report.page.table import Anchors
from dropbench.db.report.view.cells import CellResult, SeedResult
from dropbench.db.report.view.notes import params_text
from dropbench.db.report.view.view import View, baselines
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.files import read_tail
from dropbench.harness.regularizers.spec import spec_label
from dropbench.harness.runs.run_directory import RunDirectory


@dataclass(frozen=True)
class RunDetails:
    """A trial as a page shows it: its attempts with their cost, and ordered texts."""

    attempts: list[dict[str, Any]]
    cpu_hours: float
    gpu_hours: float
    environment: list[tuple[str, str]]
    notes: list[str]
    log: list[str]
    metrics: list[tuple[str, str]]


@dataclass(frozen=True)
class CellDetails:
    """Details of a cell.

    Attributes:
        id: anchor on the page.
        label: row and column.
        value: mean ± std, or the states of its seeds.
        facts: summary as pairs of name and text.
        differences: key, value of the baseline, value of the cell; None without a baseline.
        config: the full configuration as pairs.
        incomplete: note on the seeds without a number.
        seeds: seeds that are listed.
        omitted: number of seeds that are not.
        runs: trials shown in full, by id.
    """

    id: str
    label: str
    value: str
    facts: list[tuple[str, str]]
    differences: list[tuple[str, str, str]] | None
    config: list[tuple[str, str]]
    incomplete: str | None
    seeds: Sequence[SeedResult]
    omitted: int
    runs: Mapping[str, RunDetails] = field(default_factory=dict)


def details_of(view: View, anchors: Anchors, store: Store, runs: Path, *, full: bool = True) -> list[CellDetails]:
    """Return the details of every cell that has an anchor.

    If `full`, up to `Limits.full_trials` trials are shown in full: failed ones, then the first seeds of each cell.
    """
    results = [view.cells[position] for position in anchors]
    order = sorted(
        (seed.state != "failed", index, number, seed.id)
        for number, result in enumerate(results)
        for index, seed in enumerate(result.seeds)
        if seed.state not in ("queued", "not run")
    )
    full_ids = [id for *_, id in order[: Limits.full_trials if full else 0]]
    shown = {id: run_details(record, runs) for id, record in load_records(store, runs, full_ids).items()}
    first = [result.seeds[0].id for result in results if result.seeds]
    configs = {id: flatten(config) for id, config in load_configs(store, first).items()}
    max_seeds = max(3, Limits.listed_trials // max(1, len(results)))
    baseline_of = baselines(view)
    details = []
    for (position, anchor), result in zip(anchors.items(), results, strict=True):
        baseline = baseline_of.get(position)
        config = configs.get(result.seeds[0].id, {}) if result.seeds else {}
        base = configs.get(baseline.seeds[0].id) if baseline is not None and baseline.seeds else None
        states = [seed.state for seed in result.seeds]
        counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
        seeds = sorted(result.seeds, key=lambda seed: (seed.id not in shown, seed.seed))[:max_seeds]
        cell = CellDetails(
            id=anchor,
            label=f"{cut(result.row, 200)} · {cut(result.column, 200)}",
            value=mean_std(result.mean, result.std, result.metric) or counts or "no trials",
            facts=_facts(result, counts),
            differences=None if base is None or not config else differences(base, config),
            config=sorted(config.items()) if len(results) <= Limits.configs or base is None else [],
            incomplete=incomplete(result),
            seeds=sorted(seeds, key=lambda seed: seed.seed),
            omitted=len(result.seeds) - len(seeds),
            runs={seed.id: shown[seed.id] for seed in seeds if seed.id in shown},
        )
        details.append(cell)
    return details


def _facts(result: CellResult, counts: str) -> list[tuple[str, str]]:
    request = result.cell.request
    facts = [
        ("metric", f"{result.metric.name} {result.metric.arrow}".strip()),
        ("seeds", counts),
        ("chosen", params_text(result.chosen)),
        ("Δ base", delta_text(result) + (f" over {result.paired} pairs" if result.paired else "")),
        ("published", mean_std(result.published, result.published_std, result.metric)),
        ("Δ published", format_metric(result.delta_published, result.metric, signed=True, like=result.mean)),
        ("model", request.model),
        ("data", f"{request.data} ({result.fingerprint})" if result.fingerprint else request.data),
        ("subset", "; ".join(result.subset)),
        ("regularizer", spec_label(request.regularizer, result.regularizer)),
        ("schedule", result.schedule if request.regularizer != "none" else ""),
        ("align", request.align if request.align != "none" else ""),
        ("preset", request.preset),
        ("overrides", ", ".join(f"{key}={value}" for key, value in request.overrides.items())),
        ("result versions", result.result_versions or ""),
    ]
    return [(name, text) for name, text in facts if text]


def differences(base: Mapping[str, str], config: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return the keys in which two configurations differ with both values; "–" for a missing one."""
    keys = sorted({*base, *config})
    return [(key, base.get(key, "–"), config.get(key, "–")) for key in keys if base.get(key) != config.get(key)]


def run_details(record: Record, runs: Path) -> RunDetails:
    """Return a trial in full; missing or damaged parts of its run directory are left out."""
    content = load_environment(runs / record.id)
    keys = ("host", "device", "cores", "threads", "python", "platform")
    environment: list[tuple[str, str]] = [(key, str(content[key])) for key in keys if key in content]
    if isinstance(libraries := content.get("libraries"), dict):
        environment.append(("libraries", ", ".join(f"{name} {version}" for name, version in libraries.items())))
    if isinstance(variables := content.get("variables"), dict) and variables:
        environment.append(("variables", ", ".join(f"{name}={value}" for name, value in variables.items())))
    return RunDetails(
        attempts=[_with_texts(attempt) for attempt in record.attempts],
        cpu_hours=sum(hours(attempt) * (attempt["cpus"] or 1) for attempt in record.attempts),
        gpu_hours=sum(hours(attempt) * (attempt["gpus"] or 0) for attempt in record.attempts),
        environment=environment,
        notes=[*text_list(content, "notes"), *text_list(content, "deviations")],
        log=log_lines(runs / record.id / "log.txt"),
        metrics=[
            (name, "no finite number" if value is None else f"{value:.6g}")
            for name, value in sorted(record.metrics.items())[:60]
        ],
    )


def _with_texts(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """Return an attempt with its place, duration and start as texts."""
    job = f"job {attempt['job_id']}" if attempt["job_id"] else None
    return {
        **attempt,
        "where": ", ".join(str(part) for part in (attempt["host"], attempt["executor"], job) if part),
        "started": time_text(str(attempt["started_at"] or "")),
        "duration": duration(3600 * hours(attempt)),
    }


def hours(attempt: Mapping[str, Any]) -> float:
    """Return the duration of an attempt in hours; 0 if its end is not known, or its times are invalid."""
    if not attempt["started_at"] or (not attempt["ended_at"] and attempt["state"] != "running"):
        return 0.0
    try:
        ended = datetime.fromisoformat(attempt["ended_at"]) if attempt["ended_at"] else datetime.now(UTC)
        return max(0.0, (ended - datetime.fromisoformat(attempt["started_at"])).total_seconds() / 3600)
    except (ValueError, TypeError):
        return 0.0


def time_text(iso: str) -> str:
    """Return an ISO 8601 time to the second: ``2026-01-02 03:04:05``."""
    return iso[:19].replace("T", " ")


def duration(seconds: float) -> str:
    """Return a duration in at most two units: ``3 min 20 s``."""
    rest = round(seconds)
    parts: list[str] = []
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        if rest >= size and len(parts) < 2:
            parts.append(f"{rest // size} {unit}")
            rest %= size
        elif parts:
            break
    return " ".join(parts) or "0 s"


def log_lines(file: Path) -> list[str]:
    """Return the last lines of a log, sanitized; of a line overwritten by a progress bar, the last version."""
    content = read_tail(file, Limits.log_bytes + 1)
    lines = content[-Limits.log_bytes :].decode("utf-8", "replace").split("\n")
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in lines[len(content) > Limits.log_bytes :]]
    return [cut(line, Limits.log_line_length) for line in lines if line.strip()][-Limits.log_lines :]


def load_environment(directory: Path) -> dict[str, Any]:
    """Return the content of a run's environment file; {} if it is missing or damaged."""
    try:
        return RunDirectory(directory).read("environment.json")
    except (FileNotFoundError, InputError):
        return {}


def text_list(content: Mapping[str, Any], key: str) -> list[str]:
    """Return a list of an environment file as texts; [] if it is missing or damaged."""
    return [str(value) for value in values] if isinstance(values := content.get(key), list) else []
