"""The checklist before a suite is submitted, from what a job of the profile reports."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dropbench.db.store.store import Store
from dropbench.harness.checking.findings import Finding
from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.queue import readiness
from dropbench.jobs.queue.readiness import check_readiness
from tests.db.records import attempt, make_directory
from tests.jobs.workplace import Programs, Tiny, Workplace

DATA = {"batches_per_second": 1.5, "weights_bytes": 2**30, "checkpoint_bytes": 3 * 2**30}
REPORT = {
    "node": "n1", "gpus": 8, "devices": ["NVIDIA A100"] * 8, "runs": True,
    "communication": {"backend": "nccl", "gb_per_second": 80.0}, "trial 0": DATA,
}  # fmt: skip
EIGHT = "[profiles.eight]\ngpus = 8\ntasks = 8\ncpus = 8\ntime = 600\n"


def check_tiny(**options: Any) -> list[Finding]:
    return check_readiness("eight", "tiny.yaml", SuiteOptions(preset="mini", **options), Settings.from_environment())


@pytest.fixture
def check(place: Workplace, programs: Programs, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that checks a profile, whose job reports what is given on each of its eight processes."""
    programs(sacct="")
    monkeypatch.chdir(place.folder)
    for name in ("DROPBENCH_RUNS", "DROPBENCH_DB"):
        monkeypatch.setenv(name, place.environment[name])
    tiny()

    def findings(toml: str = EIGHT, **changes: Any) -> dict[str, Finding]:
        Path("dropbench.toml").write_text(toml)
        reports = [{**REPORT, "node": f"n{rank % 2}", **changes} for rank in range(8)]
        monkeypatch.setattr(readiness, "run_node_check", lambda *rest: reports)
        return {finding.what: finding for finding in check_tiny()}

    return findings


def record_speed(store: Store, place: Workplace, tiny: Tiny, rate: float) -> None:
    """Store a probe of 36,000 steps, whose trial is of another seed than those of the suite."""
    from dropbench.db.store.rebuild import rebuild

    measured = attempt("interrupted", steps_per_second=rate, steps=36_000, gpus=8, device="NVIDIA A100")
    make_directory(place.runs, tiny(9)[8], attempts=[measured])
    rebuild(store, place.runs)


def test_everything_fits(
    check: Any, store: Store, place: Workplace, tiny: Tiny, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_speed(store, place, tiny, 1.0)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 100 * 2**30}))
    found = check()
    assert {finding.state for finding in found.values()} == {"ok"}
    assert (
        found["time of tiny on tiny"].detail == "10.0 hours: 1 job of 10 hours each, about 320 GPU-hours for 4 trials"
    )
    assert found["GPUs"].detail == "8 per node on n0, n1 NVIDIA A100"
    assert found["communication"].detail == "nccl over 8 processes: 80.00 GB/s"
    assert found["data of tiny on tiny"].detail == "1.50 batches per second for 8 processes; training takes 1.00"
    assert found["disk"].detail == "up to 28.0 GiB of checkpoints while all trials run, 4.0 GiB after, 100.0 GiB free"


@pytest.mark.parametrize(
    ("changes", "what", "state", "detail"),
    [
        ({"gpus": 4}, "GPUs", "missing", "4 of 8 per node on n0, n1: see `gpus`, `gpu_type`"),
        ({"devices": []}, "GPUs", "missing", "8 per node on n0, n1, but torch sees none"),
        ({"communication": "did not end"}, "communication", "missing", "did not end: set `NCCL_SOCKET_IFNAME`"),
        ({"runs": False}, "runs folder", "missing", "set DROPBENCH_RUNS to a folder that all nodes share"),
        ({"trial 0": "tiny: no such folder"}, "data of tiny on tiny", "missing", "on the node: tiny: no such folder"),
        ({"trial 0": {**DATA, "batches_per_second": 0.5}}, "data of tiny on tiny", "missing", "training takes 1.00"),
        ({"trial 0": {**DATA, "weights_bytes": 2**50}}, "disk", "missing", "let fewer trials run at a time"),
    ],
)
def test_what_does_not_fit_is_reported_with_what_to_do(
    check: Any, store: Store, place: Workplace, tiny: Tiny, changes: dict[str, Any], what: str, state: str, detail: str
) -> None:
    record_speed(store, place, tiny, 1.0)
    finding = check(**changes)[what]
    assert finding.state == state
    assert detail in finding.detail


def test_without_a_recorded_speed_the_time_is_unchecked(check: Any) -> None:
    found = check()
    for what in ("time of tiny on tiny", "data of tiny on tiny"):
        assert found[what].state == "unchecked"
        assert "the submission with `--probe` measures it" in found[what].detail


def test_only_some_data_are_checked(check: Any) -> None:
    check()
    with pytest.raises(InputError, match="nothing"):
        check_tiny(data=("nothing",))


def test_gpus_without_a_process_are_reported(check: Any) -> None:
    profile = check(EIGHT.replace("tasks = 8\n", ""))["profile"]
    assert profile.state == "missing"
    assert (
        "7 of 8 GPUs stay idle: set `tasks = 8` (one trial on all of them) or `trials_at_a_time = 8`" in profile.detail
    )


def test_a_job_that_does_not_report_ends_the_list(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*rest: object) -> None:
        raise InputError("sbatch refuses: no such partition")

    check()
    monkeypatch.setattr(readiness, "run_node_check", refuse)
    *_, last = check_tiny()
    assert last == Finding("job", "missing", "sbatch refuses: no such partition")


def test_what_enqueue_refuses_is_missing(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(trial: Trial) -> None:
        raise InputError("a frozen backbone learns nothing")

    monkeypatch.setattr(TASKS.get("tiny"), "check", refuse)
    trials = check()["trials"]
    assert trials.state == "missing"
    assert "a frozen backbone learns nothing" in trials.detail


def test_nodes_are_checked_without_data(check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*rest: object) -> None:
        raise InputError("tiny: no such folder")

    monkeypatch.setattr(readiness, "request_suite", refuse)
    found = check()
    assert found["data here"].state == "missing"
    assert found["communication"].state == "ok"
    assert "trials" not in found
