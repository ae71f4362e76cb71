"""SLURM's answers, good and bad, by programs of that name that say what they are told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from db.snapshot import snapshot
from db.store import Store, open_store
from harness.errors import InputError
from harness.rundir import RunDirectory
from harness.trial import Trial
from jobs import slurm
from jobs.attempts import now
from jobs.collect import Verdict, collect, judge
from jobs.dispatch import Plan, dispatch
from jobs.job import ELEMENTS, find, name
from jobs.profile import Profile
from jobs.queue import cancel, enqueue
from jobs.slurm import Execution, View
from jobs.status import look_at
from jobs.submit import by_profile, submit_all
from jobs.wishes import STOP, Wishes
from jobs.worker import BEGAN

if TYPE_CHECKING:
    from tests.jobs.workplace import Workplace

Programs = Callable[..., None]
SUBMIT = Plan("slurm", profile=Profile())


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Programs:
    """Makes programs of these names, and takes away all others; None: away with it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def make(**scripts: str | None) -> None:
        for program, script in scripts.items():
            if script is None:
                (folder / program).unlink(missing_ok=True)
            else:
                (folder / program).write_text(f"#!/bin/sh\n{script}\n")
                (folder / program).chmod(0o755)

    make(srun="", sbatch="echo 71", squeue="", scancel="")
    return make


@pytest.fixture
def store(place: Workplace, tiny: Callable[..., list[Trial]]) -> Iterator[Store]:
    """With four trials in the queue."""
    with open_store(place.database) as opened:
        enqueue(opened, place.settings, [(trial, "tiny") for trial in tiny(seeds=4)])
        yield opened


def states(store: Store) -> set[str]:
    return {row.state for row in store.states().values()}


def test_executions_of_requeued_jobs_and_of_arrays(programs: Programs) -> None:
    programs(
        sacct="""/bin/cat <<'.'
7_0|NODE_FAIL|node1|2026-01-31T12:00:00|0:0|
7_0.batch|CANCELLED|node1|2026-01-31T12:00:00||1.5M
7_0|RUNNING|node2|2026-01-31T12:01:00|0:0|
7_1|CANCELLED by 1000|None assigned|Unknown|0:0|
8|FAILED|node1|2026-01-31T12:00:00|0:9|
8.batch|FAILED|node1|2026-01-31T12:00:00|0:9|2K
8.0|OUT_OF_MEMORY|node1|2026-01-31T12:00:00|0:125|3G
."""
    )
    found = slurm.executions(["7", "8"])
    first, second = found["7_0"]
    assert first == Execution("NODE_FAIL", "node1", "2026-01-31T12:00:00+00:00", "0:0", ("CANCELLED",), 1572864)
    assert second.alive
    assert found["7_1"] == [Execution("CANCELLED", "None assigned", None, "0:0")]
    assert slurm.cause(found["8"][0]) == ("out_of_memory", "killed for its memory of 3,072 MiB on node1")

    view = View(now={"a": {0: second}}, executions=found, lag=0.0)
    assert view.ended("a", "7_0", "2026-01-31T12:00:03.250+00:00") == first
    assert view.ended("a", "7_0", "2026-01-31T12:01:02.000+00:00") is None, "it runs"


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
        (Execution("FAILED", code="0:9"), "", None),
        (Execution("COMPLETED"), "", None),
    ],
)
def test_why_a_job_ended(execution: Execution, log: str, state: str | None) -> None:
    found = slurm.cause(execution, log)
    assert (found[0] if found else None) == state


def test_accounting_that_is_behind_is_waited_for_and_one_that_is_not_there_is_done_without(
    programs: Programs, tmp_path: Path
) -> None:
    running, ended = "7_0|RUNNING|node1|2026-01-31T12:00:00|0:0|", "7_0|NODE_FAIL|node1|2026-01-31T12:00:00|0:0|"
    programs(
        squeue="echo '7|0|PENDING|||a'",
        sacct=f"if [ -e {tmp_path}/asked ]; then echo '{ended}'; else : > {tmp_path}/asked; echo '{running}'; fi",
    )
    view = slurm.look([("a", None)], causes=True)
    assert view.numbers == {"a": "7"}
    found = view.ended("a", "7_0", "2026-01-31T12:00:01+00:00")
    assert found is not None
    assert found.state == "NODE_FAIL"
    assert 0 < view.lag < slurm.LAG
    programs(squeue="echo '7|0|TIMEOUT|node1|2026-01-31T12:00:00|a'", sacct="echo 'sacct: error: no' >&2; exit 1")
    found = slurm.look([("a", None)], causes=True).ended("a", "7_0", "2026-01-31T12:00:01+00:00")
    assert found is not None
    assert found.state == "TIMEOUT"


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "no scontrol here"),
        ("echo 'slurm_load: Unable to\n contact' >&2; exit 1", "scontrol: slurm_load: Unable to contact"),
        ("exit 3", "scontrol: exit code 3"),
        ("exec /bin/sleep 5", "scontrol did not answer within 0 s"),
    ],
)
def test_a_program_that_gives_no_answer(programs: Programs, script: str | None, said: str) -> None:
    programs(scontrol=script)
    with pytest.raises(slurm.NoAnswerError) as raised:
        slurm.call("scontrol", patience=0.3)
    assert str(raised.value) == said


def test_the_largest_array_is_the_clusters(programs: Programs) -> None:
    programs(scontrol="echo 'MaxArraySize            = 51'")
    assert slurm.largest_array() == 50
    programs(scontrol="exit 3")
    assert slurm.largest_array() == slurm.MAX_ARRAY


def test_questions_are_answered_in_utc_and_a_job_has_the_users_own_clock(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    monkeypatch.setenv("SQUEUE_FORMAT", "%i")
    programs(squeue='echo "$TZ $SQUEUE_FORMAT"', sbatch='echo "$TZ"')
    assert slurm.call("squeue").split() == ["UTC"]
    assert slurm.call("sbatch").split() == ["Europe/Berlin"]


def test_trials_are_packed_and_arrays_split(store: Store, place: Workplace, programs: Programs) -> None:
    programs(scontrol="echo 'MaxArraySize            = 2'")
    plan = Plan("slurm", profile=Profile(), pack=3, throttle=1)
    first = dispatch(store, place.settings, store.find(None), plan)
    assert first is not None
    assert (len(first.trials), first.workers, first.job) == (3, 1, "71")
    folder = place.runs / ".submitit" / first.submission
    assert json.loads((folder / ELEMENTS).read_text()) == dict.fromkeys(first.trials, 0)
    assert (folder / "0.pkl").exists(), "what the job needs is there before sbatch is called"
    second = dispatch(store, place.settings, store.find(None), Plan("slurm", profile=Profile(), pack=3, after="71"))
    assert second is not None
    assert len(second.trials) == 1
    script = (place.runs / ".submitit" / second.submission / "submission.sh").read_text().splitlines()
    assert "#SBATCH --dependency=afterany:71" in script
    assert "#SBATCH --kill-on-invalid-dep=yes" in script


@pytest.mark.parametrize(("nodes", "line"), [("n1 n2", "#SBATCH --exclude=n1"), ("n1", None)])
def test_a_node_that_failed_under_a_trial_is_left_out(
    store: Store, place: Workplace, programs: Programs, nodes: str, line: str | None
) -> None:
    """But for a partition that has no other."""
    programs(sinfo=f"printf '%s\\n' {nodes}")
    hurt, *sound = store.find(None)
    directory = RunDirectory.create(place.runs, store.trial(hurt))
    directory.write_attempt(1, {"state": "node_failure", "node": "n1", "started_at": now(), "ended_at": now()})
    for expected, excluded in (([hurt], line), (sound, None)):
        done = dispatch(store, place.settings, store.find("queued"), SUBMIT)
        assert done is not None
        assert done.trials == expected
        script = (place.runs / ".submitit" / done.submission / "submission.sh").read_text().splitlines()
        assert [said for said in script if "--exclude" in said] == ([excluded] if excluded else [])


def test_trials_go_to_the_profile_that_is_for_them(
    store: Store, place: Workplace, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place.folder)
    ids = store.find(None)
    toml = f"[profiles.big]\ntime = 7\ntrials = '{ids[1]}'\n[profiles.other]\ntrials = 'seed=77'\n"
    Path("dropbench.toml").write_text(toml)
    plan = Plan("slurm")
    with pytest.raises(InputError, match=r"unknown profile of dropbench.toml 'default': known: big, other"):
        list(by_profile(store, ids, plan, None))
    Path("dropbench.toml").write_text(f"{toml}[profiles.default]\ntime = 9\n")
    found = [(group, its.profile.time) for group, its in by_profile(store, ids, plan, None) if its.profile]
    assert found == [([ids[1]], 7), ([ids[0], *ids[2:]], 9)]
    (only,) = by_profile(store, ids, plan, "big")
    assert only == (ids, Plan("slurm", profile=Profile(time=7, trials=ids[1])))
    assert list(by_profile(store, ids, Plan(), None)) == [(ids, Plan())]


def test_what_sbatch_did_in_spite_of_its_error_is_found(store: Store, place: Workplace, programs: Programs) -> None:
    programs(
        sbatch=f"""echo 'sbatch: error: Socket timed out' >&2
n=$(/bin/grep -h -o 'dropbench-[0-9a-f]*' "$2"); echo "72|0|PENDING|||$n" > {place.folder}/listed; exit 1""",
        squeue=f"/bin/cat {place.folder}/listed",
    )
    done = dispatch(store, place.settings, store.find(None), SUBMIT)
    assert done is not None
    assert done.job == "72"
    assert states(store) == {"submitted"}


def test_a_refusal_leaves_the_queue_as_it_was(store: Store, place: Workplace, programs: Programs) -> None:
    programs(sbatch="echo 'sbatch: error: invalid partition' >&2; exit 1")
    with pytest.raises(InputError, match=r"^sbatch refuses: sbatch: error: invalid partition$"):
        dispatch(store, place.settings, store.find(None), SUBMIT)
    assert states(store) == {"queued"}
    assert store.open_submissions() == []


FULL = "sbatch: error: AssocMaxSubmitJobLimit"


@pytest.mark.parametrize(
    ("most", "given", "told"),
    [
        (1, ["%1"], "1 trials were given to 1 jobs, 3 wait"),
        (2, ["%2"], "2 trials were given to 2 jobs, 2 wait"),
        (3, ["%2", "%1"], "3 trials were given to 3 jobs, 1 wait"),
    ],
)
def test_a_cluster_is_given_as_many_jobs_as_it_takes(
    store: Store, place: Workplace, programs: Programs, monkeypatch: pytest.MonkeyPatch, most: int, given: list[str],
    told: str,
) -> None:  # fmt: skip
    """Here an account may have so many; an array that is too large is refused whole, and its folders serve the next."""
    programs(
        sbatch=f"""n=$(/bin/grep -o 'array=0-[0-9]*' "$2" | /bin/grep -o '[0-9]*$'); n=$((n + 1))
had=$(/bin/cat {place.folder}/had 2>/dev/null || echo 0)
[ $((had + n)) -le {most} ] || {{ echo '{FULL}' >&2; exit 1; }}
echo $((had + n)) > {place.folder}/had; echo $((70 + had))"""
    )
    made: list[str] = []
    create = RunDirectory.create

    def noted(runs: Path, trial: Trial) -> RunDirectory:
        made.append(trial.id)
        return create(runs, trial)

    monkeypatch.setattr(RunDirectory, "create", noted)
    said = submit_all(store, place.settings, store.find("queued"), SUBMIT)
    assert sorted(made) == sorted(store.find(None))
    assert said == f"{told} (sbatch refuses: {FULL}); later: dropbench submit"
    assert store.counts()["submitted"] == most
    scripts = [Path(one.folder) / "submission.sh" for one in store.open_submissions()]
    assert [line[-2:] for file in scripts for line in file.read_text().splitlines() if "--array" in line] == given
    with pytest.raises(InputError, match=FULL):
        submit_all(store, place.settings, store.find("queued"), SUBMIT)
    assert (store.counts()["submitted"], store.counts()["queued"]) == (most, 4 - most)


def test_what_was_given_is_told_though_the_next_array_is_refused(
    store: Store, place: Workplace, programs: Programs
) -> None:
    programs(
        scontrol="echo 'MaxArraySize            = 3'",
        sbatch=f"""[ ! -e {place.folder}/had ] || {{ echo 'sbatch: error: no' >&2; exit 1; }}
>{place.folder}/had; echo 71""",
    )
    said = submit_all(store, place.settings, store.find("queued"), SUBMIT)
    assert said == (
        "2 trials were given to 2 jobs, 2 wait (sbatch refuses: sbatch: error: no); later: dropbench submit"
    )
    assert (store.counts()["submitted"], store.counts()["queued"]) == (2, 2)


def test_trials_whose_job_never_began_are_not_looked_at(store: Store, place: Workplace, programs: Programs) -> None:
    """They wait, whatever their run directories may hold by now; but not once they are asked to stop."""
    done = dispatch(store, place.settings, store.find(None), Plan("slurm", profile=Profile(), pack=2))
    assert done is not None
    lines = "\n".join(f"71|{element}|PENDING||N/A|{name(done.submission)}" for element in range(2))
    programs(squeue=f"echo '{lines}'")
    assert (look_at(store, place.settings).looked, collect(store, place.settings)) == (0, {})
    result = {"metrics": {"test/accuracy": 1.0}}
    for id in (done.trials[0], done.trials[3]):
        RunDirectory(place.runs / id).write_result(result)
    assert look_at(store, place.settings).counts["submitted"] == 4
    (place.runs / ".submitit" / done.submission / f"71_0{BEGAN}").touch()
    assert (look_at(store, place.settings).looked, look_at(store, place.settings).ahead) == (2, 1)
    assert collect(store, place.settings) == {done.trials[0]: "succeeded"}
    assert cancel(store, place.settings, [done.trials[2]]).waiting == [done.trials[2]]
    programs(squeue="")  # the job is gone
    assert collect(store, place.settings) == {done.trials[1]: "queued", done.trials[3]: "succeeded"}


def test_a_trial_that_was_begun_with_before_is_looked_at(store: Store, place: Workplace, programs: Programs) -> None:
    """Its first worker may live on somewhere."""
    (id, *_) = store.find(None)
    directory = RunDirectory.create(place.runs, store.trial(id))
    directory.write_attempt(1, {"state": "node_failure", "node": "n1", "started_at": now(), "ended_at": now()})
    store.record([snapshot(directory)])
    store.set_states({id: ("queued", None)})
    done = dispatch(store, place.settings, [id], SUBMIT)
    assert done is not None
    programs(squeue=f"echo '71|0|PENDING||N/A|{name(done.submission)}'")
    directory.write_result({"metrics": {"test/accuracy": 1.0}})
    assert look_at(store, place.settings).looked == 1
    assert collect(store, place.settings) == {id: "succeeded"}


def test_when_nobody_answers_nothing_is_started_twice(store: Store, place: Workplace, programs: Programs) -> None:
    programs(sbatch="echo 'Socket timed out' >&2; exit 1", squeue="exit 1")
    with pytest.raises(InputError, match="is not known: dropbench collect finds out"):
        dispatch(store, place.settings, store.find(None), SUBMIT)
    assert states(store) == {"submitted"}
    assert dispatch(store, place.settings, store.find(None), SUBMIT) is None
    collect(store, place.settings)
    assert states(store) == {"submitted"}, "squeue does not answer"
    (submission,) = store.open_submissions()
    programs(squeue="")
    collect(store, place.settings)
    assert states(store) == {"queued"}
    # Should the job appear after all, it ends at once.
    assert (Path(submission.folder) / STOP).exists()
    assert Wishes(Path(submission.folder)).to_stop()


def test_a_job_that_failed_is_blamed_on_a_trial_only_where_its_worker_never_began(
    store: Store, place: Workplace, programs: Programs
) -> None:
    done = dispatch(store, place.settings, store.find(None), Plan("slurm", profile=Profile(), pack=2))
    assert done is not None
    folder = place.runs / ".submitit" / done.submission
    (folder / f"71_1{BEGAN}").touch()
    (folder / "71_0_0_log.err").write_text("x\nsetup: line 3: module: command not found\n")
    lines = "\n".join(f"71|{element}|FAILED|node1|2026-01-31T12:00:00|{name(done.submission)}" for element in range(2))
    programs(squeue=f"echo '{lines}'")
    collect(store, place.settings)
    rows = store.states(done.trials)
    assert [rows[id].state for id in done.trials] == ["failed", "failed", "queued", "queued"]
    told = "its job ended before the trial began: x / setup: line 3: module: command not found"
    assert rows[done.trials[0]].reason == told


def test_an_attempt_elsewhere_is_dead_when_its_job_waits_again(
    store: Store, place: Workplace, programs: Programs
) -> None:
    done = dispatch(store, place.settings, store.find(None)[:1], SUBMIT)
    assert done is not None
    directory = RunDirectory(place.runs / done.trials[0])
    attempt = {"state": "running", "submission": done.submission, "job_id": "71_0", "started_at": now()}
    directory.write_attempt(1, attempt)
    programs(squeue=f"echo '71|0|PENDING||N/A|{name(done.submission)}'")
    (job,) = find(store.open_submissions(), place.settings, causes=True).values()
    assert judge(directory, job) == Verdict("running"), "it may have begun after squeue looked"
    directory.write_attempt(1, {**attempt, "started_at": "2026-01-31T12:00:00.000+00:00"})
    assert judge(directory, job) == Verdict("submitted", "its worker was killed", died=True)


def test_jobs_that_were_cancelled_before_they_began(store: Store, place: Workplace, programs: Programs) -> None:
    done = dispatch(store, place.settings, store.find(None), SUBMIT)
    assert done is not None
    lines = "\n".join(f"71|{element}|CANCELLED|||{name(done.submission)}" for element in range(4))
    programs(squeue=f"echo '{lines}'")
    assert set(collect(store, place.settings).values()) == {"cancelled"}
    assert {row.reason for row in store.states().values()} == {"cancelled on the cluster"}
