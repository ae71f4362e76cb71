"""The cause of an attempt's end, from its job's execution."""

from __future__ import annotations

import pytest

from dropbench.jobs.slurm.execution import Execution, exit_cause, explain_waits


@pytest.mark.parametrize(
    ("execution", "log", "state"),
    [
        (Execution("TIMEOUT", "node1"), "", "timeout"),
        (Execution("DEADLINE"), "", "timeout"),
        (Execution("NODE_FAIL", "node1"), "", "node_failure"),
        (Execution("BOOT_FAIL", "node1"), "", "node_failure"),
        (Execution("PREEMPTED"), "", "preempted"),
        (Execution("REQUEUED"), "", "preempted"),
        (Execution("CANCELLED"), "", "cancelled"),
        (Execution("CANCELLED"), "slurmstepd: error: Exceeded job memory limit at some point", "out_of_memory"),
        (Execution("OUT_OF_MEMORY"), "", "out_of_memory"),
        (Execution("FAILED", exit_code="0:9"), "", None),
        (Execution("COMPLETED"), "", None),
    ],
)
def test_exit_cause(execution: Execution, log: str, state: str | None) -> None:
    cause = exit_cause(execution, log)
    assert (cause[0] if cause else None) == state


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("QOSMaxJobsPerUserLimit", "a limit of your QOS or account: it starts when other jobs end"),
        ("QOSMaxGRESPerUser", "a limit of your QOS or account: it starts when other jobs end"),
        ("AssocGrpGRES", "a limit of your QOS or account: it starts when other jobs end"),
        ("QOSMaxGRESPerJob", "it never starts"),
        ("QOSMaxWallDurationPerJobLimit", "it never starts"),
        ("PartitionTimeLimit", "it never starts"),
        ("PartitionConfig", "it never starts"),
        ("AssocGrpCPUMinutesLimit", "the budget is used up"),
        ("JobHeldUser", "release it: `scontrol release JOBID`"),
        ("ReqNodeNotAvail, UnavailableNodes:node1", "its nodes are not available"),
    ],
)
def test_jobs_that_wait_for_more_than_their_turn(reason: str, advice: str) -> None:
    turns = [Execution("PENDING", reason=turn) for turn in ("Priority", "Resources", "JobArrayTaskLimit", "None", "")]
    waiting = Execution("PENDING", reason=reason)
    (line,) = explain_waits([*turns, waiting, waiting, Execution("RUNNING", reason=reason)])
    assert line.startswith(f"2 jobs waiting in SLURM ({reason}): {advice}")
