from __future__ import annotations

from pathlib import Path

import pytest

from jobs import machine, places, slurm
from jobs.executors import DetachedExecutor


@pytest.mark.parametrize(
    ("given", "found"),
    [("", []), ("-1", []), ("0", ["0"]), ("2, 5", ["2", "5"]), ("GPU-8a,MIG-1", ["GPU-8a", "MIG-1"])],
)
def test_gpus_that_may_be_used(monkeypatch: pytest.MonkeyPatch, given: str, found: list[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert machine.visible_devices() == found


def test_workers_are_spread_over_the_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "7")
    with places.keeper(tmp_path):
        held = places.take(tmp_path, "a", wanted=3, limit=3)
    environments = [DetachedExecutor(tmp_path, place, 4, ["2", "5"])._environment() for place in held]
    assert [one["CUDA_VISIBLE_DEVICES"] for one in environments] == ["2", "5", "2"]
    assert (environments[0]["OMP_NUM_THREADS"], environments[0]["MKL_NUM_THREADS"]) == ("4", "7"), (
        "the user's word counts"
    )
    assert DetachedExecutor(tmp_path, held[0], 0, [])._environment()["CUDA_VISIBLE_DEVICES"] == ""
    for place in held:
        place.close()


def test_a_cluster_that_does_not_answer_is_not_taken_for_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert slurm.look([("a", None)]).alive("a"), "there is no squeue"
    for script, alive in (
        ("exit 1", True),
        ("echo '7|N/A|PENDING||N/A|a'", True),
        ("echo '7|3|COMPLETED|node1|N/A|a'; echo '7|[4-5]|RUNNING|node1|N/A|a'", True),
        ("echo '7|3|COMPLETED|node1|N/A|a'", False),
        ("echo 'a warning'", True),
        ("", False),
    ):
        (tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "squeue").chmod(0o755)
        assert slurm.look([("a", None)]).alive("a") == alive
