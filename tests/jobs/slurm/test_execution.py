"""The cause of an attempt's end, from its job's execution."""

from __future__ import annotations

import pytest

from dropbench.jobs.slurm.execution import Execution, exit_cause


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
