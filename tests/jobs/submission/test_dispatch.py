"""Dispatch to a SLURM of fake programs."""

from __future__ import annotations

import json
import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest
from submitit.core.utils import DelayedSubmission

from dropbench.db.store.store import Store
from dropbench.harness.clock import utc_now_iso
from dropbench.harness.errors import InputError
from dropbench.harness.runs import lease
from dropbench.harness.runs.lease import Lease
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.jobs.cleanup.gc import gc
from dropbench.jobs.queue.reconcile import collect
from dropbench.jobs.slurm.profile import Profile
from dropbench.jobs.submission.dispatch import Plan, dispatch
from dropbench.jobs.submission.submission import ELEMENTS_FILE
from dropbench.jobs.worker.stop_requests import STOP_FILE, StopRequests
from tests.jobs.workplace import Programs, Workplace

PLAN = Plan("slurm", profile=Profile())


def states(store: Store) -> set[str]:
    return {row.state for row in store.states().values()}


def test_trials_are_packed_into_jobs_and_arrays_are_split(queue: Store, place: Workplace, programs: Programs) -> None:
    programs(scontrol="echo 'MaxArraySize            = 2'")
    first = dispatch(
        queue, place.settings, queue.find(None), Plan("slurm", profile=Profile(trials_per_job=3), throttle=1)
    )
    assert first is not None
    assert (len(first.trials), first.workers, first.job_id) == (3, 1, "71")
    folder = place.runs / ".submitit" / first.submission
    assert json.loads((folder / ELEMENTS_FILE).read_text()) == dict.fromkeys(first.trials, 0)
    assert (folder / "0.pkl").exists(), "the job's pickle is written before sbatch is called"
    for name in ("0.pkl", "submission.sh"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600, "settings may be secret"
    second = dispatch(
        queue, place.settings, queue.find(None), Plan("slurm", profile=Profile(trials_per_job=3), after="71")
    )
    assert second is not None
    assert len(second.trials) == 1
    script = (place.runs / ".submitit" / second.submission / "submission.sh").read_text().splitlines()
    assert "#SBATCH --dependency=afterany:71" in script
    assert "#SBATCH --kill-on-invalid-dep=yes" in script
    assert "#SBATCH --requeue" in script, "a cluster may requeue no job by default"


def test_jobs_that_run_trials_side_by_side_get_enough_of_them(
    queue: Store, place: Workplace, programs: Programs
) -> None:
    programs(scontrol="echo 'MaxArraySize            = 1000'")
    done = dispatch(queue, place.settings, queue.find(None), Plan("slurm", profile=Profile(trials_at_a_time=3)))
    assert done is not None
    folder = place.runs / ".submitit" / done.submission
    assert sorted(json.loads((folder / ELEMENTS_FILE).read_text()).values()) == [0, 0, 0, 1]
    workers = [DelayedSubmission.load(folder / f"{element}.pkl").function for element in (0, 1)]
    assert [vars(worker)["trials_at_a_time"] for worker in workers] == [3, 1], "no process without a trial"
    (trial,) = queue.trials(done.trials[:1]).values()
    kind = f"{trial.task} {trial.model} {trial.data.name}"
    assert [vars(worker)["kinds"] for worker in workers] == [[kind] * 3, [kind]]


def test_variables_of_a_profile_reach_the_worker(queue: Store, place: Workplace, programs: Programs) -> None:
    programs(scontrol="echo 'MaxArraySize            = 1000'")
    variables = {"DROPBENCH_DATA": "/local/data", "DROPBENCH_NUM_WORKERS": "3", "HF_HOME": "/local/hf"}
    sent = dispatch(
        queue, place.settings, queue.find(None), Plan("slurm", profile=Profile(environment=variables, cpus=4))
    )
    assert sent is not None
    worker = DelayedSubmission.load(place.runs / ".submitit" / sent.submission / "0.pkl").function
    settings = Settings.from_payload(vars(worker)["payload"])
    assert (settings.data, settings.num_workers, settings.threads) == (Path("/local/data"), 3, 4)


@pytest.mark.parametrize(("gpus", "device", "expected"), [(1, "auto", "cuda"), (1, "cpu", "cpu"), (0, "auto", "auto")])
def test_a_job_of_gpus_trains_on_cpus_only_if_asked_to(
    queue: Store, place: Workplace, programs: Programs, gpus: int, device: str, expected: str
) -> None:
    programs(scontrol="echo 'MaxArraySize            = 1000'")
    settings = replace(place.settings, device=device)
    sent = dispatch(queue, settings, queue.find(None), Plan("slurm", profile=Profile(gpus=gpus)))
    assert sent is not None
    worker = DelayedSubmission.load(place.runs / ".submitit" / sent.submission / "0.pkl").function
    assert Settings.from_payload(vars(worker)["payload"]).device == expected


def test_a_forged_node_is_not_excluded(queue: Store, place: Workplace, programs: Programs) -> None:
    """A line break in its name would add a command to the script."""
    programs(sinfo="echo n2")
    id, now = queue.find(None)[0], utc_now_iso()
    record = {"state": "node_failure", "node": "n1\ntouch x", "started_at": now, "ended_at": now}
    RunDirectory.create(place.runs, queue.trials([id])[id]).write_attempt(1, record)
    done = dispatch(queue, place.settings, [id], PLAN)
    assert done is not None
    assert "touch" not in (place.runs / ".submitit" / done.submission / "submission.sh").read_text()


@pytest.mark.parametrize(("nodes", "line"), [("n1 n2", "#SBATCH --exclude=n1"), ("n1", None)])
def test_a_node_that_failed_during_a_trial_is_excluded_unless_it_is_the_only_one(
    queue: Store, place: Workplace, programs: Programs, nodes: str, line: str | None
) -> None:
    programs(sinfo=f"printf '%s\\n' {nodes}")
    failed, *others = queue.find(None)
    directory = RunDirectory.create(place.runs, queue.trials([failed])[failed])
    now = utc_now_iso()
    directory.write_attempt(1, {"state": "node_failure", "node": "n1", "started_at": now, "ended_at": now})
    for trials, excluded in (([failed], line), (others, None)):
        done = dispatch(queue, place.settings, queue.find("queued"), PLAN)
        assert done is not None
        assert done.trials == trials
        script = (place.runs / ".submitit" / done.submission / "submission.sh").read_text().splitlines()
        assert [option for option in script if "--exclude" in option] == ([excluded] if excluded else [])


def test_jobs_that_sbatch_submitted_in_spite_of_its_error_are_found(
    queue: Store, place: Workplace, programs: Programs
) -> None:
    programs(
        sbatch=f"""echo 'sbatch: error: Socket timed out' >&2
n=$(/bin/grep -h -o 'dropbench-[0-9a-f]*' "$2"); echo "72|0|PENDING||||$n" > {place.folder}/listed; exit 1""",
        squeue=f"/bin/cat {place.folder}/listed",
    )
    done = dispatch(queue, place.settings, queue.find(None), PLAN)
    assert done is not None
    assert done.job_id == "72"
    assert states(queue) == {"submitted"}


def test_a_path_that_adds_a_line_to_the_script(queue: Store, place: Workplace, programs: Programs) -> None:
    settings = replace(place.settings, runs=place.folder / "runs\ntouch x")
    with pytest.raises(InputError, match="control character in the path: set DROPBENCH_RUNS"):
        dispatch(queue, settings, queue.find(None), PLAN)
    assert states(queue) == {"queued"}


@pytest.mark.parametrize("listed", [False, True])
def test_a_refusal_leaves_the_queue_unchanged(queue: Store, place: Workplace, programs: Programs, listed: bool) -> None:
    # Where all nodes are drained, squeue lists an array that sbatch refuses, as FAILED.
    record = f'n=$(/bin/grep -h -o \'dropbench-[0-9a-f]*\' "$2"); echo "72|0|FAILED||||$n" > {place.folder}/listed'
    programs(
        sbatch=f"{record if listed else ':'}; echo 'sbatch: error: invalid partition' >&2; exit 1",
        squeue=f"/bin/cat {place.folder}/listed" if listed else "",
    )
    with pytest.raises(InputError, match=r"^sbatch refuses: sbatch: error: invalid partition$"):
        dispatch(queue, place.settings, queue.find(None), PLAN)
    assert states(queue) == {"queued"}
    assert queue.open_submissions() == []


def test_nothing_is_submitted_twice_if_slurm_fails(queue: Store, place: Workplace, programs: Programs) -> None:
    programs(sbatch="echo 'Socket timed out' >&2; exit 1", squeue="exit 1")
    with pytest.raises(InputError, match="may have been submitted: run `dropbench status` when SLURM answers again"):
        dispatch(queue, place.settings, queue.find(None), PLAN)
    assert states(queue) == {"submitted"}
    assert dispatch(queue, place.settings, queue.find(None), PLAN) is None
    collect(queue, place.settings)
    assert states(queue) == {"submitted"}, "squeue does not answer"
    (submission,) = queue.open_submissions()
    programs(squeue="")
    collect(queue, place.settings)
    assert states(queue) == {"queued"}
    # If the job appears after all, it exits at once.
    assert (Path(submission.folder) / STOP_FILE).exists()
    assert StopRequests(Path(submission.folder)).should_stop()


def test_files_of_a_live_worker_are_left_alone_by_a_machine_whose_clock_is_ahead(
    queue: Store, place: Workplace, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (id, *_) = queue.find(None)
    directory = RunDirectory.create(place.runs, queue.trials([id])[id])
    held = Lease.take(directory.path)
    assert held is not None
    with held:
        half_written = directory.path / ".result.json.abc"
        half_written.touch()
        right = time.time
        monkeypatch.setattr(time, "time", lambda: right() + 600)
        monkeypatch.setattr(lease, "machine", lambda: "another")
        dispatch(queue, place.settings, queue.find(None), PLAN)
        gc(queue, place.settings)
        assert half_written.exists()
        assert held.held()
