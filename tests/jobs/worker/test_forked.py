"""Several processes of one job side by side, in a new process: a fork of the tests' would run its exit handlers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.paths import ROOT
from tests.patience import PATIENCE, wait

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
from dropbench.jobs.worker.forked import run_side_by_side
from dropbench.jobs.worker.stop_requests import StopRequests

folder = Path(sys.argv[1])

def run(number):
    (folder / f"{number}-{os.getpid()}").touch()
    while not stop_requests.should_stop():
        time.sleep(0.02)
    (folder / f"signal-{number}").write_text(str(stop_requests.signal))

with StopRequests(folder) as stop_requests:
    run_side_by_side(run, 3, stop_requests)
print("all have ended", stop_requests.signal)
"""


def start(folder: Path) -> tuple[subprocess.Popen[str], list[int]]:
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(folder)]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "cwd": ROOT}
    process = subprocess.Popen(command, text=True, **options)  # type: ignore[call-overload]
    wait(lambda: len(list(folder.glob("[0-9]-*"))) == 3, "three processes")
    return process, [int(file.name.partition("-")[2]) for file in sorted(folder.glob("[0-9]-*"))]


def test_a_signal_to_the_job_reaches_all_processes(tmp_path: Path) -> None:
    process, pids = start(tmp_path)
    assert process.pid not in pids
    process.send_signal(signal.SIGUSR2)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (0, f"all have ended {int(signal.SIGUSR2)}\n"), err
    assert {file.read_text() for file in tmp_path.glob("signal-*")} == {str(int(signal.SIGUSR2))}


def test_a_killed_process_leaves_the_others_running(tmp_path: Path) -> None:
    process, pids = start(tmp_path)
    os.kill(pids[1], signal.SIGKILL)
    wait(lambda: not Path(f"/proc/{pids[1]}").exists(), "the end of the killed process")
    assert process.poll() is None
    (tmp_path / "stop").touch()
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (1, "")
    assert f"ChildProcessError: 1 of 3 processes of this job died: {pids[1]} (-9)" in err
    assert sorted(file.name for file in tmp_path.glob("signal-*")) == ["signal-0", "signal-2"]
