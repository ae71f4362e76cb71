"""Answers of SLURM's programs, valid and invalid, from fake programs."""

from __future__ import annotations

import pytest

from dropbench.jobs.slurm import client
from dropbench.jobs.slurm.execution import Execution, exit_cause
from dropbench.jobs.slurm.job_states import JobStates
from tests.jobs.workplace import Programs
from tests.patience import PATIENCE


def test_executions_of_requeued_jobs_and_of_arrays(programs: Programs) -> None:
    programs(
        sacct="""/bin/cat <<'.'
7_0|NODE_FAIL|node1|2026-01-31T12:00:00|0:0|
7_0.batch|CANCELLED|node1|2026-01-31T12:00:00||1.5M
7_0|RUNNING|node2|2026-01-31T12:01:00|0:0|
7_1|CANCELLED by 1000|None assigned|Unknown|0:0|
7_[2,4-5%2]|FAILED|None assigned|2026-01-31T12:00:00|1:0|
8|FAILED|node1|2026-01-31T12:00:00|0:9|
8.batch|FAILED|node1|2026-01-31T12:00:00|0:9|2K
8.0|OUT_OF_MEMORY|node1|2026-01-31T12:00:00|0:125|3G
."""
    )
    executions = client.list_executions(["7", "8"])
    first, second = executions["7_0"]
    assert first == Execution("NODE_FAIL", "node1", "2026-01-31T12:00:00+00:00", "0:0", ("CANCELLED",), 1572864)
    assert second.alive
    assert executions["7_1"] == [Execution("CANCELLED", "None assigned", None, "0:0")]
    assert {id for id, runs in executions.items() if runs[0].exit_code == "1:0"} == {"7_2", "7_4", "7_5"}
    assert exit_cause(executions["8"][0]) == ("out_of_memory", "killed: out of memory (peak 3,072 MiB) on node1")

    states = JobStates(current={"a": {0: second}}, history=executions, lag_budget_s=0.0)
    assert states.ended("a", "7_0", "2026-01-31T12:00:03.250+00:00") == first
    assert states.ended("a", "7_0", "2026-01-31T12:01:02.000+00:00") is None, "the second execution is running"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "scontrol not found"),
        ("echo 'slurm_load: Unable to\n contact' >&2; exit 1", "scontrol: slurm_load: Unable to contact"),
        ("exit 3", "scontrol: exit code 3"),
    ],
)
def test_a_program_that_fails(programs: Programs, script: str | None, message: str) -> None:
    programs(scontrol=script)
    with pytest.raises(client.SlurmCommandError) as raised:
        client.run_command("scontrol", timeout=PATIENCE)
    assert str(raised.value) == message


def test_a_program_that_does_not_answer(programs: Programs) -> None:
    programs(scontrol="exec /bin/sleep 600")
    with pytest.raises(client.SlurmCommandError, match="scontrol did not answer within 0 s"):
        client.run_command("scontrol", timeout=0.3)


def test_the_maximum_array_size_is_the_clusters(programs: Programs) -> None:
    programs(scontrol="echo 'MaxArraySize            = 51'")
    assert client.max_array_size() == 50
    programs(scontrol="exit 3")
    assert client.max_array_size() == client.DEFAULT_MAX_ARRAY_SIZE


def test_queries_use_utc_and_jobs_keep_the_users_time_zone(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    programs(squeue='echo "$TZ $SQUEUE_FORMAT"', sbatch='echo "$TZ"')
    assert client.run_command("squeue").split() == ["UTC"]
    assert client.run_command("sbatch").split() == ["Europe/Berlin"]
