"""Test the order in which a worker runs trials."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from dropbench.jobs.worker.longest_first import LongestFirst


def ordered(kinds: str, seconds: Mapping[str, float]) -> str:
    """Return the kinds of the trials in the order in which they are run; each trial takes as long as its kind."""
    paths = [Path(f"{number}") for number in range(len(kinds))]
    order = LongestFirst(paths, list(kinds))
    run = []
    for path in order:
        run.append(path)
        order.record(path, seconds[kinds[int(path.name)]])
    assert sorted(run) == sorted(paths)
    of_kind = [[path for path in run if kinds[int(path.name)] == kind] for kind in set(kinds)]
    assert of_kind == [sorted(paths, key=lambda path: int(path.name)) for paths in of_kind]
    return "".join(kinds[int(path.name)] for path in run)


def test_a_trial_of_each_kind_is_run_and_then_the_longest() -> None:
    assert ordered("aabbcc", {"a": 2.0, "b": 3.0, "c": 1.0}) == "abcbac"


def test_equal_kinds_keep_the_order_of_the_list() -> None:
    assert ordered("abab", {"a": 1.0, "b": 1.0}) == "abab"
    assert [*LongestFirst([Path("b"), Path("a")], [])] == [Path("b"), Path("a")]


def test_a_kind_whose_trials_other_workers_run_has_no_duration_here() -> None:
    order = LongestFirst([Path("1"), Path("2"), Path("3")], ["a", "a", "b"])
    assert [*order] == [Path("1"), Path("2"), Path("3")]


def test_the_duration_of_a_kind_is_the_longest_of_its_trials() -> None:
    order = LongestFirst([Path(number) for number in "123456"], [*"aaabbb"])
    paths = iter(order)
    assert next(paths) == Path("1")
    order.record(Path("1"), 9.0)
    assert next(paths) == Path("4")
    order.record(Path("4"), 5.0)
    assert next(paths) == Path("2")
    order.record(Path("2"), 0.1)  # it failed at once
    assert next(paths) == Path("3")
    order.record(Path("3"), 9.0)
    assert [*paths] == [Path("5"), Path("6")]
