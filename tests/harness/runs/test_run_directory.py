"""The run directory: what a reader sees while a writer is killed, and afterwards."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.harness.errors import InputError
from dropbench.harness.files import atomic_file, write_atomic
from dropbench.harness.regularizers.spec import complete_spec
from dropbench.harness.runs.run_directory import RunDirectory, Runs
from dropbench.harness.trials.trial import DataRef, Trial


def make(runs: Path, seed: int = 0) -> RunDirectory:
    trial = Trial(
        task="t",
        data=DataRef(name="d", fingerprint="f"),
        model="m",
        regularizer=complete_spec("none"),
        preset="mini",
        recipe={},
        seed=seed,
    )
    return RunDirectory.create(runs, trial)


def test_a_directory_is_made_once_and_mended_when_its_trial_was_cut(tmp_path: Path) -> None:
    directory = make(tmp_path)
    trial = directory.trial()
    (directory.path / "trial.json").write_text('{"task":')
    with pytest.raises(InputError, match=r"trial\.json: "):
        directory.trial()
    assert make(tmp_path).trial() == trial


def test_a_renamed_directory_is_refused(tmp_path: Path) -> None:
    directory = make(tmp_path)
    other = directory.path.rename(tmp_path / "0123456789ab")
    with pytest.raises(InputError, match=f"holds trial {directory.id}, expected 0123456789ab"):
        RunDirectory(other).trial()
    with pytest.raises(InputError, match="no run directory"):
        RunDirectory(tmp_path / "nothing").trial()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"metrics": 1}', "\x00\xff"])
def test_a_damaged_result_is_told_in_one_line(tmp_path: Path, content: str) -> None:
    directory = make(tmp_path)
    assert directory.result() is None
    (directory.path / "result.json").write_text(content)
    with pytest.raises(InputError, match=r"result\.json: damaged .*: delete it, then run `dropbench retry"):
        directory.result()


def test_events_skip_torn_lines_and_what_a_resume_took_back(tmp_path: Path) -> None:
    directory = make(tmp_path)
    for step in (1, 2, 3):
        directory.append_event("train", step=step, loss=float(step))
    with (directory.path / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "train", "st')
    directory.append_event("resume", step=2)
    directory.append_event("train", step=3, loss=30.0)
    with (directory.path / "events.jsonl").open("ab") as file:
        file.write(bytes(100) + b"\n" + b'{"event"')
    losses = [event["loss"] for event in directory.events() if event["event"] == "train"]
    assert losses == [1.0, 2.0, 30.0]
    directory.append_event("train", step=4, loss=40.0)
    with pytest.raises(InputError, match=r"events\.jsonl:7: damaged \(not JSON\)"):
        directory.events()


def test_one_worker_holds_a_directory_until_its_process_ends(tmp_path: Path) -> None:
    directory = make(tmp_path)
    assert not directory.locked()
    program = (
        "import sys, time; from pathlib import Path; from dropbench.harness.runs.run_directory import RunDirectory\n"
        "with RunDirectory(Path(sys.argv[1])).lock() as mine: print(mine, flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, str(directory.path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder, holder.stdout:
        assert holder.stdout.readline() == "True\n"
        assert directory.locked()
        with directory.lock() as mine:
            assert not mine
        holder.kill()
        holder.wait()
        assert not directory.locked()
        with directory.lock() as mine:
            assert mine
            assert directory.locked()


def test_looking_at_a_lock_never_keeps_a_worker_out(tmp_path: Path) -> None:
    directory = make(tmp_path)
    program = (
        "import sys, time; from pathlib import Path; from dropbench.harness.runs.run_directory import RunDirectory\n"
        "d = RunDirectory(Path(sys.argv[1]))\nprint('on', flush=True)\nwhile True: d.locked(); time.sleep(0.001)"
    )
    with directory.lock():
        pass
    looker = subprocess.Popen([sys.executable, "-c", program, str(directory.path)], stdout=subprocess.PIPE, text=True)
    assert looker.stdout is not None
    with looker, looker.stdout:
        looker.stdout.readline()
        got = 0
        for _ in range(100):
            with directory.lock() as mine:
                got += mine
        looker.kill()
    assert got == 100


@given(content=st.binary(max_size=1000))
def test_atomic_writes_are_whole(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("files") / "file"
    write_atomic(path, b"before")
    write_atomic(path, content)
    assert path.read_bytes() == content
    assert [file.name for file in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"before")

    def fail() -> None:
        with atomic_file(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_files_have_the_rights_that_the_user_gives_to_files(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_atomic(tmp_path / "file", b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o640


def test_a_run_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    directories = [make(tmp_path, seed) for seed in range(3)]
    assert Runs(tmp_path).find(directories[0].id).id == directories[0].id
    assert Runs(tmp_path).find(directories[1].id[:8]).id == directories[1].id
    for prefix in ("", "zz"):
        with pytest.raises(InputError, match=f"no trial '{prefix}' in"):
            Runs(tmp_path).find(prefix)
    prefix = directories[0].id[:4]
    (tmp_path / (prefix + "x" * 8)).mkdir()
    (tmp_path / (prefix + "x" * 8) / "trial.json").write_bytes(b"{}")
    with pytest.raises(InputError, match=f"'{prefix}' matches 2 trials in"):
        Runs(tmp_path).find(prefix)
