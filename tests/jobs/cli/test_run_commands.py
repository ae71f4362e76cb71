"""The commands on the queue in real processes, and their reports of invalid input."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.cli import main
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.jobs.cli.options import RunOptions
from tests.harness.attention.attention_case import needs_triton
from tests.jobs.workplace import Programs, Tiny, Workplace
from tests.patience import PATIENCE, wait

Run = Callable[[list[str]], int]


def count_states(place: Workplace) -> dict[str, int]:
    """Return the nonzero counts of `dropbench status --json`."""
    done = place.ok("status", "--json")
    counts = json.loads(done.stdout)
    assert list(counts) == ["queued", "submitted", "running", "succeeded", "failed", "cancelled", "skipped", "as_of"]
    age = datetime.now(UTC) - datetime.fromisoformat(counts.pop("as_of"))
    assert timedelta(0) <= age < timedelta(minutes=1)
    return {state: count for state, count in counts.items() if count}


def contents(folder: Path) -> dict[Path, bytes]:
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.suffix != ".db-shm"}


@pytest.mark.slow
def test_enqueue_submit_watch_and_logs(place: Workplace) -> None:
    done = place.call("enqueue", "tiny.yaml", fresh=True)
    assert done.stdout == "Added 4 trials (0 already present). 4 queued; run `dropbench submit`.\n", done.stderr
    again = json.loads(place.call("enqueue", "tiny.yaml", "--seeds", "3", "--json").stdout)
    assert (len(again["added"]), len(again["present"]), again["requeued"]) == (2, 4, [])
    assert count_states(place) == {"queued": 6}
    dry = place.call("submit", "--parallel", "2", "--dry-run")
    assert dry.stdout == "Would submit 6 trials to 2 workers (local).\n"
    assert not place.directories(), "a dry run creates nothing"

    place.pause.write_text("2")
    some = place.call("submit", "regularizer=none", "--parallel", "1", fresh=True)
    assert some.stdout == "Submitted 3 trials to 1 worker. Follow them with `dropbench status --watch`.\n", some.stderr
    full = place.call("submit", "--parallel", "1")
    assert full.stdout == (
        "All worker slots (1) are in use, 3 trials still queued: run `dropbench submit` again later.\n"
    ), full.stderr
    wait(place.running, "a trial in training")
    before = contents(place.folder)
    assert count_states(place)["running"] == 1
    changed = {file for file, content in contents(place.folder).items() if before.get(file) != content}
    trained = {file for file in changed if place.runs in file.parents and ".submitit" not in file.parts}
    assert changed - {place.folder / "bench.db"} == trained, "the worker writes only to run directories"

    id = place.running()[0].id
    place.pause.write_text("0.1")
    log = place.call("logs", id[:6], "--follow", fresh=True)
    assert "step 40/40" in log.stdout, log.stderr
    place.pause.write_text("0")
    watched = place.ok("status", "--watch", fresh=True)
    assert watched.stdout.splitlines()[-2:] == [
        "3 queued, 3 succeeded",
        "3 trials queued without workers: run `dropbench submit` or `dropbench run SUITE`.",
    ]
    assert count_states(place) == {"queued": 3, "succeeded": 3}
    place.ok("submit", "--executor", "debug")
    assert count_states(place) == {"succeeded": 6}
    assert place.call("submit").stdout == (
        "Nothing is queued: run `dropbench enqueue SUITE` or `dropbench retry failed`.\n"
    )


@pytest.mark.slow
def test_a_run_is_cancelled_by_another_process(place: Workplace) -> None:
    place.pause.write_text("2")  # 80 s, in which another process can start
    process = place.start("run", "tiny.yaml", "--parallel", "1")
    wait(place.running, "a trial in training")
    cancelled = place.call("cancel", "suite=tiny", fresh=True)
    assert cancelled.stdout == "Cancelled 3 trials; 1 running will stop after the current step.\n", cancelled.stderr
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "and 3 more cancelled: cancelled by the user" in err
    assert count_states(place) == {"cancelled": 4}
    nothing = place.call("cancel", "tiny")
    assert nothing.stdout == "None of the 4 trials that match 'tiny' is queued, submitted or running: 4 cancelled.\n"
    assert place.call("retry", "seed=0").stdout.startswith("Requeued 2 trials: ")
    unmatched = place.call("retry", "seed=7").stdout
    assert unmatched == "No trial matches 'seed=7': run `dropbench status` to count the trials.\n"
    place.pause.write_text("0")
    place.ok("run", "tiny.yaml", "--parallel", "1")
    assert count_states(place) == {"succeeded": 4}
    resumed = [event for run in place.directories() for event in run.events() if event["event"] == "resume"]
    assert max(event["step"] for event in resumed) > 0, "the running trial resumes from its checkpoint"


@pytest.fixture
def run(place: Workplace, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return the command line in this process, at the workplace."""
    monkeypatch.chdir(place.folder)
    for name in ("DROPBENCH_RUNS", "DROPBENCH_DB", "DROPBENCH_PLUGINS"):
        monkeypatch.setenv(name, place.environment[name])
    return main.run


INVALID = [
    (["run", "tny"], "unknown suite 'tny'"),
    (["run", "missing.yaml"], "missing.yaml: no such suite file"),
    (["run"], "nothing to run: pass a SUITE (`dropbench list suites`), or --task, --data, --model as well"),
    (["run", "--task", "tiny", "--data", "tiny"], "or --model as well"),
    (["run", "--task", "tny", "--data", "x", "--model", "y"], "unknown task 'tny': did you mean tiny?"),
    (["run", "tiny.yaml", "--task", "tiny"], "--task tiny: suite tiny.yaml defines it"),
    (["run", "tiny.yaml", "--set", "lr"], "--set lr: expected key=value"),
    (["run", "tiny.yaml", "--set", "lr=-1"], "lr=-1"),
    (["run", "tiny.yaml", "--preset", "minni"], "unknown preset of tiny 'minni': did you mean mini?"),
    (["run", "tiny.yaml", "--data", "tinny"], "unknown data of tiny 'tinny': did you mean tiny?"),
    (["run", "tiny.yaml", "--data", "digits=/nowhere"], "--data digits=/nowhere: /nowhere is not a folder"),
    (["run", "tiny.yaml", "--executor", "lokal"], "unknown executor 'lokal': did you mean local?"),
    (["run", "tiny.yaml", "--device", "gpu"], "unknown device 'gpu': "),
    (["run", "tiny.yaml", "--parallel", "0"], "'--parallel': Input should be greater than or equal to 1"),
    (["run", "tiny.yaml", "--plugin", "nowhere.py"], "nowhere.py: No such file or directory: expected a Python file"),
    (
        ["submit", "--executor", "slurm", "--profile", "a100"],
        "dropbench.toml: not found: create it with a table [profiles.a100]",
    ),
    (["logs", "abc"], "no trial 'abc' in"),
    (["status"], "no database yet"),
    (["retry", "failed"], "no database yet"),
    (["run", "tiny.yaml", "--sweep", "rato=0.1"], "unknown parameter of the regularizers of tiny 'rato': did you mean"),
    (["run", "tiny.yaml", "--sweep", "ratio"], "--sweep ratio: expected key=values"),
    (["run", "tiny.yaml", "--search", "sampler=tpe,candidates=2"], "--search: tiny has no sweep"),
    (["run", "tiny.yaml", "--sweep", "ratio=0.1", "--search", "sampler=x"], "--search sampler=x: sampler=x: input"),
    (["run", "--task", "tiny", "--sweep", "ratio=0.1"], "--sweep ratio=0.1: a SUITE is required"),
    (["enqueue", "tiny.yaml", "--sweep", "set.rl=0.1"], "unknown recipe key 'rl'"),
    (["logs", "ffff", "--follow"], "no trial 'ffff' in"),
]


@pytest.mark.parametrize(("arguments", "message"), INVALID, ids=[" ".join(arguments) for arguments, _ in INVALID])
def test_invalid_input_is_one_line_and_exit_code_2(
    place: Workplace, run: Run, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tiny: object
) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    (line,) = err.splitlines()
    assert line.startswith("dropbench: ")
    assert message in line
    assert not place.runs.exists(), "nothing is started"


SLURM = ["submit", "--executor", "slurm", "--profile", "default"]


@needs_triton
@pytest.mark.parametrize("command", [["run", "tiny.yaml"], ["submit"], SLURM], ids=" ".join)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda"], "device cuda: torch sees no GPU: install torch for its driver, or use `--device cpu`"),
        (["--backend", "triton"], "backend triton: its kernels run on CUDA, not on cpu: use `--backend auto`"),
    ],
    ids=str,
)
def test_missing_hardware_is_an_error_before_anything_is_queued(
    place: Workplace, run: Run, command: list[str], options: list[str], message: str,
    capsys: pytest.CaptureFixture[str], no_gpu: None,
) -> None:  # fmt: skip
    """The nodes of a cluster may have what the submitting host lacks."""
    assert run([*command, *options]) == 2
    on_a_cluster = "slurm" in command
    assert ("dropbench.toml: not found" if on_a_cluster else message) in capsys.readouterr().err
    assert on_a_cluster or not (place.folder / "bench.db").exists()


def test_submit_to_a_cluster_needs_no_profile(
    place: Workplace, run: Run, programs: Programs, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["enqueue", "tiny.yaml"]) == 0
    capsys.readouterr()
    assert run(["submit", "--executor", "slurm"]) == 0
    captured = capsys.readouterr()
    assert captured.out == "Submitted 4 trials to 4 jobs. Follow them with `dropbench status --watch`.\n"
    assert captured.err == (
        "No dropbench.toml: each job requests the cluster's default partition and memory, 1 CPU core, no GPU and "
        "60 minutes; a table [profiles.default] in it changes them.\n"
    )
    (script,) = place.runs.glob(".submitit/*/submission.sh")
    options = script.read_text()
    assert "--time=60" in options
    assert not [word for word in ("--partition", "--mem", "--gpus") if word in options]


def test_a_profile_without_gpus_does_not_take_trials_for_a_gpu(
    place: Workplace, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    (place.folder / "dropbench.toml").write_text("[profiles.default]\ngpus = 0\n")
    assert run(["enqueue", "tiny.yaml"]) == 0
    for options in ([], ["--dry-run"]):
        assert run(["submit", "--executor", "slurm", "--device", "cuda", *options]) == 2
        assert "--device cuda: the cluster profile requests no GPU: set `gpus`" in capsys.readouterr().err


def test_commands_import_no_heavy_library(place: Workplace) -> None:
    heavy = "{'torch', 'submitit', 'sqlalchemy', 'pydantic'}"
    commands = ("run_commands", "submit_command", "queue_commands", "check_commands")
    code = f"import sys, {', '.join(f'dropbench.jobs.cli.{name}' for name in commands)};"
    code += f"print(sorted({heavy} & set(sys.modules)))"
    done = place.call(program=["-c", code])
    assert done.stdout == "[]\n", done.stderr


def test_a_missing_log_and_an_ambiguous_id(place: Workplace, tiny: Tiny) -> None:
    trials = tiny(17)
    for trial in trials:
        RunDirectory.create(place.runs, trial)
    # Two of 17 ids begin with the same hexadecimal digit.
    starts = [trial.id[0] for trial in trials]
    double = next(start for start in starts if starts.count(start) > 1)
    several: subprocess.CompletedProcess[str] = place.call("logs", double)
    assert (several.returncode, several.stdout) == (2, "")
    assert f"'{double}' matches {starts.count(double)} trials in " in several.stderr
    empty = place.call("logs", trials[0].id)
    assert (empty.returncode, empty.stdout) == (2, "")
    assert "no log yet: the trial has not started" in empty.stderr


def test_the_number_of_workers_changes_the_threads_of_a_trial_only_with_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(parallel: int | None, **options: Any) -> tuple[int, int]:
        made = RunOptions(**options).plan("local", parallel, ("local",))
        return made.parallel, made.threads

    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [plan(number) for number in (None, 1, 2, 16)] == [(8, 1), (1, 1), (2, 1), (16, 1)]
    assert [plan(number, threads=4) for number in (None, 1, 16)] == [(2, 4), (1, 4), (16, 4)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert [plan(number) for number in (None, 1, 4)] == [(2, 4), (1, 8), (4, 2)]
    assert plan(None, device="cpu") == (8, 1)
    assert plan(None, threads=1) == (2, 1)


@pytest.mark.slow
def test_a_trial_has_the_threads_of_the_option(place: Workplace) -> None:
    cases = ((["--parallel=1"], 1), (["--executor=debug"], 1), (["--threads=2", "--parallel=1"], 2))
    for seeds, (options, threads) in enumerate(cases, start=1):
        place.ok("run", "tiny.yaml", f"--seeds={seeds}", *options)
        last = [run for run in place.directories() if run.trial().seed == seeds - 1]
        environments = [json.loads((run.path / "environment.json").read_text(encoding="utf-8")) for run in last]
        assert [environment["threads"] for environment in environments] == [threads] * 2
    refused = place.call("submit", "--executor=slurm", "--threads=2")
    assert refused.returncode == 2
    assert "--threads: not with --executor slurm: set `cpus` in the cluster profile" in refused.stderr
