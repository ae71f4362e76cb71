"""Candidates of tuned presets: from cards, classes of plug-ins, or the learning rate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.registry import Entry
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.regularizers.cards import find_card
from dropbench.harness.regularizers.presets import Unregularized
from dropbench.harness.regularizers.spec import build_regularizer, complete_spec, parse_spec, strengths
from dropbench.harness.suites.budget import Budget, budget_lines, budget_of
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.schema import Preset
from dropbench.harness.suites.search_space import parse_space
from dropbench.harness.suites.suite import Suite, load_suite, parse_suite
from dropbench.harness.suites.tuning import declared_tuning
from tests.harness.suites.test_suite import SMALL
from tests.requests import grid_cells

LR = 0.0005
"""The learning rate of `paper` for text classification."""
TUNED = [name for name in REGULARIZERS if (card := find_card(name)) and card.tuning]
FIELD = ("text", "labelling", "vision")


class Mine(Unregularized):
    """A plug-in's regularizer."""

    amount: float = 0.5
    tuning: ClassVar[dict[str, Any]] = {"amount": [0.1, 0.2, 0.3, 0.4]}


@pytest.fixture
def plug_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Unregularized]], None]:
    """Registers a class as a plug-in's regularizer, for the time of a test."""
    return lambda kind: monkeypatch.setitem(
        REGULARIZERS._entries, "mine", Entry("mine", "", kind, {}, str(tmp_path / "mine.py"))
    )


def tuned(**changes: Any) -> Suite:
    presets = {"paper": {"seeds": 2, "tuned": True}}
    return parse_suite({**SMALL, "presets": presets, **changes}, "small", "small.yaml")


def test_a_misspelt_kind_of_tuning_is_one_line() -> None:
    with pytest.raises(InputError, match=r"presets\.paper\.tuned=stagd: expected true, false or staged$"):
        tuned(presets={"paper": {"seeds": 2, "tuned": "stagd"}})


def spaces(suite: Suite, **options: Any) -> dict[str, dict[str, Any]]:
    cells = suite.cells(SuiteOptions(preset="paper", data=("mr",), **options))
    return {cell.row: dict(cell.sweep.space) if cell.sweep is not None else {} for cell in cells}


@pytest.mark.parametrize("name", TUNED)
def test_cards_tune_the_strength_over_three_values_with_the_default(name: str) -> None:
    card = find_card(name)
    assert card is not None
    ((key, values),) = card.tuning.items()
    assert len(values) == 3
    assert list(values) == sorted(values)
    assert complete_spec(name, parse_spec(card.spec(name)).params).params[key] in values
    assert key in strengths(name) or name == "learned-dropout"  # it has no ratio
    for value in values:
        build_regularizer(name, **{key: value})


def test_rows_choose_from_their_card_or_from_learning_rates() -> None:
    by_row = spaces(tuned(), regularizers=("sigma-reparam", "dropkey+r-drop"))
    rates = {"set.lr": (LR / 2, LR, LR * 2)}
    assert by_row == {
        "base": rates, "drop": {"ratio": (0.1, 0.3, 0.5)}, "sigma-reparam": rates, "dropkey+r-drop": rates,
    }  # fmt: skip


def test_staged_rows_tune_the_rate_before_the_strength_with_seeds_of_their_own() -> None:
    presets = {"paper": {"seeds": 2, "tuned": "staged", "tuning_seeds": 3}}
    cells = list(tuned(presets=presets).cells(SuiteOptions(preset="paper", data=("mr",), regularizers=("hiddenkey",))))
    rates = (LR / 2, LR, LR * 2)
    assert {cell.row: dict(cell.sweep.space) for cell in cells if cell.sweep} == {
        "base": {"set.lr": (LR / 4, *rates, LR * 4)},
        "drop": {"set.lr": rates, "ratio": (0.1, 0.3, 0.5)},
        "hiddenkey": {"set.lr": rates, "dropkey.ratio": (0.05, 0.1, 0.2)},
    }
    assert {budget_of(cell) for cell in cells} == {Budget(5, 3, 2)}
    assert budget_of(cells[0]).trials == 5 * 3 + 2
    (drop,) = [cell for cell in cells if cell.row == "drop"]
    assert drop.sweep is not None
    (default, *_) = drop.sweep.stage(1, drop.sweep.recipe)
    assert drop.with_params(default).request == drop.request
    assert (drop.candidate(default).seeds, drop.with_params(default).seeds) == ((10000, 10001, 10002), (0, 1))


def test_seeds_for_tuning_need_candidates() -> None:
    with pytest.raises(ValueError, match="expected tuning_seeds only with tuned or sweep"):
        Preset.model_validate({"seeds": 1, "tuning_seeds": 2})


def test_an_added_row_keeps_the_parameter_that_it_gives() -> None:
    by_row = spaces(tuned(), regularizers=("dropout:ratio=0.2", "dropkey:window=2"))
    assert by_row["dropout:ratio=0.2"].keys() == {"set.lr"}
    assert by_row["dropkey:window=2"].keys() == {"ratio"}


def test_own_sweeps_and_the_command_line_come_first() -> None:
    own = tuned(rows=[SMALL["rows"][0], {**SMALL["rows"][1], "sweep": {"window": [1, 2]}}], sweep={"ratio": [0.7, 0.8]})
    assert spaces(own)["drop"] == {"window": (1, 2)}
    assert spaces(own)["base"].keys() == {"set.lr"}
    assert spaces(own, sweep=parse_space(["ratio=0.2"])) == {"base": {}, "drop": {"ratio": (0.2,)}}
    assert spaces(own, sweep=parse_space(["none"])) == {"base": {}, "drop": {}}


def test_the_recipes_learning_rate_is_no_override() -> None:
    (base, *_) = tuned().cells(SuiteOptions(preset="paper", data=("mr",)))
    assert [cell.request.overrides for cell in grid_cells(base)] == [{"lr": LR / 2}, {}, {"lr": LR * 2}]
    (base, *_) = tuned().cells(SuiteOptions(preset="paper", data=("mr",), overrides={"lr": 0.1}))
    assert [cell.request.overrides["lr"] for cell in grid_cells(base)] == [0.05, 0.1, 0.2]


def test_a_plug_in_is_tuned_as_its_class_says_or_over_the_learning_rate(plug_in: Callable[..., None]) -> None:
    plug_in(Unregularized)
    assert spaces(tuned(plugin_rows=True))["mine"].keys() == {"set.lr"}
    plug_in(Mine)
    assert declared_tuning("mine") == Mine.tuning
    assert spaces(tuned(plugin_rows=True))["mine"] == {"amount": (0.1, 0.2, 0.3, 0.4)}


def test_a_plug_ins_unknown_parameter_is_refused(plug_in: Callable[..., None]) -> None:
    plug_in(type("Wrong", (Mine,), {"tuning": {"amont": [1.0]}, "__doc__": "Misspells its parameter."}))
    with pytest.raises(InputError, match="unknown parameter in tuning of mine 'amont': did you mean amount"):
        spaces(tuned(plugin_rows=True))


def test_unequal_budgets_are_named_with_a_warning() -> None:
    options = SuiteOptions(preset="paper", data=("mr",), sweep=parse_space(["ratio=0.1,0.2"]))
    assert budget_lines(tuned().cells(options)) == [
        "unequal budgets: 1 candidate × 2 seeds for base; 2 candidates × 2 seeds for the others; 6 trials in all",
        "warning: unequal budgets favour the rows with more candidates",
    ]
    assert budget_lines(tuned().cells(SuiteOptions(preset="paper", data=("mr",)))) == [
        "budget of each cell: 3 candidates × 2 seeds; 12 trials in all"
    ]
    plain = SuiteOptions(preset="paper", data=("mr",), sweep={})
    assert budget_lines(tuned().cells(plain)) == []


def test_a_preset_is_tuned_or_has_a_sweep() -> None:
    with pytest.raises(ValueError, match="expected either tuned or sweep"):
        Preset.model_validate({"seeds": 1, "tuned": True, "sweep": {"ratio": [0.1, 0.2]}})


@pytest.mark.parametrize("domain", FIELD)
def test_every_row_of_a_field_suite_has_three_candidates_with_the_defaults(domain: str) -> None:
    suite = load_suite(f"field/{domain}")
    tuned = suite.model_copy(update={"presets": {"mini": suite.presets["small"]}})  # the recipes of both have a rate
    plain = {_key(cell): cell for cell in tuned.cells(SuiteOptions(sweep={}))}
    cells = list(tuned.cells(SuiteOptions()))
    assert len(cells) == len(plain) > 0
    for cell in cells:
        candidates = [_identity(candidate) for candidate in grid_cells(cell)]
        assert (len(candidates), len(cell.seeds)) == (3, 5)
        assert candidates.count(_identity(plain[_key(cell)])) == 1


def _key(cell: Cell) -> tuple[str, str]:
    return cell.row, cell.column


def _identity(cell: Cell) -> tuple[Any, ...]:
    request = cell.request
    return complete_spec(request.regularizer, request.params).label(), request.schedule, dict(request.overrides)
