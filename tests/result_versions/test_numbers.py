"""The numbers of every item are those recorded for its result version."""

from __future__ import annotations

import pytest

from dropbench.harness.regularizers.drop import UnitDrop
from tests.result_versions import cases, numbers

pytestmark = pytest.mark.usefixtures("cache")
SLOW = [item for item in cases.items() if cases.request(item).model in cases.SLOW]
EVERY = [pytest.param(item, marks=pytest.mark.slow) if item in SLOW else item for item in cases.items()]
DROPKEY = "regularizer dropkey"


@pytest.mark.parametrize("item", EVERY)
def test_the_numbers_of_an_item_are_those_of_its_version(item: str) -> None:
    assert item in numbers.recorded(), f"{item} is new: run `{numbers.COMMAND} '{item}'`"
    problem = numbers.problem(item, numbers.recorded()[item], numbers.measure(item))
    assert problem is None, problem


def test_every_item_is_recorded() -> None:
    assert list(numbers.recorded()) == sorted(cases.items())


def test_changed_numbers_need_a_raised_version(monkeypatch: pytest.MonkeyPatch) -> None:
    old = numbers.recorded()[DROPKEY]
    monkeypatch.setattr(UnitDrop, "ratio_at", lambda self, site, schedule: 1.01 * self.ratio)
    numbers._trained.cache_clear()
    new = numbers.measure(DROPKEY)
    assert f"raise result_version of {DROPKEY} (the class attribute)" in (numbers.problem(DROPKEY, old, new) or "")
    monkeypatch.setattr(UnitDrop, "result_version", 2)
    assert f"run `{numbers.COMMAND} '{DROPKEY}'`" in (numbers.problem(DROPKEY, old, new) or "")
    numbers._trained.cache_clear()
