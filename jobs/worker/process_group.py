"""The processes of one job, which train one trial together: rank 0 leads, the others follow; and their devices."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from dropbench.harness.errors import InputError, count_of
from dropbench.harness.settings import Settings
from dropbench.jobs.worker.failure import Failure

JOIN_TIMEOUT_S = 600.0
"""Seconds to wait for rank 0: the nodes of a job do not start at the same time."""

FAILURE_SUFFIX = ".failure.json"
"""A file ``<job id>.failure.json`` in a submission's folder: the error of a process that is not the first."""

TORCHRUN_TIMEOUT_S = 60.0
"""Seconds to wait for torchrun, which ends all processes when one has ended."""

_POLL_INTERVAL_S = 1.0


@dataclass(frozen=True)
class ProcessGroup:
    """This process within its job. All processes make the same calls in the same order.

    Attributes:
        rank: this process's number, from 0.
        size: number of processes.
        cpu: whether they train on the CPU.
        failure_file: the file by which the others report an error to rank 0; None if there are no others.
    """

    rank: int = 0
    size: int = 1
    cpu: bool = False
    failure_file: Path | None = None

    @classmethod
    def join(cls, folder: Path, job: str, settings: Settings) -> ProcessGroup:
        """Join the other processes of this job, if there are any.

        Rank 0 writes its address to a file in `folder`, which every process can read, so that no node names or ports
        need to be agreed on in advance. No other live job has the id `job`.

        Raises:
            TimeoutError: rank 0 did not start.
        """
        from submitit import JobEnvironment

        job_environment = JobEnvironment()
        if job_environment.num_tasks == 1:
            return cls()
        start = os.environ.get("SLURM_RESTART_COUNT", "0")
        address, failure_file = folder / f"{job}.{start}.address", folder / f"{job}{FAILURE_SUFFIX}"
        if job_environment.global_rank == 0:
            failure_file.unlink(missing_ok=True)  # of an earlier start
            with socket.socket() as free:
                free.bind(("", 0))
                draft = address.with_suffix(".draft")
                draft.write_text(f"{socket.gethostname()} {free.getsockname()[1]}", encoding="utf-8")
            draft.rename(address)
        deadline = time.monotonic() + JOIN_TIMEOUT_S
        while not address.exists():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{address}: rank 0 of job {job} did not start within {JOIN_TIMEOUT_S:.0f} s")
            time.sleep(_POLL_INTERVAL_S)
        host, port = address.read_text(encoding="utf-8").split()
        # accelerate reads these.
        os.environ |= {
            "MASTER_ADDR": host,
            "MASTER_PORT": port,
            "RANK": str(job_environment.global_rank),
            "LOCAL_RANK": str(job_environment.local_rank),
            "WORLD_SIZE": str(job_environment.num_tasks),
            "LOCAL_WORLD_SIZE": str(job_environment.num_tasks // job_environment.num_nodes),
        }
        if settings.threads:  # otherwise accelerate divides the node's cores among the processes, and warns
            os.environ["OMP_NUM_THREADS"] = str(settings.threads)
        import torch

        cpu = settings.device == "cpu" or not torch.cuda.is_available()  # each trial fails if it requires a GPU
        return cls(job_environment.global_rank, job_environment.num_tasks, cpu, failure_file)

    def report(self, error: BaseException) -> None:
        """Report the error of a follower to rank 0, unless it only says that another process has died."""
        failure = Failure.of(error)
        if self.failure_file is not None and failure.state != "lost":
            with contextlib.suppress(OSError):  # such as a full disk
                failure.write(self.failure_file)

    def failure(self, error: BaseException) -> Failure:
        """Return what ended rank 0 with an error: the error of a follower, if that broke the connection."""
        failure = Failure.of(error)
        reported = Failure.read(self.failure_file) if self.failure_file and failure.state == "lost" else None
        return reported or failure

    @classmethod
    def on_this_machine(cls, rank: int, size: int, port: int, folder: Path, settings: Settings) -> ProcessGroup:
        """Return one of the processes that a worker has started; its store listens on a port of 127.0.0.1."""
        failure_file = folder / f"{port}{FAILURE_SUFFIX}"
        if rank == 0:
            failure_file.unlink(missing_ok=True)  # of an earlier worker
        os.environ |= {
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # the worker has the store
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
        }
        if "lo" in {name for _, name in socket.if_nameindex()}:
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        return cls(rank, size, not visible_devices(settings.device), failure_file)

    def receive(self) -> Iterator[tuple[str, int]]:
        """Yield what rank 0 broadcasts, until it shuts down."""
        while (message := self.broadcast(None)) is not None:
            yield message

    def broadcast(self, message: tuple[str, int] | None) -> tuple[str, int] | None:
        """Send the followers the next run directory and its number of pieces, or None to shut down.

        Return the message of rank 0, which a follower receives by the same call.
        """
        if self.size == 1:
            return message
        from accelerate.state import PartialState
        from accelerate.utils import broadcast_object_list

        state = PartialState(cpu=self.cpu)
        assert state.num_processes == self.size, "accelerate sees other processes than the job has"
        messages = [message]
        broadcast_object_list(messages)
        return messages[0]


def require_one_process() -> None:
    """Raise InputError in one process if torchrun has started several; the others wait to be ended by torchrun."""
    count = os.environ.get("WORLD_SIZE", "1")
    if "TORCHELASTIC_RUN_ID" in os.environ and count != "1":
        if os.environ.get("RANK") != "0":
            time.sleep(TORCHRUN_TIMEOUT_S)
            sys.exit(2)
        raise InputError(f"torchrun starts this command {count} times: start it once, with `--gpus-per-trial {count}`")


def check_gpus_per_trial(processes: int, gpus: int, executor: str, device: str) -> None:
    """Raise InputError if `processes` cannot train a trial together: by this executor, or on this number of GPUs."""
    option = f"--gpus-per-trial {processes}"
    if processes > 1 and executor == "debug":
        raise InputError(f"{option}: not with --executor debug, which trains in this process")
    if processes > 1 and executor == "slurm":
        raise InputError(f"{option}: not with --executor slurm: set `gpus` and `tasks` in the cluster profile")
    if processes > max(1, gpus) and device != "cpu":
        raise InputError(f"{option}: {count_of(gpus, 'GPU')} visible: use fewer, or `--device cpu`")


def visible_devices(device: str = "auto") -> list[str]:
    """Return the GPUs that a setting `device` may use here, as in `CUDA_VISIBLE_DEVICES`, without importing torch."""
    if device == "cpu":
        return []
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    if variable is not None:
        names = [name.strip() for name in variable.split(",")]
        return [name for name in names if name and not name.startswith("-")]
    return [str(number) for number in range(len(list(Path("/dev").glob("nvidia[0-9]*"))))]


def share_of_device(workers: int, devices: int) -> float:
    """Return the share of a GPU's memory per worker if the workers are distributed over the GPUs."""
    return 1 / max(1, math.ceil(workers / devices)) if devices else 1.0


def node_name() -> str | None:
    """Return SLURM's name of this node, None outside SLURM."""
    return os.environ.get("SLURMD_NODENAME")
