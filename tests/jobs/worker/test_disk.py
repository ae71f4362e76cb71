"""Full and read-only disks: real small ones, mounted in a separate namespace."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.jobs.workplace import Workplace
from tests.patience import PATIENCE

# With a process namespace, so that all processes end with it.
NAMESPACE = ["unshare", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def _namespaces() -> str | None:
    if shutil.which("unshare") is None:
        return "unshare is missing"
    tried = subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    return f"disks cannot be mounted in a namespace: {tried.stderr.strip()}" if tried.returncode else None


REASON = _namespaces()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


def run_on_disk(place: Workplace, size: str, commands: str) -> subprocess.CompletedProcess[str]:
    """Run shell commands with the runs folder on a disk of this size; `dropbench` is the command line."""
    place.runs.mkdir()
    script = f"""
        dropbench() {{ "{sys.executable}" -W error -m dropbench.harness.cli.main "$@"; echo "exit code $?"; }}
        mount -t tmpfs -o size={size} tmpfs "$DROPBENCH_RUNS"
        {commands}
    """
    environment = {**place.environment, "TINY_FILL": str(place.runs / "ballast")}
    command = [*NAMESPACE, "sh", "-c", script]
    return subprocess.run(command, cwd=place.folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "setup", "message"),
    [
        ("1m", "", " MiB are free: expected at least 16 for checkpoints"),
        ("1m", 'head -c 2M /dev/zero >"$DROPBENCH_RUNS/ballast" 2>/dev/null', "No space left on device: expected"),
        (
            "32m",
            'mount -o remount,ro "$DROPBENCH_RUNS"',
            "Read-only file system: expected a writable folder",
        ),
    ],
)
def test_an_unusable_disk_is_reported_in_one_line_before_anything_starts(
    place: Workplace, size: str, setup: str, message: str
) -> None:
    done = run_on_disk(place, size, f'{setup}\ndropbench run tiny.yaml\nls -A "$DROPBENCH_RUNS"/.submitit')
    assert "exit code 2" in done.stdout
    (line,) = [line for line in done.stderr.splitlines() if not line.startswith("ls:")]
    assert line.startswith(f"dropbench: {place.runs}: ")
    assert message in line
    assert "lock" not in done.stdout, "nothing is started"


@pytest.mark.slow
def test_a_disk_that_fills_up_in_a_worker(place: Workplace) -> None:
    place.trouble.write_text("disk 25 1")
    done = run_on_disk(
        place,
        "24m",
        """
        dropbench run tiny.yaml --parallel 1 --checkpoint-seconds 0
        dropbench status --json
        cat "$DROPBENCH_RUNS"/*/attempts/*.json
        rm "$DROPBENCH_RUNS"/ballast fault
        dropbench retry failed
        dropbench run tiny.yaml --parallel 1 --json
        ls -A "$DROPBENCH_RUNS"/*/checkpoint
        """,
    )
    first, _, rest = done.stdout.partition("exit code 2\n")
    assert rest, done.stderr + first
    assert "failed: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert f"dropbench: {place.runs}: " in done.stderr
    status, _, rest = rest.partition("exit code 0\n")
    assert '"succeeded": 1, "failed": 1' in status
    attempts, _, rest = rest.partition("Requeued 1 trial")
    assert attempts.count('"cause": "No space left on device') == 1
    assert '"state": "running"' not in attempts
    assert rest.count("exit code 0") == 2, done.stdout + done.stderr
    assert "\n.step" not in rest, "no temporary file is left"
