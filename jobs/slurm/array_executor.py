"""The executor `slurm`: arrays of jobs."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import submitit
from submitit.core.utils import DelayedSubmission

from dropbench.harness.errors import InputError
from dropbench.harness.files import write_atomic
from dropbench.jobs.slurm import client
from dropbench.jobs.slurm.profile import Profile

_MAX_TIMEOUTS = 1_000_000
"""Times that a job may reach its time limit; Submitit requires a limit, and each job resumes from its checkpoint."""

_IGNORING_SIGNALS = """sh -c 'trap "" TERM USR2; exec "$@"' sh"""
"""Runs a command that ignores the signals of a preemption until it handles them. A Python that starts would be ended by
them: the job would have failed, and SLURM would not requeue it."""


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
        python = f"{_IGNORING_SIGNALS} {profile.python or shlex.quote(sys.executable)}"
        super().__init__(folder, max_num_timeout=_MAX_TIMEOUTS, python=python)
        self.throttle = throttle
        quoted = shlex.quote(str(self.folder))
        pickle, renamed = "$SLURM_ARRAY_TASK_ID.pkl", "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}_submitted.pkl"
        # A requeued job has renamed it already.
        rename = f"[ ! -e {quoted}/{pickle} ] || mv {quoted}/{pickle} {quoted}/{renamed}"
        # The array waits for the end of the previous one, but not forever if that becomes impossible.
        dependency = {"kill-on-invalid-dep": "yes", **({"dependency": f"afterany:{after}"} if after else {})}
        parameters = profile.to_submitit()
        self.update_parameters(
            **parameters
            | {
                "setup": [*parameters.get("setup", []), rename],
                "job_name": name,
                "exclude": exclude or None,
                "additional_parameters": {**profile.sbatch, "requeue": True, **dependency},
            }
        )

    def script(self, jobs: int) -> str:
        """Return the sbatch script of an array of this many jobs."""
        self.parameters |= {"map_count": jobs, "array_parallelism": self.throttle or jobs}
        return str(self._make_submission_file_text(self._submitit_command_str, ""))

    def _internal_process_submissions(self, delayed_submissions: list[DelayedSubmission]) -> list[submitit.Job[Any]]:
        for element, delayed in enumerate(delayed_submissions):
            delayed.set_timeout(self.parameters["time"], self.max_num_timeout)
            delayed.dump(pickle := self.folder / f"{element}.pkl")
            pickle.chmod(0o600)
        script = self.folder / "submission.sh"
        write_atomic(script, self.script(len(delayed_submissions)).encode(), private=True)
        job_id = client.submit(str(script))
        return [
            submitit.SlurmJob(folder=self.folder, job_id=f"{job_id}_{element}", tasks=[0])
            for element in range(len(delayed_submissions))
        ]
