"""Records of single trials from the database, updated from the run directories of those that have not ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.tables import FINAL, Configs, Metrics, Trials
from dropbench.db.store.rows import attempts_of, finals_of, in_list
from dropbench.db.store.run_record import read_run_record
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import Runs
from dropbench.harness.trials.trial import FINAL_STATES

Array = NDArray[np.float64]
Curve = Sequence[tuple[int, float | None]]
"""(step, value) in order of steps; the value is None if the run reported no finite number."""
Points = dict[str, list[tuple[int, float | None]]]
"""Curves of a trial by name."""


@dataclass(frozen=True)
class Record:
    """A trial as a page shows it.

    Attributes:
        config: its identity apart from the seed (`dropbench.harness.trials.trial.Trial.config`).
        suites: suites that contain it.
        attempts: rows of the table `attempts`, in order.
        metrics: final values.
    """

    id: str
    seed: int
    state: str
    reason: str | None
    config: dict[str, Any]
    suites: list[str] = field(default_factory=list)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    metrics: dict[str, float | None] = field(default_factory=dict)


def load_records(store: Store, runs: Path, ids: Sequence[str]) -> dict[str, Record]:
    """Return the trials with these full ids in the given order; ids that are not in the database are left out."""
    records: dict[str, Record] = {}
    suites = store.suites(ids)
    with reading(store.engine) as connection:
        attempts, finals = attempts_of(connection, ids), finals_of(connection, ids)
        trials = select(Trials.c.id, Trials.c.seed, Trials.c.state, Trials.c.reason, Configs.c.config).join(Configs)
        for row in connection.execute(trials.where(in_list(connection, Trials.c.id, ids))):
            own = suites.get(row.id, []), attempts.get(row.id, []), finals[row.id]
            records[row.id] = Record(row.id, row.seed, row.state, row.reason, row.config, *own)
    for record in records.values():
        if record.state not in FINAL_STATES:
            with suppress(InputError):  # the run directory may be newer than the database
                latest = read_run_record(Runs(runs)[record.id])
                record.attempts[:] = latest.attempts
                record.metrics.update({name: value for name, step, value in latest.metrics if step == FINAL})
    return {id: records[id] for id in ids if id in records}


def load_configs(store: Store, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the configurations of trials by id."""
    query = select(Trials.c.id, Configs.c.config).join(Configs)
    with reading(store.engine) as connection:
        rows = connection.execute(query.where(in_list(connection, Trials.c.id, ids))).all()
    return {row.id: row.config for row in rows}


def load_curves(store: Store, runs: Path, ids: Iterable[str], names: Iterable[str] | None) -> dict[str, Points]:
    """Return the curves with these names (``train/loss``; None: all) by trial; trials without any are left out."""
    ids, selected = list(ids), None if names is None else set(names)
    curves: dict[str, Points] = {}
    order = Metrics.c.trial_id, Metrics.c.name, Metrics.c.step
    query = select(*order, Metrics.c.value).where(Metrics.c.step != FINAL).order_by(*order)
    if selected is not None:
        query = query.where(Metrics.c.name.in_(selected))
    with reading(store.engine) as connection:
        for id, name, step, value in connection.execute(query.where(in_list(connection, Metrics.c.trial_id, ids))):
            curves.setdefault(id, {}).setdefault(name, []).append((step, value))
    for id, row in store.states(ids).items():
        if row.state not in FINAL_STATES and (runs / id / "events.jsonl").exists():
            with suppress(InputError):
                metrics = read_run_record(Runs(runs)[id]).metrics
                curves[id] = {}
                for name, step, value in sorted(metrics, key=lambda metric: metric[1]):
                    if step != FINAL and (selected is None or name in selected):
                        curves[id].setdefault(name, []).append((step, value))
    return curves


@dataclass(frozen=True)
class SeedBand:
    """Curves of several seeds merged into one of K points.

    Attributes:
        steps, mean, low, high: (K,). Points outside the range of a seed are computed from the other seeds.
        seeds: number of merged curves.
    """

    steps: Array
    mean: Array
    low: Array
    high: Array
    seeds: int


def merge_seeds(curves: Sequence[Curve], max_points: int) -> SeedBand | None:
    """Merge curves, one per seed, interpolating between their steps; return None if none of them has a point.

    The band has at most `max_points` (at least 2), including the first and the last step.
    """
    arrays = [np.array([point for point in curve if point[1] is not None], dtype=float) for curve in curves]
    finite = [(points[:, 0], points[:, 1]) for points in arrays if len(points)]
    if not finite:
        return None
    steps = np.unique(np.concatenate([steps for steps, _ in finite]))
    if len(steps) > max_points:
        steps = steps[np.unique(np.linspace(0, len(steps) - 1, max_points).round().astype(int))]
    values = np.array([np.interp(steps, *curve, left=np.nan, right=np.nan) for curve in finite])
    # No seed covers the steps between the end of one and the start of another that was resumed from a later step.
    covered = np.isfinite(values).any(axis=0)
    steps, values = steps[covered], values[:, covered]
    low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
    return SeedBand(steps, np.nanmean(values, axis=0), low, high, len(finite))
