"""The numbers of every item are those recorded for its result version."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.files import write_json
from dropbench.harness.regularizers.drop import UnitDrop
from tests.result_versions import cases, numbers
from tests.result_versions.record import record

SLOW = [item for item in cases.items() if cases.request(item).model in cases.SLOW]
EVERY = [pytest.param(item, marks=pytest.mark.slow) if item in SLOW else item for item in cases.items()]
DROPKEY = "regularizer dropkey"


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.parametrize("item", EVERY)
def test_the_numbers_of_an_item_are_those_of_its_version(item: str) -> None:
    assert item in numbers.recorded(), f"{item} is new: run `{numbers.COMMAND} '{item}'`"
    problem = numbers.problem(item, numbers.recorded()[item], numbers.measure(item))
    assert problem is None, problem


def test_every_item_is_recorded() -> None:
    assert list(numbers.recorded()) == sorted(cases.items())


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the record of dropkey, which `record` writes."""
    path = tmp_path / "recorded.json"
    write_json(path, {DROPKEY: numbers.recorded()[DROPKEY]})
    monkeypatch.setattr(numbers, "RECORDED", path)
    numbers._trained.cache_clear()
    return path


def versions(path: Path) -> Any:
    return json.loads(path.read_bytes())[DROPKEY]["versions"][DROPKEY]


def test_changed_numbers_need_a_raised_version(
    copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = copy.read_bytes()
    assert record([DROPKEY]) == 0
    assert copy.read_bytes() == before
    monkeypatch.setattr(UnitDrop, "ratio_at", lambda self, site, schedule: 1.01 * self.ratio)
    numbers._trained.cache_clear()
    old = numbers.recorded()[DROPKEY]
    problem = numbers.problem(DROPKEY, old, numbers.measure(DROPKEY))
    assert problem is not None
    assert f"raise result_version of {DROPKEY} (the class attribute)" in problem
    assert f"`{numbers.COMMAND}`" in problem
    assert record([DROPKEY]) == 1
    assert "not recorded: the numbers of regularizer dropkey changed" in capsys.readouterr().err
    assert copy.read_bytes() == before
    monkeypatch.setattr(UnitDrop, "result_version", 2)
    stale = numbers.problem(DROPKEY, old, numbers.measure(DROPKEY))
    assert stale is not None
    assert f"run `{numbers.COMMAND} '{DROPKEY}'`" in stale
    assert record([DROPKEY]) == 0
    assert versions(copy) == 2
    assert numbers.problem(DROPKEY, numbers.recorded()[DROPKEY], numbers.measure(DROPKEY)) is None


@pytest.mark.parametrize("libraries", ["", "torch 1.0"])
def test_numbers_of_other_libraries_are_recorded(copy: Path, libraries: str) -> None:
    entry = numbers.recorded()[DROPKEY]
    entry["numbers"]["loss of step 1"] += 0.01
    write_json(copy, {DROPKEY: {**entry, "libraries": libraries or entry["libraries"]}})
    assert record([DROPKEY]) == (0 if libraries else 1)


def test_rounding_is_no_change() -> None:
    old: numbers.Numbers = {"loss of step 1": 2.5, "test/accuracy": 50.0, "structure": "abc"}
    assert numbers.differences(old, {**old, "loss of step 1": 2.5001, "test/accuracy": 50.5}) == []
    for change in ({"loss of step 1": 2.501}, {"test/accuracy": 52.0}, {"structure": "abd"}, {"dev/loss": 1.0}):
        assert len(numbers.differences(old, {**old, **change})) == 1
