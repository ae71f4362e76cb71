"""Several trials side by side in each job (`trials_at_a_time`) on a real SLURM: results, and faults of the job."""

from __future__ import annotations

import os
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.cluster.conftest import SUITES
from tests.cluster.fault_checks import job_of, minutes_left, worker
from tests.jobs.workplace import Workplace
from tests.patience import wait

if TYPE_CHECKING:
    from tests.cluster.conftest import ClusterPlace

Results = dict[str, bytes]
TRIALS = 4


@pytest.fixture(scope="module")
def one_at_a_time(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """The results by trial of runs on this machine, one after the other."""
    place = Workplace(tmp_path_factory.mktemp("undisturbed"))
    (place.folder / "lone.yaml").write_text(SUITES["lone.yaml"])
    for suite in ("lone.yaml", "tiny.yaml"):
        place.ok("run", suite, f"--seeds={TRIALS}", "--parallel=1")
    return {run.id: (run.path / "result.json").read_bytes() for run in place.directories()}


def start(place: ClusterPlace, profile: str = "four", pause: float = 0.3) -> list[int]:
    """Submit long trials to one job and wait until all are training; return the processes that train."""
    place.pause.write_text(str(pause))
    place.submit("lone.yaml", "--checkpoint-seconds=0.5", profile=profile, seeds=TRIALS)

    def training() -> bool:
        return len(place.running()) == TRIALS and all(
            list((run.path / "checkpoint").glob("step-*[1-9]*.pt")) for run in place.running()
        )

    wait(training, "all trials in training")
    assert len({job_of(run) for run in place.directories()}) == 1, "one job"
    return [worker(run) for run in place.directories()]


def check(place: ClusterPlace, expected: Results, *states: str) -> None:
    """Assert that each trial ended once, with the result of an undisturbed one, by attempts that ended so."""
    results = place.results()
    assert len(results) == TRIALS
    assert results == {id: expected[id] for id in results}
    for run in place.directories():
        assert [attempt["state"] for attempt in run.attempts()] == list(states)
        assert [event["event"] for event in run.events()].count("end") == 1


def test_a_suite_is_trained_once_with_equal_results(clustered: ClusterPlace, one_at_a_time: Results) -> None:
    clustered.submit("tiny.yaml", profile="four", seeds=TRIALS)
    assert clustered.ended()["succeeded"] == 2 * TRIALS
    results = clustered.results()
    assert len(results) == 2 * TRIALS
    assert results == {id: one_at_a_time[id] for id in results}
    attempts = [attempt for of_trial in clustered.attempts().values() for attempt in of_trial]
    assert list(Counter(attempt["job_id"] for attempt in attempts).values()) == [TRIALS, TRIALS], "two jobs"


def test_a_killed_process_puts_back_its_trial_alone(clustered: ClusterPlace, one_at_a_time: Results) -> None:
    pids = start(clustered)
    assert len(set(pids)) == TRIALS, "a process each"
    os.kill(pids[0], signal.SIGKILL)
    status = clustered.finish()
    assert (status["succeeded"], status["queued"]) == (TRIALS - 1, 1)
    clustered.ok("submit", "--executor=slurm", "--profile=four")
    assert clustered.ended()["succeeded"] == TRIALS
    results = clustered.results()
    assert results == {id: one_at_a_time[id] for id in results}
    ends = Counter(tuple(attempt["state"] for attempt in of_trial) for of_trial in clustered.attempts().values())
    assert ends == {("succeeded",): TRIALS - 1, ("lost", "succeeded"): 1}


def test_at_their_time_limit_all_resume(clustered: ClusterPlace, one_at_a_time: Results) -> None:
    start(clustered, "short_four", pause=0.5)
    first = clustered.directories()[0]
    job = f"jobid={job_of(first)}"
    clustered.cluster.run("scontrol", "update", job, f"timelimit={minutes_left(first)}")
    wait(lambda: all(run.attempts()[0]["state"] != "running" for run in clustered.directories()), "the signal")
    clustered.cluster.run("scontrol", "update", job, "timelimit=5")
    wait(lambda: all(len(run.attempts()) == 2 for run in clustered.directories()), "the second attempts")
    assert clustered.finish()["succeeded"] == TRIALS
    check(clustered, one_at_a_time, "preempted", "succeeded")
