"""Leases: the right to write into a run directory, across machines that share no kernel locks."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dropbench.harness.runs import lease
from dropbench.harness.runs.lease import LEASE_TIMEOUT_S, Lease, SupersededError, holder
from dropbench.harness.runs.run_directory import RunDirectory


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


def move(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """To another machine."""
    monkeypatch.setattr(lease, "machine", lambda: name)


def test_the_first_and_the_next_holder(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    assert holder(directory.path) is None
    first = Lease.take(directory.path)
    assert first is not None
    with first:
        assert first.held()
        found = holder(directory.path)
        assert found is not None
        assert not found.held_remotely, "on this machine the lock decides"
        move(monkeypatch, "another")
        assert directory.locked(), "seen from another one"
        with directory.lock() as mine:
            assert not mine
        assert Lease.take(directory.path) is None
    # It has ended, and said so.
    assert not directory.locked()
    second = Lease.take(directory.path)
    assert second is not None
    assert (first.held(), second.held()) == (False, True)


def test_one_that_gives_no_sign_is_superseded_and_writes_no_more(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Lease.take(directory.path)
    assert first is not None
    with directory.held_by(first):
        directory.append_event("start")
        now = lease.now(directory.path)
        monkeypatch.setattr(lease, "now", lambda folder: now + LEASE_TIMEOUT_S + 1)
        move(monkeypatch, "another")
        assert not directory.locked()
        assert Lease.take(directory.path) is not None
        writes: list[Callable[[], None]] = [
            lambda: directory.append_event("train"),
            lambda: directory.write_result({}),
            lambda: directory.write_attempt(1, {}),
            directory.check,
        ]
        for write in writes:
            with pytest.raises(SupersededError):
                write()
    assert [event["event"] for event in directory.events()] == ["start"]
    assert directory.result() is None


@pytest.mark.parametrize("seconds", [-600, 600])
def test_a_wrong_clock_supersedes_no_live_worker(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, seconds: int
) -> None:
    held = Lease.take(directory.path)
    assert held is not None
    with held:
        right = time.time
        monkeypatch.setattr(time, "time", lambda: right() + seconds)
        move(monkeypatch, "another")
        assert directory.locked()
        assert Lease.take(directory.path) is None
        os.utime(held.file, (right() - LEASE_TIMEOUT_S - 1,) * 2)
        assert not directory.locked()


def test_a_full_disk_keeps_no_one_from_holding_a_directory(
    directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", fail)
    held = Lease.take(directory.path)
    assert held is not None
    with held:
        move(monkeypatch, "another")
        assert directory.locked()
        assert held.held()
    assert not directory.locked()


def test_it_gives_signs_of_life(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "HEARTBEAT_S", 0.01)
    held = Lease.take(directory.path)
    assert held is not None
    with held:
        os.utime(held.file, (1, 1))
        while held.file.stat().st_mtime == 1:
            held.over.wait(0.01)
        found = holder(directory.path)
        assert found is not None
        assert found.seconds_since_heartbeat < LEASE_TIMEOUT_S


def test_of_two_that_take_it_at_once_one_gets_it(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    real = holder(directory.path)
    quicker = Lease.take(directory.path)
    monkeypatch.setattr(lease, "holder", lambda path: real)  # what the slower one has read before
    assert Lease.take(directory.path) is None
    assert quicker is not None
    assert quicker.held()
    assert sorted(file.name for file in quicker.folder.iterdir()) == ["1"]
    assert set(json.loads(quicker.file.read_bytes())) == {"machine", "host", "pid"}


@pytest.mark.parametrize("gone", [False, True])
def test_a_draft_that_vanishes(directory: RunDirectory, monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    """Deleted by a new holder on another machine, or with the directory."""
    real = os.link

    def link(draft: Path, file: Path) -> None:
        draft.unlink()
        if gone:
            draft.parent.rmdir()
        real(draft, file)

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(FileNotFoundError) if gone else contextlib.nullcontext():
        assert Lease.take(directory.path) is None


def test_a_directory_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Lease.take(tmp_path / "gone")


def test_old_ones_are_swept(directory: RunDirectory) -> None:
    for _ in range(5):
        assert Lease.take(directory.path) is not None
    assert sorted(file.name for file in (directory.path / "lease").iterdir()) == ["4", "5"]
