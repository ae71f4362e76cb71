"""A worker in a thread that waits at every step until the simulated cluster lets it continue.

The worker is the real one, but instead of training it counts to `STEPS`. SIGKILL is an exception that nothing handles:
whatever the code does on its way out, a dead worker must not change anything any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from dropbench.harness.errors import Interrupted
from dropbench.harness.runs import lease
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.jobs.worker.attempt import checkpoint_step
from dropbench.jobs.worker.stop_requests import PREEMPTION_SIGNAL, StopRequests
from tests.patience import PATIENCE

STEPS = 6


class Killed(BaseException):
    """SIGKILL."""


class WorkerThread:
    """A worker in a job. Between two calls of `resume` it is paused.

    Attributes:
        job_id: its job.
        node: its node.
        dead: it was killed.
        ended: it has ended, by itself or not.
        error: the exception that ended it.
        stop_requests: the worker's view of its stop requests.
        lease: the lease of its run directory.
        renews_lease: whether it renews its lease; not while it is cut off from the other machines.
    """

    local = threading.local()

    def __init__(self, job_id: str, node: str, work: Callable[[], None]) -> None:
        self.job_id, self.node, self.work = job_id, node, work
        self.lease: lease.Lease | None = None
        self.renews_lease = True
        self.dead = self.ended = False
        self.error: BaseException | None = None
        self.stop_requests: StopRequests | None = None
        self.resumed, self.paused = threading.Semaphore(0), threading.Semaphore(0)
        self.thread = threading.Thread(target=self._main, daemon=True)
        self.thread.start()

    @classmethod
    def current(cls) -> WorkerThread | None:
        """Return the worker that calls; None in the main thread."""
        worker: WorkerThread | None = getattr(cls.local, "worker", None)
        return worker

    @classmethod
    def require_current(cls) -> WorkerThread:
        worker = cls.current()
        assert worker is not None
        return worker

    def resume(self) -> None:
        """Let the worker run to its next step."""
        if not self.ended:
            self.resumed.release()
            assert self.paused.acquire(timeout=PATIENCE), f"{self.job_id} hangs"

    def kill(self) -> None:
        """Send SIGKILL: the worker ends at its current step."""
        self.dead = True
        while not self.ended:
            self.resume()

    def send(self, signal: int) -> None:
        """Send another signal, which the worker sees at its next step."""
        if self.stop_requests is not None and self.stop_requests.signal != PREEMPTION_SIGNAL:
            self.stop_requests.signal, self.stop_requests.stopped = signal, True

    def pause(self) -> None:
        """Called by the worker: wait for the next `resume`."""
        self.paused.release()
        self.resumed.acquire()
        if self.dead:
            raise Killed

    def _main(self) -> None:
        self.resumed.acquire()
        WorkerThread.local.worker = self
        try:
            if not self.dead:
                self.work()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.ended = True
        self.paused.release()


def count_steps(directory: RunDirectory, settings: Settings, stop: Callable[[], bool]) -> dict[str, Any]:
    """Count to `STEPS` instead of training, with a checkpoint at every second step."""
    worker = WorkerThread.require_current()
    step = checkpoint_step(directory)
    directory.append_event("resume", step=step)
    while step < STEPS:
        worker.pause()
        step += 1
        directory.append_event("train", step=step, steps=STEPS, loss=1.0 / step)
        if step % 2 == 0 or stop():
            (directory.path / "checkpoint").mkdir(exist_ok=True)
            (directory.path / f"checkpoint/step-{step:09d}.pt").write_bytes(b"")
        if stop():
            raise Interrupted(f"stopped at step {step}")
    worker.pause()
    return {"metrics": {"test/accuracy": float(int(directory.id, 16) % 97)}}
