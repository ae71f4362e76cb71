"""Executors of workers.

`local`: processes on this machine, limited by `dropbench.jobs.worker.slots`. `debug`: this process. `slurm`: a job
array.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pdb
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import DelayedSubmission

from dropbench.harness.errors import InputError
from dropbench.harness.files import write_atomic, write_json
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.slurm import client
from dropbench.jobs.slurm.profile import Profile
from dropbench.jobs.worker.slots import WorkerSlot
from dropbench.jobs.worker.worker import Worker

_MAX_TIMEOUTS = 1_000_000
"""Times that a job may reach its time limit; Submitit requires a limit, and each job resumes from its checkpoint."""

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")

_children: list[subprocess.Popen[bytes]] = []
"""The processes started here from which workers are forked; those that have ended are reaped when the next starts."""


class LocalWorkers:
    """Starts workers on this machine, in sessions of their own: they outlive the terminal and this process.

    They are forks of a process that has imported their libraries (`dropbench.jobs.worker.fork_server`), which ends with
    the context. With GPUs it imports none, as some libraries initialize GPUs, which a fork could not use.

    Args:
        runs: the folder of the run directories.
        threads: CPU threads per worker; 0: the libraries' default.
        devices: the GPUs; workers are distributed over them.
    """

    def __init__(self, runs: Path, threads: int, devices: Sequence[str] = ()) -> None:
        self.runs, self.threads, self.devices = runs, threads, devices
        self.connection: socket.socket | None = None

    def __enter__(self) -> LocalWorkers:
        return self

    def __exit__(self, *error: object) -> None:
        if self.connection is not None:
            self.connection.close()

    def prepare(self, trials: Iterable[Trial]) -> None:
        """Begin to import the libraries of some trials, without waiting for the end of it."""
        pairs = () if self.devices else sorted({f"{trial.task}:{trial.model}" for trial in trials})
        self.connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "dropbench.jobs.worker.fork_server", str(theirs.fileno())]
            process = subprocess.Popen(
                [*command, str(self.runs.absolute()), *pairs],
                env={**{name: str(self.threads) for name in _THREAD_VARIABLES if self.threads}, **os.environ},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # otherwise Ctrl-C would end it
                pass_fds=(theirs.fileno(),),
            )
        _children[:] = [child for child in _children if child.poll() is None] + [process]

    def start(self, worker: Worker, slot: WorkerSlot, trials: Iterable[Trial]) -> None:
        """Start a worker, which inherits the slot, to run some trials first."""
        device = self.devices[slot.number % len(self.devices)] if self.devices else ""
        file = Path(worker.folder) / f"{slot.number}.json"
        write_json(file, vars(worker))
        message = json.dumps({"file": str(file), "environment": {"CUDA_VISIBLE_DEVICES": device}}).encode()
        if self.connection is not None:
            with contextlib.suppress(ConnectionError):  # the process was killed
                socket.send_fds(self.connection, [message], [slot.fd])
                return
            self.connection.close()
        self.prepare(trials)
        assert self.connection is not None
        socket.send_fds(self.connection, [message], [slot.fd])


@atexit.register
def _disown() -> None:
    """Mark running processes as reaped: they may outlive this one, and Python would warn about them."""
    for child in _children:
        if child.poll() is None:
            child.returncode = 0


def run_debug(worker: Worker) -> None:
    """Run a worker in this process; at a terminal, an exception opens the debugger where it was raised."""
    try:
        worker()
    except Exception as error:
        # The trial's error: its attempt has recorded it.
        if not sys.stdin.isatty():
            raise
        print(error)
        pdb.post_mortem(error.__traceback__)


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
