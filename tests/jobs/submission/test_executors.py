"""Submitit's executors, adapted to workers."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.submission.executors import DetachedExecutor
from jobs.worker import process_group, slots


@pytest.mark.parametrize(
    ("variable", "devices"),
    [("", []), ("-1", []), ("0", ["0"]), ("2, 5", ["2", "5"]), ("GPU-8a,MIG-1", ["GPU-8a", "MIG-1"])],
)
def test_visible_devices(monkeypatch: pytest.MonkeyPatch, variable: str, devices: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    assert process_group.visible_devices() == devices


def test_workers_are_distributed_over_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    with slots.dispatch_lock(tmp_path):
        acquired = slots.acquire(tmp_path, "a", count=3, max_workers=3)
    environments = [DetachedExecutor(tmp_path, slot, 4, ["2", "5"])._environment() for slot in acquired]
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["2", "5", "2"]
    assert (environments[0]["OMP_NUM_THREADS"], environments[0]["MKL_NUM_THREADS"]) == ("4", "7"), (
        "the user's environment takes precedence"
    )
    assert DetachedExecutor(tmp_path, acquired[0], 0, [])._environment()["CUDA_VISIBLE_DEVICES"] == ""
    for slot in acquired:
        slot.close()
