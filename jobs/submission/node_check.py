"""The job of `dropbench doctor --profile`: what the processes of a job find on the nodes of a profile."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import typer

from dropbench.harness.errors import InputError
from dropbench.harness.files import read_json, read_tail, write_json
from dropbench.harness.settings import Settings
from dropbench.harness.trials.plugins import keep_plugins
from dropbench.harness.trials.trial import Trial
from dropbench.harness.variables import LAUNCHER, without_variables
from dropbench.jobs.slurm import client
from dropbench.jobs.slurm.execution import NEVER_STARTS
from dropbench.jobs.slurm.profile import Profile
from dropbench.jobs.worker import process_group, slots

MINUTES = 15
"""Time limit of the job."""
LOADING_S, WARM_UP_BATCHES = 10.0, 2
"""Seconds for which batches are loaded, and batches before, in which the loader's processes start."""
REDUCED_NUMBERS, REDUCTIONS = 2**22, 5
"""Numbers of a reduction over all processes, and their number after the first, which sets up the connections."""
POLL_INTERVAL_S = 2.0

Report = dict[str, Any]
"""Findings of a process, by check; a text instead of a value is the error."""


@dataclass(eq=False)
class NodeCheck:
    """The callable of the job. It writes a file ``<rank>.json`` after each check, so that one that hangs is seen.

    Attributes:
        folder: the folder of the job's files.
        payload: `Settings.to_payload`.
        trials: a trial of each kind, as JSON.
    """

    folder: str
    payload: dict[str, Any]
    trials: list[str]

    def __call__(self) -> None:
        from submitit import JobEnvironment

        settings = Settings.from_payload(self.payload)
        with without_variables(*LAUNCHER):
            group = process_group.ProcessGroup.join(Path(self.folder), JobEnvironment().job_id, settings)
            report: Report = {"node": process_group.node_name(), "gpus": len(process_group.visible_devices())}
            checks: dict[str, Callable[[], Any]] = {
                "devices": _devices,
                "runs": lambda: os.access(settings.runs, os.W_OK),
                "communication": lambda: _communicate(group),
                **{f"trial {number}": self._trial(number, settings, group) for number in range(len(self.trials))},
            }
            for name, check in checks.items():
                report[name] = "did not end"
                write_json(Path(self.folder) / f"{group.rank}.json", report)
                try:
                    report[name] = check()
                except Exception as error:  # any library may raise anything
                    text = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {error}"
                    report[name] = " ".join(text.split())[:300]
            write_json(Path(self.folder) / f"{group.rank}.json", report)

    def _trial(self, number: int, settings: Settings, group: process_group.ProcessGroup) -> Callable[[], Any]:
        return lambda: _load(Trial.from_json(self.trials[number]), settings, group)


def _devices() -> list[str]:
    import torch

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]


def _communicate(group: process_group.ProcessGroup) -> dict[str, Any] | None:
    """Reduce numbers over all processes; return the backend and the GB per second, None for a single process."""
    if group.size == 1:
        return None
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=group.cpu)
    if accelerator.num_processes != group.size:
        raise InputError(f"{accelerator.num_processes} of {group.size} processes communicate")
    numbers = torch.ones(REDUCED_NUMBERS, device=accelerator.device)
    begin = 0.0
    for number in range(REDUCTIONS + 1):
        begin = begin if number > 1 else time.perf_counter()
        total = float(accelerator.reduce(numbers)[0])
        if total != group.size:
            raise InputError(f"a sum over {group.size} processes is {total:g}")
    seconds = (time.perf_counter() - begin) / REDUCTIONS
    return {"backend": torch.distributed.get_backend(), "gb_per_second": 4e-9 * REDUCED_NUMBERS / seconds}


def _load(trial: Trial, settings: Settings, group: process_group.ProcessGroup) -> dict[str, float]:
    """Read the data of a trial, build its model with its weights, and load batches of training.

    Return the batches per second of this process, and the bytes of the weights and of a checkpoint.
    """
    import torch

    from dropbench.harness.training.data_loading import StepBatches, prefetch
    from dropbench.harness.trials.plugins import plugins_of
    from dropbench.harness.trials.task import TASKS

    if settings.threads:
        torch.set_num_threads(settings.threads)
    device = torch.device("cpu" if not settings.uses_cuda() else f"cuda:{os.environ.get('LOCAL_RANK', 0)}")
    with plugins_of(trial, settings.runs):
        task = TASKS.get(trial.task)(trial, settings)
        task.setup()
        model = task.build_model()
        weights = sum(tensor.nbytes for tensor in model.state_dict().values())
        trained = sum(parameter.nbytes for parameter in model.parameters() if parameter.requires_grad)
        states = 1 if task.recipe.optimizer == "sgd" else 2
        del model
        batches = prefetch(StepBatches(task, 0, group.rank, group.size), range(10**6), settings, device)
        with contextlib.closing(batches):  # type: ignore[type-var]
            for _ in range(WARM_UP_BATCHES):
                next(batches)
            begin, count = time.perf_counter(), 0
            while (seconds := time.perf_counter() - begin) < LOADING_S:
                next(batches)
                count += 1
    copies = 2 if task.recipe.ema else 1
    return {
        "batches_per_second": count / seconds,
        "weights_bytes": weights,
        "checkpoint_bytes": copies * weights + states * trained,
    }


def run_node_check(settings: Settings, profile: Profile, trials: Sequence[Trial]) -> list[Report]:
    """Run the job and wait for its end; return the reports of its processes, by rank.

    Raises:
        InputError: the cluster refuses the job or never starts it, or it ended without the report of some process.
    """
    from dropbench.jobs.slurm.array_executor import ArrayExecutor
    from dropbench.jobs.slurm.job_states import query_jobs

    name = f"dropbench-doctor-{uuid.uuid4().hex[:8]}"
    folder = slots.jobs_folder(settings.runs).absolute() / name
    folder.mkdir(parents=True)
    keep_plugins(trials, settings.runs)
    profile = profile.model_copy(update={"time": min(profile.time, MINUTES), "trials_at_a_time": 1})
    settings = replace(settings.on_node(profile.environment), threads=profile.cpus)
    check = NodeCheck(str(folder), settings.to_payload(), [trial.to_json() for trial in trials])
    executor = ArrayExecutor(folder, profile, name, throttle=None, after=None)
    try:
        (job,) = executor.submit_array([check])
    except client.SlurmCommandError as error:
        raise InputError(f"sbatch refuses: {error}") from None
    try:
        typer.echo(f"job {job.job_id}: at most {profile.time} minutes once it starts", err=True)
        noted: set[str] = set()
        while (states := query_jobs([(name, None)])).alive(name):
            for execution in states.current.get(name, {}).values():
                if execution.alive and re.search(NEVER_STARTS, execution.reason or ""):
                    raise InputError(f"SLURM never starts the job ({execution.reason}): change the profile")
            for note in set(states.notes()) - noted:
                typer.echo(note, err=True)
                noted.add(note)
            client.sleep(POLL_INTERVAL_S)
    except BaseException:
        with contextlib.suppress(client.SlurmCommandError):
            client.cancel(name)
        raise
    files = [folder / f"{rank}.json" for rank in range(profile.nodes * profile.tasks)]
    if missing := [file for file in files if not file.exists()]:
        log = read_tail(folder / f"{job.job_id}_0_log.err", 4096).decode(errors="replace").strip().splitlines()
        lines = " / ".join(log[-3:]) or f"no output: see {folder}"
        raise InputError(f"{len(missing)} of {len(files)} processes of the job did not report: {lines}")
    reports = [dict(read_json(file)) for file in files]
    shutil.rmtree(folder, ignore_errors=True)
    return reports
