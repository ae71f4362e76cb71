"""From a worker to a job: Submitit's executors, and how to tell whether a job still lives.

`local`: processes on this machine, limited by `jobs.places`. `debug`: in this process. `slurm`: a job array.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import submitit

from harness.errors import InputError
from jobs import places
from jobs.worker import Worker

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission

    from jobs.places import Place
    from jobs.profile import Profile

NAMES = ("local", "debug", "slurm")

_FOREVER = 10 * 365 * 24 * 60
"""Minutes. A local job has no time limit; Submitit wants one."""

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
    job = submitit.DebugExecutor(Path(worker.folder)).submit(worker)
    try:
        job.results()
    except Exception:
        # The trial's own: its attempt has noted it, and the debugger has been left.
        if not sys.stdin.isatty():
            raise


def start_slurm(workers: Sequence[Worker], profile: Profile, name: str) -> str:
    """Submit workers as one job array; returns its job id.

    Raises:
        InputError: there is no SLURM here, or it refuses; the message is its own.
    """
    executor = slurm_executor(Path(workers[0].folder), profile, name)
    try:
        with contextlib.redirect_stderr(io.StringIO()):  # Submitit prints there what it raises as well
            jobs = executor.submit_array(workers)
    except submitit.core.utils.FailedJobError as error:
        raise InputError(f"sbatch refuses: {' '.join(str(error).split())}") from None
    return jobs[0].job_id.partition("_")[0]


def slurm_script(folder: Path, profile: Profile, name: str) -> str:
    """The sbatch script of a job."""
    inner: Any = slurm_executor(folder, profile, name)._executor
    return str(inner._make_submission_file_text(inner._submitit_command_str, "dry-run"))


def slurm_executor(folder: Path, profile: Profile, name: str) -> submitit.AutoExecutor:
    """Submitit's executor for a profile; `name` is the job's, by which it is found again."""
    for program in ("srun", "sbatch", "squeue"):
        if shutil.which(program) is None:
            raise InputError(f"executor slurm: no {program} here: expected a machine of a SLURM cluster")
    executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=1000)
    executor.update_parameters(**profile.parameters(), slurm_job_name=name)
    return executor


def job_name(submission: str) -> str:
    """The name of a submission's jobs on a cluster."""
    return f"dropbench-{submission}"


def alive(executor: str, runs: Path, submission: str) -> bool:
    """Whether a submission's job is running, or will. When in doubt, it is: what is declared dead runs again."""
    if executor != "slurm":
        return places.alive(runs, submission)
    command = ["squeue", "--noheader", "--name", job_name(submission), "--format", "%T"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return True
    return bool(found.stdout.strip())


def cancel(executor: str, submission: str) -> None:
    """Take a submission's jobs out of the queue; local workers find out by themselves."""
    if executor == "slurm":
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["scancel", "--name", job_name(submission)], capture_output=True, timeout=60, check=False)


def visible_devices() -> list[str]:
    """The GPUs that this process may use, as `CUDA_VISIBLE_DEVICES` names them; found without loading torch."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        names = [name.strip() for name in given.split(",")]
        return [name for name in names if name and not name.startswith("-")]
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]
