"""Search spaces of cells: parsing, validation, and the rows that they apply to."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.harness.errors import InputError
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.suites.search_space import Range, Search, Sweep, parse_search, parse_space
from dropbench.harness.suites.suite import Suite, load_suite, parse_suite
from tests.harness.suites import test_suite
from tests.requests import grid_cells

SMALL: dict[str, Any] = {
    **test_suite.SMALL,
    "columns": [{"label": "A", "trial": {"data": "trec"}}],
    "rows": [
        {"label": "base", "baseline": True, "trial": {"regularizer": "none"}},
        {"label": "drop", "trial": {"regularizer": "dropkey", "params": {"ratio": 0.3, "rescale": "inverse"}}},
    ],
    "presets": {"mini": {"seeds": 2}, "sweep": {"seeds": 2, "sweep": {"ratio": [0.1, 0.2]}}},
}


def small(**changes: Any) -> Suite:
    return parse_suite({**SMALL, **changes}, "small", "small.yaml")


def sweeps(suite: Suite, **options: Any) -> dict[str, str]:
    return {cell.row: str(cell.sweep) for cell in suite.cells(SuiteOptions(**options)) if cell.sweep is not None}


def test_a_grid_is_every_combination_in_order() -> None:
    space = parse_space(["ratio=0.1..0.3:0.1", "window=1..2", "schedule=constant,decreasing"])
    points = list(Sweep(space=space).grid())
    assert points[:3] == [
        {"ratio": 0.1, "window": 1, "schedule": "constant"},
        {"ratio": 0.1, "window": 1, "schedule": "decreasing"},
        {"ratio": 0.1, "window": 2, "schedule": "constant"},
    ]
    assert len(points) == 12
    assert [point["ratio"] for point in points[::4]] == [0.1, 0.2, 0.3], "as written, not 0.30000000000000004"


@given(st.integers(-1000, 1000), st.integers(1, 50), st.integers(1, 9))
def test_integer_ranges_count_as_in_python(low: int, width: int, step: int) -> None:
    assert Range(low=low, high=low + width, step=step).values() == list(range(low, low + width + 1, step))


def test_the_size_of_a_sweep() -> None:
    space = parse_space(["window=1..100", "ratio=0.1,0.2,0.3", "seed=1..100"])
    assert Sweep(space=parse_space(["window=1..100", "ratio=0.1,0.2,0.3"])).size == 300
    assert Sweep(space=space, search=parse_search("sampler=tpe,candidates=7")).size == 7
    with pytest.raises(ValueError, match="30,000 combinations, at most 10,000"):
        Sweep(space=space)


@pytest.mark.parametrize("bound", [10**400, -(10**400), float("inf")])
def test_bounds_of_any_size(bound: float) -> None:
    with pytest.raises(ValueError, match="should be"):
        Range(low=min(0, bound), high=max(0, bound))


def test_a_range_without_steps_is_not_a_grid() -> None:
    space = parse_space(["ratio=0.1..0.5", "set.lr=1e-4..1e-2:log"])
    assert space["set.lr"] == Range(low=1e-4, high=1e-2, log=True)
    assert Sweep(space=space, search=parse_search("sampler=tpe,candidates=3,pruner=median")).search.batch == 4
    with pytest.raises(ValueError, match="ratio: a grid needs a list of values, or a step"):
        Sweep(space=space)


def test_stages_take_one_key_after_the_other_with_the_best_values_so_far() -> None:
    space = parse_space(["set.lr=1,2,4", "ratio=0.1,0.2,0.3", "window=1,2"])
    known = {"set.lr": 2, "ratio": 0.1}  # the default of window is unknown
    sweep = Sweep(space=space, search=parse_search("sampler=staged"), recipe=known)
    assert sweep.stage(0, known) == [{"set.lr": rate, "ratio": 0.1} for rate in (1, 2, 4)]
    best = {"set.lr": 4, "ratio": 0.1}
    assert sweep.stage(1, best) == [{"set.lr": 4, "ratio": ratio} for ratio in (0.1, 0.2, 0.3)]
    assert sweep.stage(2, best) == [{"set.lr": 4, "ratio": 0.1, "window": window} for window in (1, 2)]
    assert (sweep.size, sweep.stages, sweep.is_grid) == (3 + 2 + 2, 3, False), "lr 4 with ratio 0.1 is in two stages"


WRONG_SPACES = [
    ("ratio", "expected key=values, such as ratio=0.1,0.2,0.3"),
    ("ratio=0.1,", "expected key=values"),
    ("ratio=0.1,0.1", "a value is given twice"),
    ("ratio=0.5..0.1", "expected low below high, got 0.5 and 0.1"),
    ("ratio=a..b", "expected numbers, such as ratio=0.1..0.5"),
    ("window=1..1000000000000", "more than 1,000,000 numbers: expected a larger step"),
    ("ratio=0..1:1e-300", "more than 1,000,000 numbers: expected a larger step"),
    (f"ratio=0..{'9' * 400}", "finite number"),
    ("ratio=0..1:log", "expected low above 0 and no step with log"),
    ("ratio=0.1..0.5:0", "greater than 0"),
]


@pytest.mark.parametrize(("item", "message"), WRONG_SPACES)
def test_invalid_spaces_are_reported_in_one_line(item: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_space([item])
    assert str(error.value).startswith(f"--sweep {item}: ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


WRONG_SEARCHES = [
    ("sampler=tp", "input should be 'grid', 'staged', 'random' or 'tpe'"),
    ("sampler=tpe", "expected candidates=N with the samplers random and tpe, and only there"),
    ("candidates=3", "expected candidates=N with the samplers random and tpe, and only there"),
    ("sampler=staged,pruner=median", "expected no pruner with the sampler staged"),
    ("sampelr=tpe", "unknown key of --search 'sampelr': did you mean sampler?"),
    ("sampler=tpe,candidates=0", "candidates=0: input should be greater than or equal to 1"),
    ("tpe", "'tpe' is not of the form key=value"),
]


@pytest.mark.parametrize(("text", "message"), WRONG_SEARCHES)
def test_invalid_searches_are_reported_in_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"^[^\n]*$") as error:
        parse_search(text)
    assert message in str(error.value)


def test_a_sweep_applies_to_rows_that_have_its_parameters() -> None:
    assert sweeps(small(), sweep=parse_space(["ratio=0.1,0.2"])) == {"drop": "ratio 0.1, 0.2"}
    both = parse_space(["ratio=0.1", "set.lr=0.01,0.1"])
    assert sweeps(small(), sweep=both) == {"base": "lr 0.01, 0.1", "drop": "ratio 0.1 × lr 0.01, 0.1"}
    added = sweeps(small(), sweep=both, regularizers=("dropout",))
    assert added["dropout"] == "ratio 0.1 × lr 0.01, 0.1"


def test_rows_take_precedence_over_presets_and_presets_over_suites() -> None:
    rows = [SMALL["rows"][0], {**SMALL["rows"][1], "sweep": {"window": [1, 2]}}]
    fixed = [SMALL["rows"][0], {**SMALL["rows"][1], "sweep": {}}]
    of_suite = {"sweep": {"ratio": [0.5, 0.6]}}
    assert sweeps(small()) == {}, "a preset without a sweep"
    assert sweeps(small(), preset="sweep") == {"drop": "ratio 0.1, 0.2"}
    assert sweeps(small(**of_suite)) == {"drop": "ratio 0.5, 0.6"}
    assert sweeps(small(**of_suite), preset="sweep") == {"drop": "ratio 0.1, 0.2"}
    assert sweeps(small(rows=rows, **of_suite), preset="sweep") == {"drop": "window 1, 2"}
    assert sweeps(small(rows=fixed, **of_suite), preset="sweep") == {}
    assert sweeps(small(rows=rows), sweep=parse_space(["ratio=0.9"])) == {"drop": "ratio 0.9"}
    searched = small(rows=[{**rows[1], "search": {"sampler": "random", "candidates": 2}}])
    (cell,) = searched.cells(SuiteOptions())
    assert cell.sweep is not None
    assert cell.sweep.search == Search(sampler="random", candidates=2)
    assert grid_cells(cell) == []


def test_candidates_equal_unswept_cells() -> None:
    space = parse_space(["ratio=0.1,0.2", "schedule=decreasing", "set.lr=0.01"])
    cell = next(cell for cell in small().cells(SuiteOptions(sweep=space)) if cell.row == "drop")
    first, _ = grid_cells(cell)
    assert (first.sweep, first.row, first.seeds) == (None, "drop", (0, 1))
    request = first.request
    assert request.params == {"ratio": 0.1, "rescale": "inverse"}
    assert (request.schedule, request.overrides) == ("decreasing", {"lr": 0.01})
    assert cell.request.params["ratio"] == 0.3, "the suite's value, for looking up the published value"
    suite = load_suite("quickstart")
    (drop, *_) = [
        cell for cell in suite.cells(SuiteOptions(sweep=parse_space(["ratio=0.25"]))) if cell.sweep is not None
    ]
    (candidate,) = grid_cells(drop)
    alone = SuiteOptions(regularizers=("dropout:ratio=0.25",))
    assert candidate.request in [cell.request for cell in suite.cells(alone)]


WRONG: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"sweep": {"rato": [0.1]}}, {}, "unknown parameter of the regularizers of small 'rato': did you mean ratio?"),
    ({}, {"sweep": {"windw": (1,)}}, "unknown parameter of the regularizers of small 'windw': did you mean window?"),
    ({}, {"search": Search()}, "--search: small has no sweep: add `--sweep KEY=VALUES`"),
    (
        {"rows": [{**SMALL["rows"][1], "sweep": {"ratio": [0.1], "widow": [1]}}]},
        {},
        "unknown parameter in the sweep of row 'drop' of small 'widow': did you mean window?",
    ),
    (
        {"sweep": {"ratio": {"low": 0.1, "high": 0.5}}},
        {},
        "the sweep of row 'drop' of small: ratio: a grid needs a list of values, or a step",
    ),
]


@pytest.mark.parametrize(("changes", "options", "message"), WRONG)
def test_sweeps_that_do_not_fit_a_suite(changes: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as error:
        list(small(**changes).cells(SuiteOptions(**options)))
    assert str(error.value).startswith(message)


def test_numbers_that_yaml_reads_as_strings() -> None:
    (_, cell) = small(sweep={"set.lr": ["1e-4", 0.01]}).cells(SuiteOptions())
    assert [candidate.request.overrides["lr"] for candidate in grid_cells(cell)] == [1e-4, 0.01]
