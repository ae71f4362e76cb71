"""A submission as it can be seen from here: whether its work lives, and what its executor says of an end."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from db.store import SubmissionRow
from harness.files import write_json
from harness.settings import Settings
from harness.trial import TrialState
from jobs import places, slurm
from jobs.wishes import STOP
from jobs.worker import BEGAN

ELEMENTS = "elements.json"
"""In a submission's folder: the trials of each job of its array."""

_SKEW = 60
"""Seconds that the clock of a node may differ from this machine's, and a start be younger than squeue's answer."""

_TAIL = 3
"""Lines of a job's log that are told of one that never came to its first trial."""


@dataclass(frozen=True)
class Job:
    """A submission.

    Attributes:
        id: the submission's.
        alive: whether any of it runs, or will.
        folder: where its logs are.
        view: what SLURM says, None for other executors.
        elements: the element of its array by trial id.
        begun: the elements whose worker has begun, perhaps long ago.
    """

    id: str
    alive: bool
    folder: Path = Path()
    view: slurm.View | None = None
    elements: dict[str, int] = field(default_factory=dict)
    begun: frozenset[int] = frozenset()

    @property
    def near(self) -> bool:
        """Whether its workers are on this machine, so that their locks tell the truth."""
        return self.view is None

    def lives(self, trial: str) -> bool:
        """Whether what this trial was given to runs, or will; in doubt it does."""
        if self.view is None:
            return self.alive
        return self.view.alive(name(self.id), self.elements.get(trial))

    def waits(self, trial: str) -> bool:
        """Whether what this trial was given to has never begun, and will."""
        return trial in self.elements and self.elements[trial] not in self.begun and self.lives(trial)

    def works(self, trial: str, attempt: dict[str, Any]) -> bool:
        """Whether an attempt is to be taken for alive though no lock says so: it is elsewhere, and so is what runs it.

        Not where its job is known to wait for its next start, long after the attempt began.
        """
        if self.view is None or not self.lives(trial):
            return False
        now = self.view.now.get(name(self.id), {}).get(self.elements.get(trial, -1))
        waits = now is not None and now.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING")
        return not waits or slurm.later(str(attempt["started_at"]), _SKEW) > self.view.asked

    def stillborn(self, trial: str) -> tuple[TrialState, str] | None:
        """The state of a trial, and why, whose job ended before it began with it; None where that is not known."""
        if self.view is None or trial not in self.elements or name(self.id) not in self.view.numbers:
            return None
        number = f"{self.view.numbers[name(self.id)]}_{self.elements[trial]}"
        execution = self.view.ended(name(self.id), number)
        if execution is None:
            return None
        if execution.state == "CANCELLED":
            return "cancelled", slurm.CANCELLED
        if execution.state == "FAILED" and not (self.folder / f"{number}{BEGAN}").exists():
            said = self.log(number).strip().splitlines()[-_TAIL:]
            return "failed", f"its job ended before the trial began: {' / '.join(said) or execution.code or 'no word'}"
        return None

    def death(self, attempt: dict[str, Any]) -> tuple[str, str] | None:
        """The state of an attempt whose worker died, and why, where the cluster knows."""
        number = attempt.get("job_id")
        if self.view is None or number is None:
            return None
        execution = self.view.ended(name(self.id), number, attempt.get("started_at"))
        return slurm.cause(execution, self.log(number)) if execution else None

    def log(self, job: str) -> str:
        """What a job's first task, and SLURM itself, wrote to the standard error, the end of it."""
        try:
            with open(self.folder / f"{job}_0_log.err", "rb") as file:
                file.seek(max(0, file.seek(0, 2) - 65536))
                return file.read().decode(errors="replace")
        except OSError:
            return ""


def find(submissions: Sequence[SubmissionRow], settings: Settings, *, causes: bool = False) -> dict[str, Job]:
    """The jobs of some submissions, by the submissions' ids; one question to SLURM for all of them.

    Args:
        submissions: the submissions.
        settings: where the runs are.
        causes: ask for what is known of those that ended, too.
    """
    far = [one for one in submissions if one.executor == "slurm"]
    view = slurm.look([(name(one.id), one.job_id) for one in far], causes=causes) if far else slurm.View()
    found = {}
    for one in submissions:
        if one.executor == "slurm":
            folder = Path(one.folder)
            found[one.id] = Job(one.id, view.alive(name(one.id)), folder, view, read_elements(folder), _begun(folder))
        else:
            found[one.id] = Job(one.id, places.alive(settings.runs, one.id))
    return found


def name(submission: str) -> str:
    """The name of a submission's jobs on a cluster, by which they are found whatever sbatch answered."""
    return f"dropbench-{submission}"


def withdraw(folder: Path) -> None:
    """Nobody waits for a submission any more: should a job of it begin all the same, it ends at once."""
    (folder / STOP).touch()


def write_elements(folder: Path, packs: Sequence[Sequence[str]]) -> None:
    """Note which trials each job of an array gets."""
    write_json(folder / ELEMENTS, {id: element for element, pack in enumerate(packs) for id in pack})


def read_elements(folder: Path) -> dict[str, int]:
    """The element of the array by trial id; empty where that is not there."""
    try:
        found = json.loads((folder / ELEMENTS).read_bytes())
        return {str(id): int(element) for id, element in found.items()}
    except (OSError, ValueError, AttributeError):
        return {}


def _begun(folder: Path) -> frozenset[int]:
    """The elements that have said so."""
    try:
        with os.scandir(folder) as entries:
            said = [entry.name.removesuffix(BEGAN) for entry in entries if entry.name.endswith(BEGAN)]
    except OSError:
        return frozenset()
    return frozenset(int(element) for _, _, element in (job.partition("_") for job in said) if element.isdigit())
