"""`dropbench run`, as real processes on a tiny suite."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import time
from typing import TYPE_CHECKING

from jobs import places
from tests.patience import PATIENCE, wait

if TYPE_CHECKING:
    from tests.jobs.workplace import Workplace


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_from_a_suite_to_a_table_and_nothing_the_second_time(place: Workplace) -> None:
    first = place.call("run", "tiny.yaml", "--parallel", "2")
    assert first.returncode == 0, first.stderr
    assert "A tiny table" in first.stdout
    lines = [line for line in first.stderr.splitlines() if line.startswith("[")]
    assert len(lines) == 4
    assert all("succeeded, test/accuracy" in line for line in lines)
    assert f"run directories: {place.runs}" in first.stderr
    assert "\x1b" not in first.stdout + first.stderr, "colours and bars are for terminals"
    submissions = sorted((place.runs / ".submitit").iterdir())

    before = cpu_seconds()
    second = place.call("run", "tiny.yaml")
    seconds = cpu_seconds() - before
    assert second.returncode == 0, second.stderr
    assert second.stdout == first.stdout
    assert "nothing to train: all 4 trials are done" in second.stderr
    assert sorted((place.runs / ".submitit").iterdir()) == submissions, "a worker was started"
    assert {len(attempts) for attempts in place.attempts().values()} == {1}
    assert seconds < 5

    more = place.call("run", "tiny.yaml", "--seeds", "3", "--json", "--parallel", "1")
    assert more.returncode == 0, more.stderr
    assert json.loads(more.stdout)
    assert sorted(len(attempts) for attempts in place.attempts().values()) == [1] * 6


def test_one_configuration_without_a_suite_and_a_lost_database(place: Workplace) -> None:
    asked = (
        "--task",
        "tiny",
        "--data",
        "tiny",
        "--model",
        "tiny",
        "--regularizer",
        "dropkey:ratio=0.2",
        "--set",
        "steps=5",
    )
    done = place.call("run", *asked)
    assert done.returncode == 0, done.stderr
    (directory,) = place.directories()
    trial = directory.trial()
    assert (trial.regularizer.params["ratio"], trial.recipe["steps"], trial.seed) == (0.2, 5, 0)
    for file in place.folder.glob("bench.db*"):
        file.unlink()
    again = place.call("run", *asked)
    assert "nothing to train: all 1 trials are done" in again.stderr
    assert again.stdout == done.stdout


def test_a_trial_that_fails(place: Workplace) -> None:
    place.trouble.write_text("raise 5 1")
    done = place.call("run", "tiny.yaml", "--parallel", "1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr + done.stdout
    failed = sorted(id for id, attempts in place.attempts().items() if attempts[-1]["state"] == "failed")
    assert len(failed) == 2
    last = done.stderr.splitlines()
    assert any(
        "and 1 more failed: ZeroDivisionError: the tiny task divides by zero; dropbench logs " in line for line in last
    )
    assert last[-1] == "2 of 4 trials failed or are cancelled; to try again: dropbench retry FILTER"
    assert "A tiny table" in done.stdout, "what there is is shown all the same"
    assert "ZeroDivisionError" in place.call("logs", failed[0]).stdout

    place.trouble.write_text("")
    again = place.call("run", "tiny.yaml")
    assert again.returncode == 1, "a failed trial is not run again unless it is asked for"
    assert "2 queued again" in place.call("retry", "failed").stdout.replace(
        "2 trials are queued again", "2 queued again"
    )
    assert place.call("run", "tiny.yaml").returncode == 0
    assert sorted(len(attempts) for attempts in place.attempts().values()) == [1, 1, 2, 2]


def test_a_trial_that_always_kills_its_worker_ends(place: Workplace) -> None:
    asked = "run", "--task", "tiny", "--data", "tiny", "--model", "tiny"
    place.trouble.write_text("import 0")
    done = place.call(*asked)
    assert done.returncode == 1, done.stderr
    assert "given up after 5 attempts in a row" in done.stderr
    ((*lost, last),) = [[one["state"] for one in attempts] for attempts in place.attempts().values()]
    assert (lost, last) == (["lost"] * 4, "failed")
    place.trouble.write_text("")
    again = place.call(*asked)
    assert again.returncode == 0, again.stderr


def test_ctrl_c_writes_checkpoints_and_the_same_command_goes_on(place: Workplace) -> None:
    place.pause.write_text("0.5")
    process = place.start("run", "tiny.yaml", "--parallel", "2")
    wait(lambda: len(place.running()) == 2, "two trials in training")
    os.killpg(process.pid, signal.SIGINT)  # the terminal sends it to the whole group
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert err.splitlines()[-1].startswith("stopped: 0 of 4 trials are done; to go on: ")
    assert err.splitlines()[-1].endswith("run tiny.yaml --parallel 2")
    assert out == ""
    wait(lambda: not place.processes(), "the workers' end")
    stopped = {id for id, attempts in place.attempts().items() if [one["state"] for one in attempts] == ["interrupted"]}
    assert len(stopped) == 2
    status = json.loads(place.call("status", "--json").stdout)
    assert (status["queued"], status["running"], status["failed"]) == (4, 0, 0)

    place.pause.write_text("0")
    again = place.call("run", "tiny.yaml")
    assert again.returncode == 0, again.stderr
    for directory in place.directories():
        resumed = [event["step"] for event in directory.events() if event["event"] == "resume"]
        assert (max(resumed) > 0) == (directory.id in stopped)


def test_ctrl_c_twice_leaves_the_workers_to_it(place: Workplace) -> None:
    place.pause.write_text("2")
    process = place.start("run", "tiny.yaml", "--preset", "one", "--parallel", "1", "--set", "steps=9")
    wait(lambda: any(one.locked() for one in place.directories()), "a worker")
    process.send_signal(signal.SIGINT)
    told = process.stderr
    assert told is not None
    wait(lambda: "stopping" in told.readline(), "the word that it stops")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    # Not "Traceback": where the second Ctrl-C falls into a look at a folder, Python tells, under -W error alone, of the
    # iterator that it closes itself.
    assert err.count("Traceback") == err.count("ResourceWarning: unclosed scandir iterator")
    wait(lambda: not place.processes(), "the workers' end")
    states = [[one["state"] for one in attempts] for attempts in place.attempts().values()]
    assert sorted(states) == [[], ["interrupted"]]


def test_two_command_lines_share_the_limit_and_the_work(place: Workplace) -> None:
    place.pause.write_text("0.02")
    most = 0
    ended = threading.Event()

    def count() -> None:
        nonlocal most
        while not ended.is_set():
            # One look takes time, in which a worker may end and the next one begin: those that stay count.
            seen = set(place.processes("core._submit"))
            time.sleep(0.05)
            most = max(most, len(seen & set(place.processes("core._submit"))))

    counter = threading.Thread(target=count)
    counter.start()
    commands = [
        place.start("run", "tiny.yaml", "--parallel", "2", "--seeds", "3"),
        place.start("run", "tiny.yaml", "--parallel", "2", "--seeds", "4"),
    ]
    wait(place.running, "a trial in training")
    killed = place.start("run", "tiny.yaml", "--parallel", "2", "--seeds", "5")
    time.sleep(1)
    killed.kill()
    killed.communicate()
    said = [process.communicate(timeout=PATIENCE) for process in commands]
    ended.set()
    counter.join()
    assert [process.returncode for process in commands] == [0, 0], said
    assert 1 <= most <= 2, f"{most} workers at a time"
    states = [[one["state"] for one in attempts] for attempts in place.attempts().values()]
    assert len(states) >= 8
    assert all(one in ([], ["running"], ["succeeded"]) for one in states), "a trial was begun twice"
    assert states.count(["succeeded"]) >= 8


def test_workers_outlive_a_killed_command_line_and_count(place: Workplace) -> None:
    place.pause.write_text("2")
    process = place.start("run", "tiny.yaml", "--parallel", "1")
    wait(place.running, "a trial in training")
    process.kill()
    process.communicate()
    (worker,) = place.processes("core._submit")
    status = json.loads(place.call("status", "--json").stdout)
    assert (status["running"], status["submitted"]) == (1, 3)
    place.pause.write_text("0")
    again = place.call("run", "tiny.yaml", "--parallel", "1")
    assert again.returncode == 0, again.stderr
    pids = {one["pid"] for attempts in place.attempts().values() for one in attempts}
    assert pids == {worker}, "the old worker did it all"


def test_no_worker_is_started_while_all_places_are_taken(place: Workplace) -> None:
    with places.keeper(place.runs):
        (taken,) = places.take(place.runs, "another", wanted=1, limit=1)
    process = place.start("run", "tiny.yaml", "--preset", "one", "--parallel", "1")
    assert process.stderr is not None
    said = process.stderr.readline()
    assert said == "waiting: all 1 places are taken by workers of other command lines\n"
    time.sleep(0.5)
    assert not place.processes()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    taken.close()


def test_a_place_that_gets_free_is_used_at_once(place: Workplace) -> None:
    place.pause.write_text("3")
    with places.keeper(place.runs):
        (taken,) = places.take(place.runs, "another", wanted=1, limit=2)
    process = place.start("run", "tiny.yaml", "--parallel", "2")
    wait(place.running, "a trial in training")
    assert len(place.processes("_submit")) == 1
    taken.close()
    wait(lambda: len(place.running()) == 2, "two trials in training")
    place.pause.write_text("0")
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert [[one["state"] for one in attempts] for attempts in place.attempts().values()] == [["succeeded"]] * 4


def test_debugging_happens_in_this_process(place: Workplace) -> None:
    place.trouble.write_text("raise 5 1")
    process = place.start("run", "tiny.yaml", "--executor", "debug", "--preset", "mini")
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, err
    attempts = [one for attempts in place.attempts().values() for one in attempts]
    assert {one["pid"] for one in attempts} == {process.pid}
    assert sorted(one["state"] for one in attempts) == ["failed", "failed", "succeeded", "succeeded"]
    assert "step 40/40" in out, "what a trial prints is seen"
    assert "(Pdb)" not in out


def test_the_debugger_opens_at_a_terminal(place: Workplace) -> None:
    master, terminal = os.openpty()
    place.trouble.write_text("raise 5")
    asked = "run", "tiny.yaml", "--executor", "debug", "--preset", "one"
    process = place.start(*asked, stdin=terminal)
    os.close(terminal)
    os.write(master, b"p self.step + 37\nq\n" + b"q\n" * 4)
    out, err = process.communicate(timeout=PATIENCE)
    os.close(master)
    assert "(Pdb)" in out
    assert "42" in out
    assert process.returncode == 1, err
    assert "Traceback" not in err
