"""A submission's jobs: whether they are alive, and how the executor says that they ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dropbench.db.store.store import SubmissionRow
from dropbench.harness.errors import InputError
from dropbench.harness.files import read_json, read_tail, write_json
from dropbench.harness.settings import Settings
from dropbench.harness.trials.trial import TrialState
from dropbench.jobs.worker import slots
from dropbench.jobs.worker.failure import Failure
from dropbench.jobs.worker.process_group import FAILURE_SUFFIX
from dropbench.jobs.worker.stop_requests import STARTED_SUFFIX, STOP_FILE

if TYPE_CHECKING:
    from dropbench.jobs.slurm.job_states import JobStates

ELEMENTS_FILE = "elements.json"
"""In a submission's folder: the array element of each trial."""

_CLOCK_SKEW_S = 60
"""Seconds by which a node's clock may differ, and by which an attempt may be younger than squeue's answer."""

_LOG_LINES = 3
"""Lines quoted from the log of a job that failed before its first trial."""


@dataclass(frozen=True)
class Submission:
    """A submission as its executor sees it now.

    Attributes:
        alive: whether any of its jobs runs or will run.
        folder: the folder of its logs.
        jobs: what SLURM reports; None for other executors.
        elements: array element by trial id.
        started: elements whose worker has started, possibly long ago.
    """

    id: str
    alive: bool
    folder: Path = Path()
    jobs: JobStates | None = None
    elements: dict[str, int] = field(default_factory=dict)
    started: frozenset[int] = frozenset()

    @property
    def is_local(self) -> bool:
        """Return whether its workers run on this machine, so that their locks are reliable."""
        return self.jobs is None

    def is_alive(self, trial: str) -> bool:
        """Return whether the trial's job runs or will run; True in doubt."""
        return self.alive if self.jobs is None else self.jobs.alive(job_name(self.id), self.elements.get(trial))

    def is_pending(self, trial: str) -> bool:
        """Return whether the trial's job has never started, and will."""
        return trial in self.elements and self.elements[trial] not in self.started and self.is_alive(trial)

    def may_run(self, trial: str, attempt: dict[str, Any]) -> bool:
        """Return whether an attempt on another machine may be alive, as its lock is not visible here.

        It is not if its job is pending again, long after the attempt began.
        """
        if self.jobs is None or not self.is_alive(trial):
            return False
        from dropbench.jobs.slurm.execution import add_seconds

        current = self.jobs.current.get(job_name(self.id), {}).get(self.elements.get(trial, -1))
        pending = current is not None and current.state in ("PENDING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING")
        return not pending or add_seconds(str(attempt["started_at"]), _CLOCK_SKEW_S) > self.jobs.queried_at

    def failed_before_start(self, trial: str) -> tuple[TrialState, str] | None:
        """Return the state and the reason of a trial whose job ended before starting it; None if it is not known."""
        if self.jobs is None or trial not in self.elements or job_name(self.id) not in self.jobs.job_ids:
            return None
        from dropbench.jobs.slurm.execution import CANCELLED

        job_id = f"{self.jobs.job_ids[job_name(self.id)]}_{self.elements[trial]}"
        execution = self.jobs.ended(job_name(self.id), job_id)
        if execution is None:
            return None
        if execution.state == "CANCELLED":
            return "cancelled", CANCELLED
        if execution.state == "FAILED" and not (self.folder / f"{job_id}{STARTED_SUFFIX}").exists():
            lines = self.read_log(job_id).strip().splitlines()[-_LOG_LINES:]
            details = " / ".join(lines) or execution.exit_code or "no output"
            return "failed", f"its job ended before the trial began: {details}"
        return None

    def exit_cause(self, attempt: dict[str, Any]) -> tuple[str, str] | None:
        """Return the state and the cause of an attempt whose worker died; None if neither it nor SLURM knows them."""
        job_id = attempt.get("job_id")
        if self.jobs is None or job_id is None:
            return None
        if (failure := Failure.read(self.folder / f"{job_id}{FAILURE_SUFFIX}")) is not None:
            return failure.state, failure.cause
        from dropbench.jobs.slurm.execution import exit_cause

        execution = self.jobs.ended(job_name(self.id), job_id, attempt.get("started_at"))
        return exit_cause(execution, self.read_log(job_id)) if execution else None

    def read_log(self, job_id: str) -> str:
        """Return the end of what a job's first task, and SLURM itself, wrote to standard error."""
        return read_tail(self.folder / f"{job_id}_0_log.err", 65536).decode(errors="replace")


def inspect_submissions(
    rows: Sequence[SubmissionRow], settings: Settings, *, with_history: bool = False
) -> dict[str, Submission]:
    """Look up submissions by id, with one query to SLURM for all; `with_history`: also how their jobs ended."""
    local, arrays = ([row for row in rows if (row.executor == "slurm") is on_slurm] for on_slurm in (False, True))
    submissions = {row.id: Submission(row.id, slots.is_alive(settings.runs, row.id)) for row in local}
    if not arrays:
        return submissions
    from dropbench.jobs.slurm.job_states import query_jobs

    jobs = query_jobs([(job_name(row.id), row.job_id) for row in arrays], with_history=with_history)
    for row in arrays:
        alive, folder = jobs.alive(job_name(row.id)), Path(row.folder)
        elements = [file.stem.partition("_")[2] for file in folder.glob(f"*{STARTED_SUFFIX}")]
        started = frozenset(int(element) for element in elements if element.isdigit())
        submissions[row.id] = Submission(row.id, alive, folder, jobs, read_elements(folder), started)
    return submissions


def job_name(submission: str) -> str:
    """Return the name of a submission's jobs on a cluster, by which they are found whatever sbatch answered."""
    return f"dropbench-{submission}"


def revoke(folder: Path) -> None:
    """Revoke a submission: a job of it that starts nevertheless exits at once."""
    (folder / STOP_FILE).touch()


def write_elements(folder: Path, packs: Sequence[Sequence[str]]) -> None:
    """Store which trials each element of an array runs."""
    write_json(folder / ELEMENTS_FILE, {id: element for element, trial_ids in enumerate(packs) for id in trial_ids})


def read_elements(folder: Path) -> dict[str, int]:
    """Return the array element by trial id; empty if the file is missing or damaged."""
    try:
        elements = read_json(folder / ELEMENTS_FILE)
        return {str(id): int(element) for id, element in elements.items()}
    except (FileNotFoundError, InputError, ValueError, AttributeError, TypeError, OverflowError):
        return {}
