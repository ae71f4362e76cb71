"""`dropbench run` in real processes on a tiny suite."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dropbench.harness.settings import Settings
from dropbench.jobs.queue import run_loop
from dropbench.jobs.worker import slots
from tests.jobs.workplace import Workplace
from tests.patience import PATIENCE, wait


@pytest.mark.slow
def test_a_suite_is_trained_once_and_its_table_printed(place: Workplace) -> None:
    first = place.ok("run", "tiny.yaml", "--parallel", "2", fresh=True)
    assert "A tiny table" in first.stdout
    lines = [line for line in first.stderr.splitlines() if line.startswith("[")]
    assert len(lines) == 4
    assert all("succeeded, test/accuracy" in line for line in lines)
    assert f"run directories: {place.runs}" in first.stderr
    assert "\x1b" not in first.stdout + first.stderr, "colours and bars are for terminals"
    submissions = sorted((place.runs / ".submitit").iterdir())

    second = place.ok("run", "tiny.yaml")
    assert second.stdout == first.stdout
    assert "nothing to train: 4 trials already done" in second.stderr
    assert sorted((place.runs / ".submitit").iterdir()) == submissions, "no worker is started"
    assert {len(attempts) for attempts in place.attempts().values()} == {1}

    more = place.ok("run", "tiny.yaml", "--seeds", "3", "--json", "--parallel", "1")
    assert json.loads(more.stdout)
    assert sorted(len(attempts) for attempts in place.attempts().values()) == [1] * 6


@pytest.mark.slow
def test_one_configuration_without_a_suite_and_with_a_new_database(place: Workplace) -> None:
    words = ("run", "--task", "tiny", "--data", "tiny", "--model", "tiny", "--regularizer", "dropkey:ratio=0.2")
    done = place.ok(*words, "--set", "steps=5")
    (directory,) = place.directories()
    trial = directory.trial()
    assert (trial.regularizer.params["ratio"], trial.recipe["steps"], trial.seed) == (0.2, 5, 0)
    for file in place.folder.glob("bench.db*"):
        file.unlink()
    again = place.call(*words, "--set", "steps=5")
    assert "nothing to train: 1 trial already done" in again.stderr
    assert again.stdout == done.stdout
    table = place.ok(*words, "--regularizer", "none", "--set", "steps=5", "--seeds", "3")
    id = re.findall(r"`dropbench report --request ([0-9a-f]+)`", table.stderr)[0]
    assert place.call("report", "--request", id).stdout == table.stdout
    assert "Δ base: difference from 'dropkey:ratio=0.2', paired by seed" in table.stdout
    assert "95 % confidence interval (paired t-test)" in " ".join(table.stdout.split())


@pytest.mark.slow
def test_a_trial_that_fails(place: Workplace) -> None:
    place.trouble.write_text("raise 5 1")
    done = place.call("run", "tiny.yaml", "--parallel", "1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    failed = sorted(id for id, attempts in place.attempts().items() if attempts[-1]["state"] == "failed")
    assert len(failed) == 2
    lines = done.stderr.splitlines()
    cause = "failed: ZeroDivisionError: the tiny task divides by zero; see `dropbench logs "
    assert any(f"and 1 more {cause}" in line for line in lines)
    assert lines[-1] == ("2 of 4 trials failed or cancelled: run `dropbench retry tiny`, then this command again.")
    assert "A tiny table" in done.stdout, "the table is printed nevertheless"
    assert "ZeroDivisionError" in place.call("logs", failed[0]).stdout

    place.trouble.write_text("")
    again = place.call("run", "tiny.yaml")
    assert again.returncode == 1, "failed trials are not run again without a retry"
    requeued = place.call("retry", "failed").stdout
    assert requeued == "Requeued 2 trials: run `dropbench submit` or `dropbench run SUITE`.\n"
    place.ok("run", "tiny.yaml")
    assert sorted(len(attempts) for attempts in place.attempts().values()) == [1, 1, 2, 2]


@pytest.mark.slow
def test_a_trial_that_always_kills_its_worker_is_given_up(place: Workplace) -> None:
    command = "run", "--task", "tiny", "--data", "tiny", "--model", "tiny"
    place.trouble.write_text("import 0")
    done = place.call(*command)
    assert done.returncode == 1, done.stderr
    assert "given up after 5 attempts in a row" in done.stderr
    ((*lost, last),) = [[attempt["state"] for attempt in attempts] for attempts in place.attempts().values()]
    assert (lost, last) == (["lost"] * 4, "failed")
    place.trouble.write_text("")
    place.ok(*command)


@pytest.mark.slow
def test_ctrl_c_writes_checkpoints_and_the_same_command_resumes(place: Workplace) -> None:
    place.pause.write_text("hold")
    process = place.start("run", "tiny.yaml", "--parallel", "2")
    wait(lambda: len(place.running()) == 2, "two trials in training")
    os.killpg(process.pid, signal.SIGINT)  # the terminal sends it to the whole group
    stderr = process.stderr
    assert stderr is not None
    wait(lambda: "Stopping" in stderr.readline(), "the report that it is stopping")
    place.pause.write_text("0.5")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("Stopped: 0 of 4 trials done. Resume with `dropbench ")
    assert err.splitlines()[-1].endswith("run tiny.yaml --parallel 2`")
    assert out == ""
    wait(lambda: not place.processes(), "the workers' end")
    stopped = {
        id for id, attempts in place.attempts().items() if [attempt["state"] for attempt in attempts] == ["interrupted"]
    }
    assert len(stopped) == 2
    status = json.loads(place.call("status", "--json").stdout)
    assert (status["queued"], status["running"], status["failed"]) == (4, 0, 0)

    place.pause.write_text("0")
    place.ok("run", "tiny.yaml")
    for directory in place.directories():
        resumed = [event["step"] for event in directory.events() if event["event"] == "resume"]
        assert (max(resumed) > 0) == (directory.id in stopped)


@pytest.mark.slow
def test_ctrl_c_twice_does_not_wait_for_the_workers(place: Workplace) -> None:
    place.pause.write_text("2")
    process = place.start("run", "tiny.yaml", "--preset", "one", "--parallel", "1", "--set", "steps=900")
    wait(place.running, "a trial in training")
    process.send_signal(signal.SIGINT)
    stderr = process.stderr
    assert stderr is not None
    wait(lambda: "Stopping" in stderr.readline(), "the report that it is stopping")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    # If the second Ctrl-C interrupts a directory scan, Python with -W error reports the iterator that it closes.
    assert err.count("Traceback") == err.count("ResourceWarning: unclosed scandir iterator")
    wait(lambda: not place.processes(), "the workers' end")
    states = [[attempt["state"] for attempt in attempts] for attempts in place.attempts().values()]
    assert sorted(states) == [[], ["interrupted"]]


@pytest.mark.slow
def test_two_command_lines_share_the_limit_and_the_work(place: Workplace) -> None:
    place.pause.write_text("0.02")
    commands = [
        place.start("run", "tiny.yaml", "--parallel", "2", "--seeds", "3"),
        place.start("run", "tiny.yaml", "--parallel", "2", "--seeds", "4"),
    ]
    wait(place.running, "a trial in training")
    killed = place.start("run", "tiny.yaml", "--parallel", "2", "--seeds", "5")
    time.sleep(1)
    killed.kill()
    killed.communicate()
    outputs = [process.communicate(timeout=PATIENCE) for process in commands]
    assert [process.returncode for process in commands] == [0, 0], outputs
    attempts = [attempt for attempts in place.attempts().values() for attempt in attempts]
    spans = [(attempt["started_at"], attempt["ended_at"] or "9999") for attempt in attempts]
    at_a_time = [sum(start <= moment < end for start, end in spans) for moment, _ in spans]
    assert max(at_a_time) <= 2, "more trials at a time than the limit"
    states = [[attempt["state"] for attempt in attempts] for attempts in place.attempts().values()]
    assert len(states) >= 8
    assert all(attempts in ([], ["running"], ["succeeded"]) for attempts in states), "no trial is started twice"
    assert states.count(["succeeded"]) >= 8


@pytest.mark.slow
def test_workers_outlive_a_killed_command_line_and_keep_their_slots(place: Workplace) -> None:
    place.pause.write_text("2")
    process = place.start("run", "tiny.yaml", "--parallel", "1")
    wait(place.running, "a trial in training")
    process.kill()
    process.communicate()
    (worker,) = place.processes("worker")
    status = json.loads(place.call("status", "--json").stdout)
    assert (status["running"], status["submitted"]) == (1, 3)
    place.pause.write_text("0")
    place.ok("run", "tiny.yaml", "--parallel", "1")
    pids = {attempt["pid"] for attempts in place.attempts().values() for attempt in attempts}
    assert pids == {worker}, "the first worker runs all trials"


def test_no_worker_is_started_while_all_slots_are_in_use(place: Workplace) -> None:
    with slots.dispatch_lock(place.runs):
        (slot,) = slots.acquire(place.runs, "another", count=1, max_workers=1)
    process = place.start("run", "tiny.yaml", "--preset", "one", "--parallel", "1")
    assert process.stderr is not None
    assert process.stderr.readline() == "2 trials, 1 worker\n"
    line = process.stderr.readline()
    assert line == "Waiting: workers of other command lines use all worker slots (1).\n"
    time.sleep(0.5)
    assert not place.processes("worker")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    slot.close()


@pytest.mark.slow
def test_a_slot_that_becomes_free_is_used_at_once(place: Workplace) -> None:
    place.pause.write_text("3")
    with slots.dispatch_lock(place.runs):
        (slot,) = slots.acquire(place.runs, "another", count=1, max_workers=2)
    process = place.start("run", "tiny.yaml", "--parallel", "2")
    wait(place.running, "a trial in training")
    assert len(place.processes("worker")) == 1
    slot.close()
    wait(lambda: len(place.running()) == 2, "two trials in training")
    place.pause.write_text("0")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert [[attempt["state"] for attempt in attempts] for attempts in place.attempts().values()] == [["succeeded"]] * 4


@pytest.mark.slow
def test_the_debug_executor_runs_in_this_process(place: Workplace) -> None:
    place.trouble.write_text("raise 5 1")
    process = place.start("run", "tiny.yaml", "--executor", "debug", "--preset", "mini")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    attempts = [attempt for attempts in place.attempts().values() for attempt in attempts]
    assert {attempt["pid"] for attempt in attempts} == {process.pid}
    assert sorted(attempt["state"] for attempt in attempts) == ["failed", "failed", "succeeded", "succeeded"]
    assert "step 40/40" in out, "the trial's output is printed"
    assert "(Pdb)" not in out


@pytest.mark.slow
def test_the_debugger_opens_at_a_terminal(place: Workplace) -> None:
    master, terminal = os.openpty()
    place.trouble.write_text("raise 5")
    command = "run", "tiny.yaml", "--executor", "debug", "--preset", "one"
    process = place.start(*command, stdin=terminal)
    os.close(terminal)
    os.write(master, b"p self.step + 37\nq\n" + b"q\n" * 4)
    out, err = process.communicate(timeout=PATIENCE)
    os.close(master)
    assert "(Pdb)" in out
    assert "42" in out
    assert process.returncode == 1, err
    assert "Traceback" not in err


@pytest.mark.parametrize(("alive", "slept"), [([True, False], [0.2]), ([False], [0.2, 29.8])], ids=["exited", "none"])
def test_waiting_ends_when_the_workers_have_exited(
    alive: list[bool], slept: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds: list[float] = []
    store: Any = SimpleNamespace(
        open_submissions=lambda: [SimpleNamespace(id="a", host=socket.gethostname(), pid=os.getpid())]
    )
    monkeypatch.setattr(slots, "is_alive", lambda runs, id: alive.pop(0))
    monkeypatch.setattr(time, "sleep", seconds.append)
    run_loop._wait_for_news(store, Settings(runs=tmp_path), 30.0)
    assert seconds == slept
    assert not alive
