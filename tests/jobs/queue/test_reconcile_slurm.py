"""The states of trials whose jobs a SLURM of fake programs reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from dropbench.db.store.run_record import read_run_record
from dropbench.db.store.store import Store
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.jobs.queue.operations import cancel
from dropbench.jobs.queue.reconcile import ObservedState, collect, determine_state
from dropbench.jobs.queue.status import read_status, render
from dropbench.jobs.slurm.profile import Profile
from dropbench.jobs.submission.dispatch import Dispatched, Plan, dispatch
from dropbench.jobs.submission.submission import inspect_submissions, job_name, read_elements
from dropbench.jobs.worker.process_group import FAILURE_SUFFIX, ProcessGroup
from dropbench.jobs.worker.stop_requests import STARTED_SUFFIX
from tests.jobs.workplace import Programs, Workplace


def submit(store: Store, place: Workplace, ids: list[str] | None = None, trials_per_job: int = 1) -> Dispatched:
    plan = Plan("slurm", profile=Profile(trials_per_job=trials_per_job))
    dispatched = dispatch(store, place.settings, ids or store.find(None), plan)
    assert dispatched is not None
    return dispatched


def squeue(rest: str, submission: str, elements: int = 1) -> str:
    """Return a script that prints squeue's line of each element."""
    lines = "\n".join(f"71|{element}|{rest}|{job_name(submission)}" for element in range(elements))
    return f"echo '{lines}'"


def test_jobs_that_the_qos_holds_are_reported(queue: Store, place: Workplace, programs: Programs) -> None:
    done = submit(queue, place)
    programs(squeue=squeue("PENDING||N/A|QOSMaxJobsPerUserLimit", done.submission, 4))
    shown = render(read_status(queue, place.settings))
    assert "4 jobs waiting in SLURM (QOSMaxJobsPerUserLimit): a limit of your QOS or account: it starts when" in shown


def test_trials_whose_job_never_started_are_not_inspected(queue: Store, place: Workplace, programs: Programs) -> None:
    """They are submitted, whatever their run directories hold, until they are cancelled."""
    done = submit(queue, place, trials_per_job=2)
    programs(squeue=squeue("PENDING||N/A|None", done.submission, 2))
    assert (read_status(queue, place.settings).inspected, collect(queue, place.settings)) == (0, {})
    result = {"metrics": {"test/accuracy": 1.0}}
    for id in (done.trials[0], done.trials[3]):
        RunDirectory(place.runs / id).write_result(result)
    assert read_status(queue, place.settings).counts["submitted"] == 4
    (place.runs / ".submitit" / done.submission / f"71_0{STARTED_SUFFIX}").touch()
    status = read_status(queue, place.settings)
    assert (status.inspected, status.ahead) == (2, 1)
    assert collect(queue, place.settings) == {done.trials[0]: "succeeded"}
    assert cancel(queue, place.settings, [done.trials[2]]).cancelled == [done.trials[2]]
    programs(squeue="")  # the job has ended
    assert collect(queue, place.settings) == {done.trials[1]: "queued", done.trials[3]: "succeeded"}


def test_a_trial_with_an_earlier_attempt_is_inspected(queue: Store, place: Workplace, programs: Programs) -> None:
    """Its first worker may still be alive."""
    (id, *_) = queue.find(None)
    directory = RunDirectory.create(place.runs, queue.trials([id])[id])
    now = utc_now_iso()
    directory.write_attempt(1, {"state": "node_failure", "node": "n1", "started_at": now, "ended_at": now})
    queue.record([read_run_record(directory)])
    queue.set_states({id: ("queued", None)})
    done = submit(queue, place, [id])
    programs(squeue=squeue("PENDING||N/A|None", done.submission))
    directory.write_result({"metrics": {"test/accuracy": 1.0}})
    assert read_status(queue, place.settings).inspected == 1
    assert collect(queue, place.settings) == {id: "succeeded"}


def test_a_failed_job_fails_its_trials_only_if_its_worker_never_started(
    queue: Store, place: Workplace, programs: Programs
) -> None:
    done = submit(queue, place, trials_per_job=2)
    folder = place.runs / ".submitit" / done.submission
    (folder / f"71_1{STARTED_SUFFIX}").touch()
    (folder / "71_0_0_log.err").write_text("x\nsetup: line 3: module: command not found\n")
    programs(squeue=squeue("FAILED|node1|2026-01-31T12:00:00|None", done.submission, 2))
    collect(queue, place.settings)
    rows = queue.states(done.trials)
    assert [rows[id].state for id in done.trials] == ["failed", "failed", "queued", "queued"]
    reason = "its job ended before the trial began: x / setup: line 3: module: command not found"
    assert rows[done.trials[0]].reason == reason


def test_status_explains_why_trials_wait_that_were_killed(queue: Store, place: Workplace, programs: Programs) -> None:
    done = submit(queue, place)
    attempt = {"state": "running", "submission": done.submission, "started_at": "2026-01-31T12:00:00.000+00:00"}
    ends = []
    for element, id in enumerate(done.trials[:3]):
        RunDirectory(place.runs / id).write_attempt(1, {**attempt, "job_id": f"71_{element}"})
        end = "TIMEOUT" if element == 2 else "OUT_OF_MEMORY"
        ends.append(f"71_{element}|{end}|node{element}|2026-01-31T12:00:00|0:125|{element + 1}81M")
    programs(squeue="", sacct="echo '" + "\n".join(ends) + "'")
    lines = [
        "1 trial queued again (killed at its time limit): run `dropbench submit`.",
        "2 trials queued again (killed: out of memory): set a larger `memory` in the profile of dropbench.toml, "
        "then run `dropbench submit`.",
    ]
    assert sorted(render(read_status(queue, place.settings)).splitlines()[-2:]) == lines
    collect(queue, place.settings)
    assert sorted(render(read_status(queue, place.settings)).splitlines()[-2:]) == lines


@pytest.mark.parametrize("end", ["running", "lost"])
def test_an_error_that_a_follower_reported_ends_the_trial(
    queue: Store, place: Workplace, programs: Programs, end: str
) -> None:
    """Rank 0 may be killed, or notice the loss before the report has reached its node."""
    done = submit(queue, place)
    folder = place.runs / ".submitit" / done.submission
    errors: list[BaseException] = [InputError("x.jpg: damaged"), MemoryError()]
    for element, error in enumerate(errors):
        (folder / f"71_{element}{STARTED_SUFFIX}").touch()
        attempt = {"state": end, "submission": done.submission, "started_at": "2026-01-31T12:00:00.000+00:00"}
        directory = RunDirectory(place.runs / done.trials[element])
        directory.write_attempt(1, {**attempt, "ended_at": None, "job_id": f"71_{element}"})
        ProcessGroup(1, 2, failure_file=folder / f"71_{element}{FAILURE_SUFFIX}").report(error)
    programs(squeue="", sacct=r"printf '71_%s|FAILED|n1|2026-01-31T12:00:00|1:0|\n' 0 1")
    collect(queue, place.settings)
    rows = queue.states(done.trials[:2])
    assert [(rows[id].state, rows[id].reason) for id in done.trials[:2]] == [
        ("failed", "x.jpg: damaged"),
        ("queued", "MemoryError: no message"),
    ]
    (attempt,) = RunDirectory(place.runs / done.trials[1]).attempts()
    assert attempt["state"] == "out_of_memory"


def test_an_attempt_on_another_machine_is_dead_if_its_job_is_pending_again(
    queue: Store, place: Workplace, programs: Programs
) -> None:
    done = submit(queue, place, queue.find(None)[:1])
    directory = RunDirectory(place.runs / done.trials[0])
    attempt = {"state": "running", "submission": done.submission, "job_id": "71_0", "started_at": utc_now_iso()}
    directory.write_attempt(1, attempt)
    programs(squeue=squeue("PENDING||N/A|None", done.submission))
    (submission,) = inspect_submissions(queue.open_submissions(), place.settings, with_history=True).values()
    observed = determine_state(directory, submission)
    assert observed == ObservedState("running"), "it may have started after squeue answered"
    directory.write_attempt(1, {**attempt, "started_at": "2026-01-31T12:00:00.000+00:00"})
    observed = determine_state(directory, submission)
    assert observed == ObservedState("submitted", "its worker was killed", died=True)


def test_jobs_that_are_cancelled_before_they_start(queue: Store, place: Workplace, programs: Programs) -> None:
    done = submit(queue, place)
    programs(squeue=squeue("CANCELLED|||None", done.submission, 4))
    assert set(collect(queue, place.settings).values()) == {"cancelled"}
    assert {row.reason for row in queue.states().values()} == {"cancelled on the cluster"}


def test_of_an_array_with_active_trials_the_jobs_of_cancelled_ones_are_cancelled(
    queue: Store, place: Workplace, programs: Programs, tmp_path: Path
) -> None:
    programs(scancel=f'echo "$@" >> {tmp_path / "calls"}')
    done = submit(queue, place)
    programs(squeue=squeue("PENDING||N/A|Resources", done.submission, 4))
    (row,) = queue.open_submissions()
    elements = read_elements(Path(row.folder))
    kept = next(id for id, element in elements.items() if element == 1)
    assert len(cancel(queue, place.settings, [id for id in done.trials if id != kept]).cancelled) == 3
    assert (tmp_path / "calls").read_text() == "71_[0,2,3]\n"
    cancel(queue, place.settings, [kept])
    assert (tmp_path / "calls").read_text().splitlines()[1:] == [f"--name={job_name(done.submission)}"]
