"""Errors of the system around a command: closed streams, few file handles, odd working folders, unknown causes."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dropbench.harness.cli import main
from dropbench.harness.settings import Settings
from tests.paths import ROOT

COMMAND = f"'{sys.executable}' -W error -m dropbench.harness.cli.main"


def shell(line: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of sh."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(line, shell=True, capture_output=True, text=True, check=False, cwd=cwd, env=variables)


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_error(tmp_path: Path, closed: str) -> None:
    done = shell(f"{COMMAND} list tasks {closed}", tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("text-classification" in done.stdout) == (">&-" not in closed.replace("2>&-", ""))
    wrong = shell(f"{COMMAND} list taskz {closed}", tmp_path)
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == ("2>&-" not in closed)


def test_no_file_gets_the_number_of_a_closed_stream(tmp_path: Path) -> None:
    program = (
        "from dropbench.harness.cli.streams import open_missing_streams as o; o(); import os;"
        "print('lost'); file = open('file', 'w'); assert file.fileno() > 2; os.system('echo lost; echo lost >&2')"
    )
    done = shell(f"'{sys.executable}' -c \"{program}\" <&- >&- 2>&-", tmp_path)
    assert (done.returncode, (tmp_path / "file").read_text()) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "handles"), [("list tasks", 6), ("results", 8), ("report quickstart", 10), ("enqueue quickstart", 12)]
)
def test_few_file_handles_are_one_line(tmp_path: Path, arguments: str, handles: int) -> None:
    done = shell(f"ulimit -n {handles}; {COMMAND} {arguments}", tmp_path)
    if done.returncode == 0:
        return
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("dropbench: ")
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Too many open files" in done.stderr
    assert "ulimit -n" in done.stderr


def test_a_working_folder_that_was_deleted(tmp_path: Path) -> None:
    inside = "mkdir gone; cd gone; rmdir ../gone;"
    for arguments in ("status", "list tasks --plugin x.py", "run quickstart", "data check digits", "doctor"):
        done = shell(f"{inside} {COMMAND} {arguments}", tmp_path)
        assert (done.returncode, done.stderr) == (
            2, "dropbench: the working folder was deleted: change to another one\n"
        )  # fmt: skip
    assert shell(f"{inside} {COMMAND} --version", tmp_path).returncode == 0


@pytest.mark.parametrize("arguments", ["status", "enqueue quickstart", "run quickstart", "doctor"])
def test_a_working_folder_that_is_not_utf_8(tmp_path: Path, arguments: str) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    done = shell(f"{COMMAND} {arguments}", folder)
    assert done.returncode == 2
    assert done.stderr.startswith("dropbench: working folder '")
    assert done.stderr.endswith("caf\\udce9': expected text in UTF-8 without NUL\n")
    assert [*folder.iterdir()] == []


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("not\nthis"), "ValueError: not this; for a traceback, set DROPBENCH_DEBUG=1"),
        (OSError(5, "Input/output error"), "OSError: [Errno 5] Input/output error; for a traceback"),
        (OSError(24, "Too many open files"), "files: Too many open files: allow more, such as by `ulimit -n 1024`"),
        (sqlite3.OperationalError("odd"), "OperationalError: odd; for a traceback"),
        (UnicodeEncodeError("utf-8", "\ud83d", 0, 1, "no"), "UnicodeEncodeError: 'utf-8' codec can't encode"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_of_unknown_cause_is_one_line_and_a_traceback_on_request(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, line: str
) -> None:
    def fail(target: str) -> None:
        raise error

    monkeypatch.setattr(main, "load", fail)
    monkeypatch.setattr(main, "PLUGIN_MODULES", set())
    monkeypatch.delenv("DROPBENCH_DEBUG", raising=False)
    assert main.run(["status"]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"dropbench: {line}")
    assert err.count("\n") == 1
    monkeypatch.setenv("DROPBENCH_DEBUG", "1")
    if "DROPBENCH_DEBUG" in err:
        with pytest.raises(type(error)):
            main.run(["status"])


def test_a_fault_of_the_program_has_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "load", lambda target: None.app)  # type: ignore[attr-defined]
    monkeypatch.setattr(main, "PLUGIN_MODULES", set())
    with pytest.raises(AttributeError):
        main.run(["status"])


def test_the_path_of_a_plug_in_may_have_colons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "a:b" / "c:d.py", tmp_path / "plain.py", tmp_path / "missing.py"]
    files[0].parent.mkdir()
    for file in files[:2]:
        file.write_text("")
    monkeypatch.setenv("DROPBENCH_PLUGINS", ":".join(["", *map(str, files), ""]))
    assert Settings.from_environment().plugins == tuple(files)
    main.hoist_plugins(["status", "--plugin", str(files[0])])
    assert Settings.from_environment().plugins == (*files, files[0])
