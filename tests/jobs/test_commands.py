"""The commands around a run, as real processes; and what they say to wrong input."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.patience import PATIENCE, wait

if TYPE_CHECKING:
    from pathlib import Path

    from tests.jobs.workplace import Workplace


def counted(place: Workplace) -> dict[str, int]:
    """`dropbench status --json`, the states that are not 0."""
    done = place.call("status", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["queued", "submitted", "running", "succeeded", "failed", "cancelled", "skipped", "as_of"]
    age = datetime.now(UTC) - datetime.fromisoformat(found.pop("as_of"))
    assert timedelta(0) <= age < timedelta(minutes=1)
    return {state: count for state, count in found.items() if count}


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.suffix != ".db-shm"}


def test_the_queue_without_waiting(place: Workplace) -> None:
    done = place.call("enqueue", "tiny.yaml")
    assert done.stdout == "4 trials are new, 0 were there; 4 wait: dropbench submit\n", done.stderr
    again = json.loads(place.call("enqueue", "tiny.yaml", "--seeds", "3", "--json").stdout)
    assert (len(again["added"]), len(again["present"]), again["requeued"]) == (2, 4, [])
    assert counted(place) == {"queued": 6}
    dry = place.call("submit", "--parallel", "2", "--dry-run")
    assert dry.stdout == "6 trials would be given to 2 workers (local)\n"
    assert not place.directories(), "a dry run makes nothing"

    place.pause.write_text("2")
    some = place.call("submit", "regularizer=none", "--parallel", "1")
    assert some.stdout == "3 trials were given to 1 workers; to follow them: dropbench watch\n", some.stderr
    full = place.call("submit", "--parallel", "1")
    assert full.stdout == "all 1 places are taken: 3 trials wait; later: dropbench submit\n", full.stderr
    wait(place.running, "a trial in training")
    before = contents(place.folder)
    assert counted(place)["running"] == 1
    changed = {file for file, content in contents(place.folder).items() if before.get(file) != content}
    trained = {file for file in changed if place.runs in file.parents and ".submitit" not in file.parts}
    assert changed == trained, "only the worker writes, and only run directories"

    id = place.running()[0].id
    place.pause.write_text("0.1")
    log = place.call("logs", id[:6], "--follow")
    assert "step 40/40" in log.stdout, log.stderr
    place.pause.write_text("0")
    watched = place.call("watch", "--interval", "0.2")
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout.splitlines()[-2:] == [
        "3 queued, 3 succeeded",
        "3 trials are queued, and nobody works on them: dropbench submit, or dropbench run SUITE",
    ]
    assert counted(place) == {"queued": 3, "succeeded": 3}
    debugged = place.call("submit", "--executor", "debug")
    assert debugged.returncode == 0, debugged.stderr
    assert counted(place) == {"succeeded": 6}
    assert place.call("submit").stdout == "nothing is queued: dropbench enqueue SUITE, or dropbench retry FILTER\n"


def test_cancelling_a_run_from_elsewhere(place: Workplace) -> None:
    place.pause.write_text("2")  # 80 s, in which another process surely starts
    process = place.start("run", "tiny.yaml", "--parallel", "1")
    wait(place.running, "a trial in training")
    said = place.call("cancel", "suite=tiny")
    assert said.stdout == "3 trials are cancelled, 1 running ones stop after this step\n", said.stderr
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "and 3 more cancelled: cancelled by the user" in err
    assert counted(place) == {"cancelled": 4}
    nothing = place.call("cancel", "tiny")
    assert nothing.stdout == "none of the 4 trials that match 'tiny' is queued, submitted or running: 4 cancelled\n"
    assert place.call("retry", "seed=0").stdout.startswith("2 trials are queued again")
    assert place.call("retry", "seed=7").stdout == "no trial matches 'seed=7': dropbench status counts what there is\n"
    place.pause.write_text("0")
    again = place.call("run", "tiny.yaml", "--parallel", "1")
    assert again.returncode == 0, again.stderr
    assert counted(place) == {"succeeded": 4}
    resumed = [event for one in place.directories() for event in one.events() if event["event"] == "resume"]
    assert max(event["step"] for event in resumed) > 0, "the running one went on from its checkpoint"


def test_collect_after_everybody_was_killed(place: Workplace) -> None:
    place.pause.write_text("0.5")
    process = place.start("run", "tiny.yaml", "--parallel", "1")
    wait(place.running, "a trial in training")
    process.kill()
    process.communicate()
    place.clean()
    assert counted(place) == {"queued": 4}, "the truth, although the database has another idea"
    shown = place.call("status").stdout
    assert "4 run directories of active trials were looked at" in shown
    assert "4 of them know more than the database: dropbench collect" in shown
    changed = json.loads(place.call("collect", "--json").stdout)
    assert sorted(changed.values()) == ["queued"] * 4
    assert place.call("collect").stdout == "0 trials changed their state\n"
    assert "0 run directories" in place.call("status").stdout


WRONG = [
    (["run", "tny"], "unknown suite 'tny'"),
    (["run", "quickstrt"], "did you mean quickstart?"),
    (["run", "missing.yaml"], "missing.yaml: no such suite file"),
    (["run"], "nothing to run: expected a SUITE (dropbench list suites), or --task, --data, --model as well"),
    (["run", "--task", "tiny", "--data", "tiny"], "or --model as well"),
    (["run", "--task", "tny", "--data", "x", "--model", "y"], "unknown task 'tny': did you mean tiny?"),
    (["run", "tiny.yaml", "--task", "tiny"], "--task tiny: suite tiny.yaml says that itself"),
    (["run", "tiny.yaml", "--set", "lr"], "--set lr: expected key=value"),
    (["run", "tiny.yaml", "--set", "larning=1"], "unknown recipe key 'larning'"),
    (["run", "tiny.yaml", "--set", "lr=-1"], "lr=-1"),
    (["run", "tiny.yaml", "--preset", "minni"], "unknown preset of tiny 'minni': did you mean mini?"),
    (["run", "tiny.yaml", "--data", "tinny"], "unknown data of tiny 'tinny': did you mean tiny?"),
    (["run", "tiny.yaml", "--data", "digits=/nowhere"], "--data digits=/nowhere: no folder /nowhere"),
    (["run", "tiny.yaml", "--executor", "lokal"], "unknown executor 'lokal': did you mean local?"),
    (["run", "tiny.yaml", "--device", "gpu"], "unknown device 'gpu': "),
    (["run", "tiny.yaml", "--parallel", "0"], "'--parallel': Input should be greater than or equal to 1"),
    (["run", "tiny.yaml", "--plugin", "nowhere.py"], "nowhere.py: No such file or directory: expected a Python file"),
    (["submit", "--executor", "slurm"], "dropbench.toml: not found: expected a table [profiles.default] in it"),
    (["logs", "abc"], "no trial 'abc' was started in"),
    (["status"], "no database yet"),
    (["retry", "failed"], "no database yet"),
]


@pytest.mark.parametrize(("arguments", "said"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_wrong_input_is_one_line_and_exit_code_2(
    place: Workplace,
    arguments: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tiny: object,
) -> None:
    from harness.cli import run

    monkeypatch.chdir(place.folder)
    for name in ("DROPBENCH_RUNS", "DROPBENCH_DB", "DROPBENCH_PLUGINS"):
        monkeypatch.setenv(name, place.environment[name])
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("dropbench: ")
    assert said in line
    assert not place.runs.exists(), "something was begun"


def test_commands_are_light_to_import(place: Workplace) -> None:
    heavy = "{'torch', 'submitit', 'sqlalchemy', 'pydantic'}"
    code = f"import sys, jobs.commands, jobs.queue_commands; print(sorted({heavy} & set(sys.modules)))"
    done = place.call(program=["-c", code])
    assert done.stdout == "[]\n", done.stderr


def test_a_log_that_is_not_there_yet_and_an_ambiguous_id(place: Workplace, tiny: Callable[..., list[Any]]) -> None:
    from harness.rundir import RunDirectory

    trials = tiny(17)
    for trial in trials:
        RunDirectory.create(place.runs, trial)
    # Of 17 ids of 16 digits, two begin alike.
    starts = [trial.id[0] for trial in trials]
    double = next(start for start in starts if starts.count(start) > 1)
    several: subprocess.CompletedProcess[str] = place.call("logs", double)
    assert (several.returncode, several.stdout) == (2, "")
    assert f"'{double}' is the beginning of {starts.count(double)} trials: " in several.stderr
    empty = place.call("logs", trials[0].id)
    assert (empty.returncode, empty.stdout) == (2, "")
    assert "no log yet: the trial has not begun" in empty.stderr


@pytest.mark.parametrize(("limit", "threads"), [("1", 1), ("10000", None), ("", None), ("all", None)])
def test_a_worker_has_its_share_of_the_cores_or_fewer(
    monkeypatch: pytest.MonkeyPatch, limit: str, threads: int | None
) -> None:
    from jobs.commands import _plan

    monkeypatch.setenv("OMP_NUM_THREADS", limit)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    assert _plan("local", 2, ("local",)).threads == (threads or 4)
