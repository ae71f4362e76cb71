from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import InputError
from jobs import places


def test_the_limit_counts_all_that_live(tmp_path: Path) -> None:
    with places.keeper(tmp_path):
        first = places.take(tmp_path, "a", wanted=2, limit=3)
        second = places.take(tmp_path, "b", wanted=2, limit=3)
        third = places.take(tmp_path, "c", wanted=2, limit=3)
    assert [place.slot for place in first] == [0, 1]
    assert [place.slot for place in second] == [2]
    assert third == []
    assert places.taken(tmp_path) == 3
    first[0].close()
    with places.keeper(tmp_path):
        assert places.take(tmp_path, "d", wanted=5, limit=2) == []
        (last,) = places.take(tmp_path, "d", wanted=5, limit=3)
    assert last.slot == 0
    for place in (first[1], *second, last):
        place.close()
    assert places.taken(tmp_path) == 0


def test_a_place_lives_as_long_as_any_process_of_it(tmp_path: Path) -> None:
    with places.keeper(tmp_path):
        (place,) = places.take(tmp_path, "a", wanted=1, limit=1)
    heir = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(place.handle,))
    place.close()
    assert places.alive(tmp_path, "a")
    heir.kill()
    heir.communicate()
    assert not places.alive(tmp_path, "a")
    with places.keeper(tmp_path):
        places.clear(tmp_path, "a")
    assert list((places.home(tmp_path) / "places").iterdir()) == []


def test_a_worker_whose_place_was_given_away_has_none(tmp_path: Path) -> None:
    with places.keeper(tmp_path):
        (place,) = places.take(tmp_path, "a", wanted=1, limit=1)
        with places.occupy(place.path) as mine:
            assert mine
            place.close()
            assert places.alive(tmp_path, "a")
        places.clear(tmp_path, "a")
    with places.occupy(place.path) as mine:
        assert not mine
    with places.occupy(None) as mine:
        assert mine


def test_a_living_place_is_not_cleared(tmp_path: Path) -> None:
    with places.keeper(tmp_path):
        (place,) = places.take(tmp_path, "a", wanted=1, limit=1)
        places.clear(tmp_path, "a")
        assert place.path.exists()
        place.close()


def test_one_keeper_at_a_time(tmp_path: Path) -> None:
    with places.keeper(tmp_path), open(places.home(tmp_path) / "lock", "rb") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)


def test_runs_that_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("")
    for use in (places.check_writable, lambda runs: places.keeper(runs).__enter__()):
        with pytest.raises(InputError, match=r"runs: Not a directory: expected a folder that can be written"):
            use(tmp_path / "runs")


def test_what_is_the_disks_fault(tmp_path: Path) -> None:
    assert places.disk_trouble(OSError(28, "No space left on device"), tmp_path)
    assert not places.disk_trouble(FileNotFoundError(2, "No such file"), tmp_path)
    assert not places.disk_trouble(ValueError("full"), tmp_path)
    assert not places.disk_trouble(OSError("torch could not write"), tmp_path)
