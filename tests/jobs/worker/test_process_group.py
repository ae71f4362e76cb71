"""The processes of a job: their variables, and whose error ends a trial."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch.distributed import DistBackendError

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.jobs.worker.failure import LOST, Failure
from dropbench.jobs.worker.process_group import ProcessGroup

RESET = RuntimeError("[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error [::1]:2: Connection reset")
TIMEOUT = DistBackendError("NCCL communicator was aborted on rank 0.")


@pytest.mark.parametrize("connection", [RESET, TIMEOUT])
@pytest.mark.parametrize(
    ("error", "state", "cause"),
    [
        (torch.OutOfMemoryError("CUDA out of memory."), "out_of_memory", "OutOfMemoryError: CUDA out of memory."),
        (InputError("x.jpg: damaged"), "failed", "x.jpg: damaged"),
        (KeyError("a"), "failed", "KeyError: 'a'"),
    ],
)
def test_the_error_that_broke_the_connection_is_reported(
    tmp_path: Path, connection: RuntimeError, error: BaseException, state: str, cause: str
) -> None:
    groups = [ProcessGroup(rank, 3, failure_file=tmp_path / "7_0.failure.json") for rank in range(3)]
    assert groups[0].failure(connection) == Failure.of(connection)
    assert (Failure.of(connection).state, Failure.of(connection).cause) == ("lost", LOST)
    groups[1].report(error)
    groups[2].report(connection)
    failure = groups[0].failure(connection)
    assert (failure.state, failure.cause) == (state, cause)
    assert failure == Failure.of(error)
    assert groups[0].failure(ValueError("its own")) == Failure.of(ValueError("its own"))


def test_a_full_disk_hides_no_error(tmp_path: Path) -> None:
    ProcessGroup(1, 2, failure_file=tmp_path / "missing" / "7_0.failure.json").report(KeyError("a"))


def test_a_group_starts_without_the_failure_of_an_earlier_start_and_with_its_own_threads(tmp_path: Path) -> None:
    (tmp_path / "7_0.failure.json").write_text("{}")
    slurm = {
        "SLURM_JOB_ID": "7", "SLURM_NTASKS": "4", "SLURM_JOB_NUM_NODES": "2", "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SUBMITIT_EXECUTOR": "slurm", "SLURM_JOB_NODELIST": "n[1-2]",
    }  # fmt: skip
    with mock.patch.dict(os.environ, slurm):
        group = ProcessGroup.join(tmp_path, "7_0", Settings(device="cpu", threads=3))
        variables = {name: os.environ[name] for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")}
    assert (group.rank, group.size, group.cpu) == (0, 4, True)
    assert variables == {"WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2", "OMP_NUM_THREADS": "3"}
    assert not [*tmp_path.glob("*.failure.json")]
