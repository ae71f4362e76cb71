"""Submitit's executors, adapted to workers.

`local`: processes on this machine, limited by `jobs.worker.slots`. `debug`: this process. `slurm`: a job array.
"""

from __future__ import annotations

import atexit
import logging
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import DelayedSubmission

from harness.errors import InputError
from harness.files import write_atomic
from jobs.slurm import client
from jobs.slurm.profile import Profile
from jobs.worker.slots import WorkerSlot
from jobs.worker.worker import Worker

_NO_TIME_LIMIT_MIN = 10 * 365 * 24 * 60
"""Minutes. Local jobs have no time limit, but Submitit requires one."""

_MAX_TIMEOUTS = 1_000_000
"""Times that a job may reach its time limit; Submitit requires a limit, and each job resumes from its checkpoint."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_children: list[subprocess.Popen[bytes]] = []
"""The controllers that this process started; those that have ended are reaped when the next one starts."""


class DetachedExecutor(submitit.LocalExecutor):
    """Submitit's local executor, except that its controllers have their own session, hold a slot, and own their pickle.

    Submitit starts a controller in the terminal's process group, so that Ctrl-C would kill it without a checkpoint, and
    lets it print there. It also names the pickle after the controller's process id, so that a controller whose parent
    is killed before that waits a minute in vain. This executor's controller outlives the terminal and holds the
    worker's slot from its start. A shell names the pickle before it becomes the controller.
    """

    def __init__(self, folder: Path, slot: WorkerSlot, threads: int, devices: Sequence[str]) -> None:
        super().__init__(folder)
        self.slot, self.threads, self.devices = slot, threads, devices

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[submitit.Job[Any]]:
        (delayed,) = delayed_submissions
        delayed.set_timeout(_NO_TIME_LIMIT_MIN, self.max_num_timeout)
        pickle = self.folder / f"{self.slot.number}.pkl"
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
                pass_fds=(self.slot.fd,),
            )
        _children[:] = [child for child in _children if child.poll() is None] + [process]
        return [submitit.LocalJob(folder=self.folder, job_id=str(process.pid), process=process)]

    def _environment(self) -> dict[str, str]:
        device = self.devices[self.slot.number % len(self.devices)] if self.devices else ""
        return {
            **{name: str(self.threads) for name in _THREAD_VARIABLES if self.threads},
            **os.environ,
            "CUDA_VISIBLE_DEVICES": device,
            "SUBMITIT_EXECUTOR": "local",
            "SUBMITIT_LOCAL_COMMAND": self._submitit_command_str,
            "SUBMITIT_LOCAL_NTASKS": "1",
            "SUBMITIT_LOCAL_NODEID": "0",
            "SUBMITIT_LOCAL_JOB_NUM_NODES": "1",
            "SUBMITIT_LOCAL_TIMEOUT_S": str(_NO_TIME_LIMIT_MIN * 60),
            "SUBMITIT_LOCAL_SIGNAL_DELAY_S": "90",
            "SUBMITIT_LOCAL_WITH_SHELL": "",
            "SUBMITIT_STDERR_TO_STDOUT": "1",
        }


@atexit.register
def _disown() -> None:
    """Mark running controllers as reaped: they may outlive this process, and Python would warn about them."""
    for child in _children:
        if child.poll() is None:
            child.returncode = 0


def run_debug(worker: Worker) -> None:
    """Run a worker in this process; at a terminal, an exception opens the debugger where it was raised."""
    root = logging.getLogger()
    previous = set(root.handlers)
    added: list[logging.Handler] = []

    def run_worker() -> None:
        added.extend(set(root.handlers) - previous)
        worker()

    job = submitit.DebugExecutor(Path(worker.folder)).submit(run_worker)
    try:
        job.results()
    except Exception:
        # The trial's error: its attempt has recorded it, and the user has left the debugger.
        if not sys.stdin.isatty():
            raise
    finally:
        for handler in added:  # Submitit leaves them open
            handler.close()


class ArrayExecutor(submitit.SlurmExecutor):
    """Submitit's SLURM executor, except that it submits arrays only, whose jobs find their pickles even if we crash.

    Submitit names the pickles after the job id that sbatch returns: if it were killed before that, every job would wait
    a minute for its pickle and fail. This executor writes them first, and each job renames its own.
    """

    def __init__(
        self, folder: Path, profile: Profile, name: str, *, throttle: int | None, after: str | None, exclude: str = ""
    ) -> None:
        for program in ("srun", "sbatch", "squeue"):
            if shutil.which(program) is None:
                raise InputError(f"executor slurm: {program} not found: run this on a login node of a SLURM cluster")
        if not str(folder).isprintable():  # a line break would add a command to the script, even in quotes
            raise InputError(f"{str(folder)!a}: control character in the path: set DROPBENCH_RUNS to another folder")
        super().__init__(folder, max_num_timeout=_MAX_TIMEOUTS)
        self.throttle = throttle
        quoted = shlex.quote(str(self.folder))
        pickle, renamed = "$SLURM_ARRAY_TASK_ID.pkl", "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}_submitted.pkl"
        # A requeued job has renamed it already.
        rename = f"[ ! -e {quoted}/{pickle} ] || mv {quoted}/{pickle} {quoted}/{renamed}"
        # The array waits for the end of the previous one, but not forever if that becomes impossible.
        dependency = {"dependency": f"afterany:{after}"} if after else {}
        parameters = profile.to_submitit()
        self.update_parameters(
            **{**parameters, "setup": [*parameters.get("setup", []), rename]},
            job_name=name,
            exclude=exclude or None,
            additional_parameters={"kill-on-invalid-dep": "yes", **dependency},
        )

    def script(self, jobs: int) -> str:
        """Return the sbatch script of an array of this many jobs."""
        self.parameters |= {"map_count": jobs, "array_parallelism": self.throttle or jobs}
        return str(self._make_submission_file_text(self._submitit_command_str, ""))

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[submitit.Job[Any]]:
        for element, delayed in enumerate(delayed_submissions):
            delayed.set_timeout(self.parameters["time"], self.max_num_timeout)
            delayed.dump(self.folder / f"{element}.pkl")
        script = self.folder / "submission.sh"
        write_atomic(script, self.script(len(delayed_submissions)).encode())
        job_id = client.submit(str(script))
        return [
            submitit.SlurmJob(folder=self.folder, job_id=f"{job_id}_{element}", tasks=[0])
            for element in range(len(delayed_submissions))
        ]
