"""Executors of workers."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
from functools import partial
from pathlib import Path

import pytest

from dropbench.harness.settings import Settings
from dropbench.jobs.submission.local import LocalWorkers
from dropbench.jobs.worker import process_group, slots
from dropbench.jobs.worker.worker import Worker
from tests.jobs.workplace import Workplace
from tests.patience import wait


@pytest.mark.parametrize(
    ("variable", "devices"),
    [("", []), ("-1", []), ("0", ["0"]), ("2, 5", ["2", "5"]), ("GPU-8a,MIG-1", ["GPU-8a", "MIG-1"])],
)
def test_visible_devices(monkeypatch: pytest.MonkeyPatch, variable: str, devices: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert process_group.visible_devices() == devices


@pytest.mark.parametrize(
    ("workers", "devices", "share"), [(1, 0, 1), (4, 0, 1), (2, 2, 1), (4, 1, 1 / 4), (3, 2, 1 / 2)]
)
def test_workers_share_the_memory_of_their_gpu(workers: int, devices: int, share: float) -> None:
    assert process_group.share_of_device(workers, devices) == share


def empty_worker(folder: Path) -> Worker:
    return Worker([], Settings().to_payload(), submission="a", folder=str(folder), executor="local")


def test_workers_are_distributed_over_gpus(tmp_path: Path) -> None:
    workers = LocalWorkers(tmp_path, 4, ["2", "5"])
    workers.connection, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with workers, server, slots.dispatch_lock(tmp_path):
        acquired = slots.acquire(tmp_path, "a", count=3, max_workers=3)
        for slot in acquired:
            workers.start(empty_worker(tmp_path), slot, [])
            slot.close()
        messages = [socket.recv_fds(server, 2**16, 1) for _ in acquired]
        assert slots.count_workers(tmp_path) == 3, "a message holds its worker's slot"
        assert {stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("*.json")} == {0o600}
        devices = [json.loads(message)["environment"]["CUDA_VISIBLE_DEVICES"] for message, *_ in messages]
        assert devices == ["2", "5", "2"]
        for _, (descriptor,), *_ in messages:
            os.close(descriptor)
        assert slots.count_workers(tmp_path) == 0


def test_workers_are_started_again_after_a_kill(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    with LocalWorkers(place.runs, 4) as workers:
        workers.prepare([])
        (server,) = wait(partial(place.processes, "server"), "the process that forks workers")
        environment = Path(f"/proc/{server}/environ").read_text(encoding="utf-8").split("\0")
        assert {"OMP_NUM_THREADS=4", "MKL_NUM_THREADS=7"} <= set(environment), "the user's takes precedence"
        os.kill(server, signal.SIGKILL)
        # Its command line is gone before its socket closes: only once it is dead, sending to it fails.
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        with slots.dispatch_lock(place.runs):
            (slot,) = slots.acquire(place.runs, "a", count=1, max_workers=1)
        workers.start(empty_worker(place.folder), slot, [])
        slot.close()
        wait(lambda: slots.count_workers(place.runs) == 0, "the end of a worker without trials")
        assert (place.folder / "0.log").read_text(encoding="utf-8") == ""
        (server,) = place.processes("server")
    wait(lambda: not place.processes(), "the end of the process")
