"""A SLURM cluster in virtual time that runs the real workers, step by step."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from submitit.core.utils import DelayedSubmission

from dropbench.harness.runs import lease
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.jobs.slurm import client, job_states
from dropbench.jobs.worker import attempt, process_group, worker
from dropbench.jobs.worker.process_group import ProcessGroup
from dropbench.jobs.worker.stop_requests import StopRequests
from tests.jobs.slurm.slurm_programs import Element, Run, SlurmPrograms
from tests.jobs.slurm.worker_thread import WorkerThread, count_steps

_REQUEUE_DELAY_S = 5.0
"""Seconds until a requeued job may start."""


class SimulatedSlurm(SlurmPrograms):
    """A cluster of some nodes, each of which runs one job at a time.

    Attributes:
        orphans: workers that continue although SLURM has given up their node.
        results: how often a result was written, by trial.
        errors: exceptions that ended workers.
        separate_locks: the nodes' locks do not reach each other, so that only leases protect a run directory.
    """

    def __init__(self, nodes: int = 3) -> None:
        super().__init__(nodes)
        self.orphans: list[WorkerThread] = []
        self.results: dict[str, int] = {}
        self.errors: list[BaseException] = []
        self.separate_locks = False

    def tick(self, seconds: float = 1.0) -> None:
        """Advance the clock: jobs start on free nodes, and the jobs of ended workers end."""
        self.now += timedelta(seconds=seconds)
        self._end_jobs_of_ended_workers()
        for process in [element.worker for element in self.running()] + self.orphans:
            if process is not None and process.lease is not None and process.renews_lease and not process.dead:
                self.renew(process.lease)
        while self.accepted:
            self._sbatch(str(self.accepted.pop()))
        busy = {element.runs[-1].node for element in self.running()}
        free = [node for node in self.nodes if node not in busy]
        parallel = Counter(element.array for element in self.running())
        for element in self.elements:
            self.held = parallel.total() == self.max_running
            if self.held:
                break
            if element.state == "PENDING" and element.eligible_at <= self.now:
                for node in [node for node in free if node not in element.excluded_nodes][:1]:
                    if parallel[element.array] < element.throttle:
                        free.remove(node)
                        parallel[element.array] += 1
                        self._start(element, node)

    def running(self) -> list[Element]:
        """Return the running elements."""
        return [element for element in self.elements if element.state == "RUNNING"]

    def step(self, element: Element, steps: int = 1) -> None:
        """Let a job's worker run some steps."""
        for _ in range(steps):
            if element.worker is not None:
                element.worker.resume()
        self._end_jobs_of_ended_workers()

    def end(self, element: Element, state: str, *, requeue: bool) -> None:
        """End a job from outside: its worker is killed."""
        if element.worker is not None:
            element.worker.kill()
        self._close(element, state)
        if requeue:
            element.state, element.eligible_at = "PENDING", self.now + timedelta(seconds=_REQUEUE_DELAY_S)

    def renew(self, held: lease.Lease) -> None:
        """Renew a lease."""
        with contextlib.suppress(FileNotFoundError):  # superseded
            os.utime(held.file, (self.now.timestamp(), self.now.timestamp()))

    def lose_slurmd(self, element: Element, *, cut_off: bool) -> None:
        """Kill only slurmd: the worker continues, and the job is requeued.

        Args:
            element: its job.
            cut_off: the worker pauses, and does not renew its lease until it is resumed.
        """
        if element.worker is not None:
            element.worker.renews_lease = not cut_off
            self.orphans.append(element.worker)
            element.worker = None
        self.end(element, "NODE_FAIL", requeue=True)

    def preempt(self, element: Element, number: int) -> None:
        """Send a signal, leave a grace period to stop in, and requeue the job."""
        process = element.worker
        if process is None:
            return
        process.send(number)
        for _ in range(3):
            process.resume()
        self.end(element, "PREEMPTED", requeue=True)

    def _end_jobs_of_ended_workers(self) -> None:
        for element in self.running():
            if element.worker is not None and element.worker.ended:
                error = element.worker.error
                if error is not None:
                    self.errors.append(error)
                self._close(element, "FAILED" if error is not None or element.worker.dead else "COMPLETED")

    def _close(self, element: Element, state: str) -> None:
        element.state, element.worker = state, None
        if element.runs and element.runs[-1].ended is None:
            element.runs[-1].state, element.runs[-1].ended = state, self.now

    def _start(self, element: Element, node: str) -> None:
        element.state = "RUNNING"
        element.runs.append(Run("RUNNING", node, self.now))
        pickle = element.folder / f"{element.id}_submitted.pkl"
        first = element.folder / f"{element.index}.pkl"
        if first.exists():
            first.rename(pickle)
        work = DelayedSubmission.load(pickle).function
        element.worker = WorkerThread(element.id, node, work)
        element.worker.resume()


@contextlib.contextmanager
def simulated(bin: Path, nodes: int = 3) -> Iterator[SimulatedSlurm]:
    """Replace the real SLURM, its clock and training by a simulation; `bin` is an empty folder for its programs."""
    slurm = SimulatedSlurm(nodes)
    for program in ("srun", "sbatch", "squeue"):
        (bin / program).touch(mode=0o755)
    write_result, finish = RunDirectory.write_result, attempt.Attempt.finish

    def write_result_and_pause(directory: RunDirectory, result: dict[str, Any]) -> None:
        write_result(directory, result)
        slurm.results[directory.id] = slurm.results.get(directory.id, 0) + 1
        if (process := WorkerThread.current()) is not None:
            process.pause()

    def finish_unless_dead(unfinished: attempt.Attempt, *rest: Any, **rate: Any) -> None:
        process = WorkerThread.current()
        if process is None or not process.dead:
            finish(unfinished, *rest, **rate)

    def enter_stop_requests(stop_requests: StopRequests) -> StopRequests:
        if (process := WorkerThread.current()) is not None:
            process.stop_requests = stop_requests
        return stop_requests

    def utc_now_iso() -> str:
        return slurm.now.isoformat(timespec="milliseconds")

    def machine() -> str:
        process = WorkerThread.current()
        return process.node if slurm.separate_locks and process is not None else "login"

    def enter_lease(held: lease.Lease) -> lease.Lease:
        if (process := WorkerThread.current()) is not None:
            process.lease = held
        slurm.renew(held)
        return held

    def exit_lease(held: lease.Lease, *rest: Any) -> None:
        process = WorkerThread.current()
        if process is not None:
            if process.dead:
                return
            process.lease = None
        with contextlib.suppress(FileNotFoundError):
            os.utime(held.file, (0, 0))

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{bin}:{os.environ['PATH']}")
        patch.setattr(client, "run_command", slurm.run_command)
        patch.setattr(client, "sleep", slurm.tick)
        patch.setattr(job_states, "utc_now_iso", utc_now_iso)
        patch.setattr(worker, "_train", count_steps)
        patch.setattr(worker, "sleep", lambda seconds: WorkerThread.require_current().pause())
        patch.setattr(ProcessGroup, "join", lambda folder, job, settings: ProcessGroup())
        patch.setattr(lease, "now", lambda folder: slurm.now.timestamp())
        patch.setattr(lease, "machine", machine)
        patch.setattr(lease.Lease, "__enter__", enter_lease)
        patch.setattr(lease.Lease, "__exit__", exit_lease)
        patch.setattr(RunDirectory, "lock_file", property(lambda self: f"{self.path}/lock-{machine()}"))
        patch.setattr(worker, "_discard_training_states", lambda directory, result: None)
        patch.setattr(worker, "_redirect_output", lambda directory, number: contextlib.nullcontext())
        patch.setattr(worker, "_job_id", lambda: WorkerThread.require_current().job_id)
        patch.setattr(process_group, "node_name", lambda: WorkerThread.require_current().node)
        patch.setattr(worker, "utc_now_iso", utc_now_iso)
        patch.setattr(attempt, "utc_now_iso", utc_now_iso)
        patch.setattr(attempt.Attempt, "finish", finish_unless_dead)
        patch.setattr(RunDirectory, "write_result", write_result_and_pause)
        patch.setattr(StopRequests, "__enter__", enter_stop_requests)
        patch.setattr(StopRequests, "__exit__", lambda *rest: None)
        patch.setattr(StopRequests, "POLL_INTERVAL_S", 0.0)
        try:
            yield slurm
        finally:
            for process in [element.worker for element in slurm.elements] + slurm.orphans:
                if process is not None:
                    process.kill()
