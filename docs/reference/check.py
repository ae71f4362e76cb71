"""Run trials of a file of reference results again, and compare all of their metrics."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from sqlalchemy import select

from dropbench.db.schema.connection import reading
from dropbench.db.schema.reference import Details
from dropbench.db.store.rows import finals_of
from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial
from dropbench.harness.training.environment import environment
from dropbench.harness.trials.result_versions import with_current_versions
from dropbench.harness.trials.trial import Trial

MACHINE = ("python", "libraries", "device", "threads")
"""The keys of an environment that decide whether equal results can be expected."""


@dataclass(frozen=True)
class Rerun:
    """A trial that was run again.

    Attributes:
        trial: the trial.
        count: number of metrics of the reference.
        differences: the metrics that differ: reference, then rerun; None is no finite number or no such metric.
        machine: the keys of the environment that differ, and result versions: reference, then rerun.
        error: why the trial cannot run here, if it cannot.
    """

    trial: Trial
    count: int
    differences: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    machine: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    error: str | None = None

    @property
    def failed(self) -> bool:
        """True if results differ on this kind of machine with these result versions, or the trial cannot run here."""
        return self.error is not None or bool(self.differences and not self.machine)

    def __str__(self) -> str:
        trial = self.trial
        head = f"{trial.id} {trial.task} {trial.data.name} {trial.regularizer.name} seed {trial.seed}"
        if self.error is not None:
            return f"{head}: not run: {self.error}"
        lines = [f"{head}: all {self.count} metrics equal" if not self.differences else f"{head}: differs"]
        for name, (old, new) in self.differences.items():
            change = f" ({new - old:+.3g})" if old is not None and new is not None else ""
            lines.append(f"  {name}: {old!r} in the reference, {new!r} here{change}")
        lines += [f"  {key}: {old} in the reference, {new} here" for key, (old, new) in self.machine.items()]
        return "\n".join(lines)


def rerun(reference: Store, count: int, seed: int, settings: Settings) -> Iterator[Rerun]:
    """Run random trials again, each in a temporary folder, with the threads of the reference; yield each when done.

    A trial of an earlier result version is run as one of the current version, which may differ.
    If some of the trials were trained on this kind of machine, the others are left out.
    """
    ids = of_this_machine(reference, settings) or sorted(reference.states())
    trials = reference.trials(random.Random(seed).sample(ids, min(count, len(ids))))
    with reading(reference.engine) as connection:
        finals = finals_of(connection, trials)
        texts = dict(connection.execute(select(Details.c.trial_id, Details.c.environment)).all())
    for id, trial in trials.items():
        theirs = json.loads(texts[id])
        own = replace(settings, threads=theirs.get("threads") or 0, num_workers=0)
        current = with_current_versions(trial)
        try:
            with tempfile.TemporaryDirectory() as folder:
                result = run_trial(RunDirectory.create(Path(folder), current), own)
        except InputError as error:
            yield Rerun(trial, len(finals[id]), error=str(error))
            continue
        device = torch.device("cuda" if own.uses_cuda() else "cpu")
        machine = _differing(theirs, json.loads(json.dumps(environment(device))))
        if current != trial:
            machine["result versions"] = trial.result_versions, current.result_versions
        yield Rerun(trial, len(finals[id]), _differences(finals[id], result["metrics"]), machine)


def of_this_machine(reference: Store, settings: Settings) -> list[str]:
    """Return the sorted ids of the trials whose results can be expected to be equal here, with their threads."""
    here = json.loads(json.dumps(environment(torch.device("cuda" if settings.uses_cuda() else "cpu"))))
    with reading(reference.engine) as connection:
        texts = connection.execute(select(Details.c.trial_id, Details.c.environment)).all()
    return sorted(id for id, text in texts if not _differing(json.loads(text), here).keys() - {"threads"})


def _differing(theirs: Mapping[str, Any], here: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    return {key: (theirs.get(key), here.get(key)) for key in MACHINE if theirs.get(key) != here.get(key)}


def _differences(
    reference: Mapping[str, float | None], metrics: Mapping[str, float | None]
) -> dict[str, tuple[float | None, float | None]]:
    """Return the metrics that are not equal bit for bit; those of analyses, which a rerun has not, are left out."""
    splits = {name.partition("/")[0] for name in metrics}
    old = {name: value for name, value in reference.items() if name.partition("/")[0] in splits}
    pairs = {name: (old.get(name), metrics.get(name)) for name in sorted({*old, *metrics})}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def all_equal(reruns: Sequence[Rerun]) -> str:
    """Return a line on the number of trials with equal results."""
    equal = sum(not rerun.differences and rerun.error is None for rerun in reruns)
    return f"{equal} of {len(reruns)} trials gave the same numbers"
