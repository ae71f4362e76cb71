from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.jobs.worker import slots
from tests.paths import ROOT
from tests.patience import PATIENCE


def test_the_limit_counts_all_live_workers(tmp_path: Path) -> None:
    with slots.dispatch_lock(tmp_path):
        first = slots.acquire(tmp_path, "a", count=2, max_workers=3)
        second = slots.acquire(tmp_path, "b", count=2, max_workers=3)
        third = slots.acquire(tmp_path, "c", count=2, max_workers=3)
    assert [slot.number for slot in first] == [0, 1]
    assert [slot.number for slot in second] == [2]
    assert third == []
    assert slots.count_workers(tmp_path) == 3
    first[0].close()
    with slots.dispatch_lock(tmp_path):
        assert slots.acquire(tmp_path, "d", count=5, max_workers=2) == []
        (last,) = slots.acquire(tmp_path, "d", count=5, max_workers=3)
    assert last.number == 0
    for slot in (first[1], *second, last):
        slot.close()
    assert slots.count_workers(tmp_path) == 0


def test_a_slot_is_held_as_long_as_any_of_its_processes_is_alive(tmp_path: Path) -> None:
    with slots.dispatch_lock(tmp_path):
        (slot,) = slots.acquire(tmp_path, "a", count=1, max_workers=1)
    heir = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(slot.fd,))
    slot.close()
    assert slots.is_alive(tmp_path, "a")
    heir.kill()
    heir.communicate()
    assert not slots.is_alive(tmp_path, "a")
    with slots.dispatch_lock(tmp_path):
        slots.remove_slots(tmp_path, "a")
    assert list((slots.jobs_folder(tmp_path) / "places").iterdir()) == []


def test_a_worker_cannot_hold_a_removed_slot(tmp_path: Path) -> None:
    with slots.dispatch_lock(tmp_path):
        (slot,) = slots.acquire(tmp_path, "a", count=1, max_workers=1)
        with slots.hold(slot.path) as held:
            assert held
            slot.close()
            assert slots.is_alive(tmp_path, "a")
        slots.remove_slots(tmp_path, "a")
    with slots.hold(slot.path) as held:
        assert not held
    with slots.hold(None) as held:
        assert held


def test_a_command_says_that_it_waits_for_the_dispatch_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slots, "NOTICE_S", 0.0)
    with slots.dispatch_lock(tmp_path):
        with pytest.raises(InputError, match="lock: held by another dropbench command, perhaps a stopped one: end it"):
            slots.dispatch_lock(tmp_path, timeout=0.0).__enter__()
        lines = capsys.readouterr().err.splitlines()
        assert lines == [f"waiting for another dropbench command, which holds {slots.jobs_folder(tmp_path)}/lock"]
    with slots.dispatch_lock(tmp_path, timeout=0.0):
        pass


FORK = """
import os, sys, time
from pathlib import Path
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.jobs.worker import slots

runs = Path(sys.argv[1])
directory = RunDirectory(runs / "0123456789ab")
directory.path.mkdir()
with slots.dispatch_lock(runs):
    (slot,) = slots.acquire(runs, "s", count=1, max_workers=1)
with slots.hold(slot.path), directory.lock():
    slots.keep_from_forks(runs)
    if os.fork() == 0:
        print(os.getpid(), flush=True)  # the fork has let go of the locks: it does so before `fork` returns
        os.closerange(0, 3)
        time.sleep(600)
        os._exit(0)
    sys.stdin.read()
os._exit(0)
"""


def test_what_a_trial_forks_holds_no_lock_of_its_worker(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORK, str(tmp_path)]
    worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert worker.stdin is not None
    assert worker.stdout is not None
    child, directory = int(worker.stdout.readline()), RunDirectory(tmp_path / "0123456789ab")
    try:
        assert directory.locked()
        assert slots.count_workers(tmp_path) == 1
        worker.stdin.close()
        assert worker.wait(PATIENCE) == 0
        assert not directory.locked()
        assert slots.count_workers(tmp_path) == 0
    finally:
        os.kill(child, signal.SIGKILL)  # fails if it has ended, so that the test says something
        worker.stdout.close()


def test_runs_must_be_a_folder(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    for use in (slots.check_writable, lambda runs: slots.dispatch_lock(runs).__enter__()):
        with pytest.raises(InputError, match=r"runs: Not a directory: expected a writable folder"):
            use(tmp_path / "runs")


def test_disk_errors_are_recognized(tmp_path: Path) -> None:
    assert slots.is_disk_error(OSError(28, "No space left on device"), tmp_path)
    assert not slots.is_disk_error(FileNotFoundError(2, "No such file"), tmp_path)
    assert not slots.is_disk_error(ValueError("full"), tmp_path)
    assert not slots.is_disk_error(OSError("torch could not write"), tmp_path)
