"""The states of many SLURM jobs, read with as few calls as possible.

squeue knows which jobs are alive. sacct knows why a job ended, but may lag behind or be missing. Only a trial's run
directory knows whether the trial is done.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from dropbench.db.store.rows import chunks
from dropbench.harness.clock import utc_now_iso
from dropbench.jobs.slurm import client
from dropbench.jobs.slurm.execution import Execution, explain_waits, last_started_by

MAX_IDS_PER_CALL = 200
"""Names or job ids per call, as the length of a command line is limited."""

SACCT_LAG_S = 3.0
"""Seconds that sacct may lag behind squeue."""

_POLL_INTERVAL_S = 0.5


@dataclass
class JobStates:
    """States of some jobs, as SLURM reports them.

    Attributes:
        answered: whether squeue answered; if not, every job may be alive.
        queried_at: when squeue was called, ISO 8601 in UTC, to the second.
        current: squeue's executions by job name and array element: live jobs, and jobs that ended minutes ago.
        job_ids: job ids by name.
        history: sacct's executions by job id (``12_3``), in order; empty if sacct does not answer.
        unanswered: why sacct did not answer; None if it did, or was not asked.
        lag_budget_s: seconds that may still be spent waiting for sacct to catch up with squeue.
    """

    answered: bool = True
    queried_at: str = ""
    current: dict[str, dict[int, Execution]] = field(default_factory=dict)
    job_ids: dict[str, str] = field(default_factory=dict)
    history: dict[str, list[Execution]] = field(default_factory=dict)
    unanswered: str | None = None
    lag_budget_s: float = SACCT_LAG_S

    def alive(self, name: str, element: int | None = None) -> bool:
        """Return whether an element of an array (default: any) runs or will run; True in doubt.

        A job that is reported dead is submitted again.
        """
        if not self.answered:
            return True
        elements = self.current.get(name, {})
        return any(run.alive for index, run in elements.items() if element is None or index == element)

    def notes(self) -> list[str]:
        """Return lines on jobs that wait for more than their turn, and on a missing sacct."""
        lines = explain_waits(run for elements in self.current.values() for run in elements.values())
        if self.unanswered is not None:
            lines.append(f"{self.unanswered}: a worker that SLURM kills is shown as lost, whatever the cause was.")
        return lines

    def ended(self, name: str, job_id: str, started_at: str | None = None) -> Execution | None:
        """Return the execution with which a job ended, or None if it is not known.

        The result is the last execution that began by `started_at` (ISO 8601, UTC), or the last of all. `job_id`
        includes the element: ``12_3``. If sacct lags behind, wait for it, within one budget for all jobs.
        """
        array_id, _, element = job_id.partition("_")
        last = last_started_by(self.history.get(job_id, []), started_at)
        with contextlib.suppress(client.SlurmCommandError):
            while last is not None and last.alive and self.lag_budget_s > 0:
                self.lag_budget_s -= _POLL_INTERVAL_S
                client.sleep(_POLL_INTERVAL_S)
                self.history |= client.list_executions([array_id])
                last = last_started_by(self.history.get(job_id, []), started_at)
        if last is None or last.alive:
            current = self.current.get(name, {}).get(int(element or 0), Execution("PENDING"))
            last = last_started_by([current], started_at)
        return last if last is not None and not last.alive else None


def query_jobs(jobs: Sequence[tuple[str, str | None]], *, with_history: bool = False) -> JobStates:
    """Ask SLURM about jobs by name and, if known, id; `with_history`: also ask sacct how they ended."""
    states = JobStates(queried_at=utc_now_iso()[:19])
    try:
        for names in chunks((name for name, _ in jobs), MAX_IDS_PER_CALL):
            for name, job_id, element, execution in client.list_jobs(names):
                states.job_ids[name] = job_id
                states.current.setdefault(name, {})[element] = execution
    except client.SlurmCommandError:
        states.answered = False
    states.job_ids |= {name: job_id for name, job_id in jobs if job_id}
    try:
        for job_ids in chunks(states.job_ids.values(), MAX_IDS_PER_CALL) if with_history else ():
            states.history |= client.list_executions(job_ids)
    except client.SlurmCommandError as error:
        states.unanswered = str(error)
    return states
