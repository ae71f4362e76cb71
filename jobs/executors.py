"""From a worker to a job: Submitit's executors, and how to tell whether a job still lives.

`local`: processes on this machine, limited by `jobs.places`. `debug`: in this process. `slurm`: a job array.
"""

from __future__ import annotations

import atexit
import logging
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import submitit

from harness.errors import InputError
from harness.files import write_atomic
from jobs import slurm
from jobs.worker import Worker

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

    from jobs.places import Place
    from jobs.profile import Profile

NAMES = ("local", "debug", "slurm")

_FOREVER = 10 * 365 * 24 * 60
"""Minutes. A local job has no time limit; Submitit wants one."""

_REQUEUES = 1_000_000
"""Times that a job may come to its time limit: Submitit wants a number, and each goes on from its checkpoint."""

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_children: list[subprocess.Popen[bytes]] = []
"""The controllers that this process started: those that ended are waited for when the next one is started."""


class DetachedExecutor(submitit.LocalExecutor):
    """Submitit's local executor, but its controllers have a session of their own, a place, and their pickle.

    Submitit starts a controller in the terminal's process group, so that Ctrl-C would kill it without a checkpoint, and
    lets it print there; and it names the pickle after the controller that runs already, so that a controller whose
    parent is killed in between waits for a minute in vain. Here it outlives the terminal, holds the worker's place from
    its first moment, and names the pickle itself: a shell does, before it becomes the controller.
    """

    def __init__(self, folder: Path, place: Place, threads: int, devices: Sequence[str]) -> None:
        super().__init__(folder)
        self.place, self.threads, self.devices = place, threads, devices

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[submitit.Job[Any]]:
        (delayed,) = delayed_submissions
        delayed.set_timeout(_FOREVER, self.max_num_timeout)
        pickle = self.folder / f"{self.place.slot}.pkl"
        delayed.dump(pickle)
        become_controller = 'mv "$0" "$1/$$_submitted.pkl" && exec "$2" -m submitit.local._local "$1"'
        with open(self.folder / "controller.log", "ab") as log:
            process = subprocess.Popen(
                ["sh", "-c", become_controller, str(pickle), str(self.folder), sys.executable],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=(self.place.handle,),
            )
        _children[:] = [child for child in _children if child.poll() is None] + [process]
        return [submitit.LocalJob(folder=self.folder, job_id=str(process.pid), process=process)]

    def _environment(self) -> dict[str, str]:
        device = self.devices[self.place.slot % len(self.devices)] if self.devices else ""
        return {
            **{name: str(self.threads) for name in _THREADS if self.threads},
            **os.environ,
            "CUDA_VISIBLE_DEVICES": device,
            "SUBMITIT_EXECUTOR": "local",
            "SUBMITIT_LOCAL_COMMAND": self._submitit_command_str,
            "SUBMITIT_LOCAL_NTASKS": "1",
            "SUBMITIT_LOCAL_NODEID": "0",
            "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
            "SUBMITIT_LOCAL_TIMEOUT_S": str(_FOREVER * 60),
            "SUBMITIT_LOCAL_SIGNAL_DELAY_S": "90",
            "SUBMITIT_LOCAL_WITH_SHELL": "",
            "SUBMITIT_STDERR_TO_STDOUT": "1",
        }


def start_local(worker: Worker, place: Place, threads: int, devices: Sequence[str]) -> str:
    """Start one worker in the background; returns its job id."""
    return str(DetachedExecutor(Path(worker.folder), place, threads, devices).submit(worker).job_id)


@atexit.register
def _disown() -> None:
    """Controllers may outlive this process; Python would warn of it."""
    for child in _children:
        if child.poll() is None:
            child.returncode = 0


def run_here(worker: Worker) -> None:
    """Run a worker in this process; at a terminal, an exception opens the debugger where it was raised."""
    root = logging.getLogger()
    before = set(root.handlers)
    logs: list[logging.Handler] = []

    def noting_logs() -> None:
        logs.extend(set(root.handlers) - before)
        worker()

    job = submitit.DebugExecutor(Path(worker.folder)).submit(noting_logs)
    try:
        job.results()
    except Exception:
        # The trial's own: its attempt has noted it, and the debugger has been left.
        if not sys.stdin.isatty():
            raise
    finally:
        for log in logs:  # Submitit leaves them open
            log.close()


class ArrayExecutor(submitit.SlurmExecutor):
    """Submitit's executor for SLURM, but always an array, whose jobs find their pickles whatever becomes of us.

    Submitit names the pickles after the job's number, when sbatch has told it: were it killed in between, every job
    would wait for its pickle for a minute, and fail. Here they are written before, and each job takes its own.
    """

    def __init__(
        self,
        folder: Path,
        profile: Profile,
        name: str,
        *,
        throttle: int | None,
        after: str | None,
        exclude: Iterable[str] = (),
    ) -> None:
        for program in ("srun", "sbatch", "squeue"):
            if shutil.which(program) is None:
                raise InputError(f"executor slurm: no {program} here: expected a machine of a SLURM cluster")
        super().__init__(folder, max_num_timeout=_REQUEUES)
        self.throttle = throttle
        place = shlex.quote(str(self.folder))
        pickle, named = "$SLURM_ARRAY_TASK_ID.pkl", "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}_submitted.pkl"
        # Requeued, it has taken it already.
        take = f"[ ! -e {place}/{pickle} ] || mv {place}/{pickle} {place}/{named}"
        # The array waits for the end of the one before it; should that be impossible one day, it does not for ever.
        more = {"dependency": f"afterany:{after}"} if after else {}
        given = profile.parameters()
        self.update_parameters(
            **{**given, "setup": [*given.get("setup", []), take]},
            job_name=name,
            exclude=",".join(sorted(exclude)) or None,
            additional_parameters={"kill-on-invalid-dep": "yes", **more},
        )

    def script(self, jobs: int) -> str:
        """The sbatch script of an array of so many jobs."""
        self.parameters |= {"map_count": jobs, "array_parallelism": self.throttle or jobs}
        return str(self._make_submission_file_text(self._submitit_command_str, ""))

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[submitit.Job[Any]]:
        for element, delayed in enumerate(delayed_submissions):
            delayed.set_timeout(self.parameters["time"], self.max_num_timeout)
            delayed.dump(self.folder / f"{element}.pkl")
        script = self.folder / "submission.sh"
        write_atomic(script, self.script(len(delayed_submissions)).encode())
        number = slurm.submit(str(script))
        return [
            submitit.SlurmJob(folder=self.folder, job_id=f"{number}_{element}", tasks=[0])
            for element in range(len(delayed_submissions))
        ]


def start_slurm(workers: Sequence[Worker], executor: ArrayExecutor) -> str:
    """Submit workers as one job array; returns its number.

    Raises:
        slurm.NoAnswerError: sbatch refuses, or does not answer; then the array may be there all the same.
    """
    return str(executor.submit_array(list(workers))[0].job_id).partition("_")[0]
