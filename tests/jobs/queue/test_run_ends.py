"""`dropbench run` beside other commands, and how SIGTERM ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from tests.jobs.workplace import PLUGIN, Workplace
from tests.patience import PATIENCE, wait

LONG = ("run", "tiny.yaml", "--preset", "one", "--parallel", "1", "--set", "steps=199")


def line_of(process: subprocess.Popen[str], beginning: str) -> str:
    """Return the next line of standard error with this beginning."""
    stderr = process.stderr
    assert stderr is not None
    lines = iter(stderr.readline, "")
    return next(line for line in lines if line.startswith(beginning))


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "debug"])
def test_sigterm_stops_the_workers_as_ctrl_c_does(place: Workplace, executor: str) -> None:
    place.pause.write_text("0.05")
    process = place.start(*LONG, "--executor", executor)
    wait(place.running, "a trial in training")
    process.terminate()  # unlike Ctrl-C, which a terminal sends to its whole group, to this process alone
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert err.splitlines()[-1].startswith("Stopped: 0 of 2 trials done. Resume with `dropbench ")
    assert "Traceback" not in err
    wait(lambda: not place.processes(), "the workers' end")
    states = [[attempt["state"] for attempt in attempts] for attempts in place.attempts().values()]
    assert sorted(states) in ([["interrupted"]], [[], ["interrupted"]])


@pytest.mark.slow
def test_a_command_says_for_whose_worker_it_waits(place: Workplace) -> None:
    place.pause.write_text("hold")
    first = place.start(*LONG)
    wait(place.running, "a trial in training")
    [trial] = place.running()
    second = place.start(*LONG)
    line = line_of(second, "Waiting for ")
    assert f"that others train ({trial.id}" in line
    assert f"): process {first.pid}, started by " in line
    assert f" on {os.uname().nodename}, " in line
    first.kill()
    first.communicate()
    third = place.start(*LONG)
    assert "): the worker of a command that has ended, started by " in line_of(third, "Waiting for ")
    place.pause.write_text("0")
    for process in (second, third):
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err


SCRIPT = f"""
import os, signal, dropbench
from dropbench.jobs.queue.progress_bar import ProgressBar
ProgressBar.update = lambda *arguments: os.kill(os.getpid(), signal.SIGINT)
dropbench.run("tiny.yaml", seeds=1, plugin={str(PLUGIN)!r}, executor="debug")
"""


def test_an_interrupted_script_ends_without_a_traceback(place: Workplace) -> None:
    done = place.call(program=["-c", SCRIPT])
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == "Stopped: 0 of 2 trials done. The same call continues."


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["local", "debug"])
def test_trials_whose_output_is_closed_are_interrupted_not_failed(place: Workplace, executor: str) -> None:
    place.pause.write_text("0.05" if executor == "debug" else "0.002")  # which print each step, or each trial
    command = f"'{sys.executable}' -m dropbench.harness.cli.main {' '.join(LONG)} --executor {executor}"
    line = f"({command} 2>&1; echo $? > code) | head -n 1"
    done = subprocess.run(
        line, shell=True, cwd=place.folder, env=place.environment, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.stdout.startswith("2 trials, 1 worker")
    assert (place.folder / "code").read_text() == f"{128 + signal.SIGPIPE}\n"
    wait(lambda: not place.processes(), "the workers' end")
    states = [attempt["state"] for attempts in place.attempts().values() for attempt in attempts]
    assert set(states) <= {"interrupted", "succeeded"}
    assert states.count("succeeded") == (executor == "local")
    assert place.ok("status", "--json").stdout.count('"failed": 0') == 1


@pytest.mark.slow
def test_closed_streams_do_not_keep_a_trial_from_training(place: Workplace) -> None:
    command = f"'{sys.executable}' -m dropbench.harness.cli.main run tiny.yaml --preset one --executor debug"
    done = subprocess.run(f"{command} <&- >&- 2>&-", shell=True, cwd=place.folder, env=place.environment, check=False)
    assert done.returncode == 0
    assert [[attempt["state"] for attempt in attempts] for attempts in place.attempts().values()] == [["succeeded"]] * 2


@pytest.mark.slow
def test_a_command_with_another_database_says_whose_worker_it_waits_for(place: Workplace) -> None:
    command = "run", "--task", "tiny", "--data", "tiny", "--model", "tiny"
    place.pause.write_text("hold")
    first = place.start(*command)
    wait(place.running, "a trial in training")
    [trial], [worker] = place.running(), place.processes("worker")
    other = {**place.environment, "DROPBENCH_DB": f"sqlite:///{place.folder}/other.db"}
    second = place.start(*command, env=other)
    line = line_of(second, "Waiting: ")
    assert line.startswith(
        f"Waiting: process {worker} on {os.uname().nodename}, which is of a command with another dat"
    )
    assert line.endswith(f"trains {trial.id}.\n")
    place.pause.write_text("0")
    for process in (first, second):
        _, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
