"""Submit to a SLURM of fake programs: profiles, and limits on the number of jobs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.slurm.profile import Profile
from dropbench.jobs.submission.dispatch import Plan
from dropbench.jobs.submission.submission import read_elements
from dropbench.jobs.submission.submit import default_profile, describe_defaults, group_by_profile, submit
from tests.jobs.workplace import Programs, Workplace

PLAN = Plan("slurm", profile=Profile())
JOB_LIMIT = "sbatch: error: AssocMaxSubmitJobLimit"


def test_trials_get_the_first_profile_that_matches(
    queue: Store, place: Workplace, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.folder)
    ids = queue.find(None)
    toml = f"[profiles.big]\ntime = 7\ntrials = '{ids[1]}'\n[profiles.other]\ntrials = 'seed=77'\n"
    Path("dropbench.toml").write_text(toml)
    plan = Plan("slurm")
    with pytest.raises(InputError, match=r"unknown profile of dropbench.toml 'default': known: big, other"):
        list(group_by_profile(queue, ids, plan, None))
    Path("dropbench.toml").write_text(f"{toml}[profiles.default]\ntime = 9\n")
    groups = [(group, own.profile.time) for group, own in group_by_profile(queue, ids, plan, None) if own.profile]
    assert groups == [([ids[1]], 7), ([ids[0], *ids[2:]], 9)]
    (only,) = group_by_profile(queue, ids, plan, "big")
    assert only == (ids, Plan("slurm", profile=Profile(time=7, trials=ids[1])))
    assert list(group_by_profile(queue, ids, Plan(), None)) == [(ids, Plan())]


@pytest.mark.parametrize(
    ("config", "memory"),
    [
        ("DefMemPerNode           = UNLIMITED", None),
        ("DefMemPerCPU            = 4096", None),
        ("DefMemPerCPU            = 100", 2),
        ("", None),
    ],
)
def test_without_a_file_of_profiles_the_defaults_of_the_cluster_apply(
    queue: Store, place: Workplace, programs: Programs, monkeypatch: pytest.MonkeyPatch, config: str,
    memory: float | None,
) -> None:  # fmt: skip
    """Except that a default of less memory than a worker needs is raised."""
    monkeypatch.chdir(place.folder)
    programs(scontrol=f"echo '{config}'")
    ids = queue.find(None)
    plan = Plan("slurm", profile=Profile(memory=memory))
    assert list(group_by_profile(queue, ids, Plan("slurm"), None)) == [(ids, plan)]
    assert list(group_by_profile(queue, [], Plan("slurm"), None)) == []
    assert ("partition, 2 GB, 1 CPU" if memory else "partition and memory, 1 CPU") in describe_defaults(
        default_profile()
    )
    with pytest.raises(InputError, match=r"dropbench.toml: not found: create it with a table \[profiles.a100\]"):
        list(group_by_profile(queue, ids, Plan("slurm"), "a100"))


@pytest.mark.parametrize(
    ("limit", "throttles", "report"),
    [
        (1, ["%1"], "Submitted 1 trial to 1 job, 3 trials still queued"),
        (2, ["%2"], "Submitted 2 trials to 2 jobs, 2 trials still queued"),
        (3, ["%2", "%1"], "Submitted 3 trials to 3 jobs, 1 trial still queued"),
    ],
)
def test_as_many_jobs_are_submitted_as_the_cluster_allows(
    queue: Store, place: Workplace, programs: Programs, monkeypatch: pytest.MonkeyPatch, limit: int,
    throttles: list[str], report: str,
) -> None:  # fmt: skip
    """An array beyond the limit is refused as a whole; its run directories are reused for the next one."""
    programs(
        sbatch=f"""n=$(/bin/grep -o 'array=0-[0-9]*' "$2" | /bin/grep -o '[0-9]*$'); n=$((n + 1))
had=$(/bin/cat {place.folder}/had 2>/dev/null || echo 0)
[ $((had + n)) -le {limit} ] || {{ echo '{JOB_LIMIT}' >&2; exit 1; }}
echo $((had + n)) > {place.folder}/had; echo $((70 + had))"""
    )
    created: list[str] = []
    create = RunDirectory.create

    def create_and_note(runs: Path, trial: Trial) -> RunDirectory:
        created.append(trial.id)
        return create(runs, trial)

    monkeypatch.setattr(RunDirectory, "create", create_and_note)
    output = submit(queue, place.settings, queue.find("queued"), PLAN).render()
    assert sorted(created) == sorted(queue.find(None))
    assert output == f"{report} (sbatch refuses: {JOB_LIMIT}): run `dropbench submit` again later."
    assert queue.counts()["submitted"] == limit
    scripts = [Path(row.folder) / "submission.sh" for row in queue.open_submissions()]
    lines = [line for file in scripts for line in file.read_text().splitlines() if "--array" in line]
    assert [line[-2:] for line in lines] == throttles
    with pytest.raises(InputError, match=JOB_LIMIT):
        submit(queue, place.settings, queue.find("queued"), PLAN)
    assert (queue.counts()["submitted"], queue.counts()["queued"]) == (limit, 4 - limit)


def test_submitted_trials_are_reported_although_the_next_array_is_refused(
    queue: Store, place: Workplace, programs: Programs
) -> None:
    programs(
        scontrol="echo 'MaxArraySize            = 3'",
        sbatch=f"""[ ! -e {place.folder}/had ] || {{ echo 'sbatch: error: no' >&2; exit 1; }}
>{place.folder}/had; echo 71""",
    )
    assert submit(queue, place.settings, queue.find("queued"), PLAN).render() == (
        "Submitted 2 trials to 2 jobs, 2 trials still queued (sbatch refuses: sbatch: error: no): "
        "run `dropbench submit` again later."
    )
    assert (queue.counts()["submitted"], queue.counts()["queued"]) == (2, 2)


def test_a_probe_submits_one_trial_of_each_kind_in_a_short_job(place: Workplace, programs: Programs) -> None:
    environment = {**place.environment, "PATH": os.environ["PATH"]}
    (place.folder / "dropbench.toml").write_text("[profiles.default]\ngpus = 8\ntime = 720\ntrials_per_job = 9\n")
    place.ok("enqueue", "tiny.yaml")
    shown = place.ok("submit", "--executor", "slurm", "--probe", "--dry-run", env=environment).stdout
    assert "#SBATCH --time=30\n" in shown
    assert "# 1 trial in 1 job, 1 array\n" in shown
    (done,) = json.loads(place.ok("submit", "--executor", "slurm", "--probe", "--json", env=environment).stdout)
    assert (done["trials"], done["workers"]) == (1, 1)
    refused = place.call("submit", "--probe", env=environment)
    assert refused.returncode == 2
    assert "--probe: it measures the cost of a cluster's GPUs: expected no --executor local" in refused.stderr


def fails_first(answers: Path, *errors: str) -> str:
    """Return a script of sbatch that fails with each error once."""
    lines = "\n".join(f'{number}) echo "{error}" >&2; exit 1;;' for number, error in enumerate(errors))
    count = f"n=$(/bin/cat {answers} 2>/dev/null || echo 0); echo $((n + 1)) > {answers}"
    return f"{count}\ncase $n in\n{lines}\n*) echo $((70 + n));; esac"


def test_a_controller_that_is_not_reached_is_asked_again(
    queue: Store, place: Workplace, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("dropbench.jobs.slurm.client.sleep", slept.append)
    errors = ["sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"] * 2
    programs(sbatch=fails_first(place.folder / "answers", *errors))
    assert submit(queue, place.settings, queue.find("queued"), PLAN).trials == 4
    assert slept == [2.0, 8.0]


def test_an_array_that_is_too_long_is_halved(queue: Store, place: Workplace, programs: Programs) -> None:
    """The cluster's MaxArraySize is not known if scontrol does not answer."""
    programs(sbatch=fails_first(place.folder / "answers", "sbatch: error: Invalid job array specification"))
    done = submit(queue, place.settings, queue.find("queued"), PLAN)
    assert (done.trials, done.queued) == (4, 0)
    assert [len(read_elements(Path(row.folder))) for row in queue.open_submissions()] == [2, 2]


def test_a_job_that_asks_for_too_much_is_refused_at_once(queue: Store, place: Workplace, programs: Programs) -> None:
    policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
    programs(sbatch=fails_first(place.folder / "answers", *[f"QOSMaxWallDurationPerJobLimit {policy}"] * 9))
    with pytest.raises(InputError, match="QOSMaxWallDurationPerJobLimit"):
        submit(queue, place.settings, queue.find("queued"), PLAN)
    assert (place.folder / "answers").read_text() == "1\n"
