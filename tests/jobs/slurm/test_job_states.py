"""The states of jobs when squeue or sacct lag behind or do not answer."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.jobs.slurm.job_states import SACCT_LAG_S, query_jobs
from tests.jobs.workplace import Programs


def test_sacct_is_waited_for_if_it_lags_and_not_needed_if_it_is_missing(programs: Programs, tmp_path: Path) -> None:
    running, ended = "7_0|RUNNING|node1|2026-01-31T12:00:00|0:0|", "7_0|NODE_FAIL|node1|2026-01-31T12:00:00|0:0|"
    programs(
        squeue="echo '7|0|PENDING||||a'",
        sacct=f"if [ -e {tmp_path}/called ]; then echo '{ended}'; else : > {tmp_path}/called; echo '{running}'; fi",
    )
    states = query_jobs([("a", None)], with_history=True)
    assert states.job_ids == {"a": "7"}
    execution = states.ended("a", "7_0", "2026-01-31T12:00:01+00:00")
    assert execution is not None
    assert execution.state == "NODE_FAIL"
    assert 0 < states.lag_budget_s < SACCT_LAG_S
    programs(squeue="echo '7|0|TIMEOUT|node1|2026-01-31T12:00:00|None|a'", sacct="echo 'sacct: error: no' >&2; exit 1")
    execution = query_jobs([("a", None)], with_history=True).ended("a", "7_0", "2026-01-31T12:00:01+00:00")
    assert execution is not None
    assert execution.state == "TIMEOUT"


def test_jobs_are_not_taken_for_dead_if_squeue_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert query_jobs([("a", None)]).alive("a"), "squeue is missing"
    for script, alive in (
        ("exit 1", True),
        ("echo '7|N/A|PENDING||N/A||a'", True),
        ("echo '7|3|COMPLETED|node1|N/A|None|a'; echo '7|[4-5]|RUNNING|node1|N/A|None|a'", True),
        ("echo '7|3|COMPLETED|node1|N/A|None|a'", False),
        ("echo 'a warning'", True),
        ("", False),
    ):
        (tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "squeue").chmod(0o755)
        assert query_jobs([("a", None)]).alive("a") == alive


def test_a_missing_sacct_is_reported_in_one_line(programs: Programs) -> None:
    programs(
        squeue="echo '7|0|RUNNING|node1|N/A|None|a'", sacct="echo 'Slurm accounting storage is disabled' >&2; exit 1"
    )
    (note,) = query_jobs([("a", None)], with_history=True).notes()
    assert note.startswith("sacct: Slurm accounting storage is disabled: a worker that SLURM kills is shown as lost")
    assert query_jobs([("a", None)]).notes() == [], "sacct was not asked"
