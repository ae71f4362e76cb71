"""Suites: the shipped files, selection by options, and invalid input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import Cell, SuiteOptions
from dropbench.harness.suites.search_space import parse_space
from dropbench.harness.suites.suite import load_suite, parse_suite, suite_names
from dropbench.harness.trials.recipe import default_preset
from dropbench.jobs.queue.request import request_suite

SMALL: dict[str, Any] = {
    "title": "t",
    "source": "s",
    "metric": "accuracy",
    "trial": {"task": "text-classification", "model": "text-transformer"},
    "columns": [{"label": "A", "trial": {"data": "trec"}}, {"label": "B", "trial": {"data": "mr"}}],
    "rows": [
        {"label": "base", "baseline": True, "trial": {"regularizer": "none"}, "published": [1.0, [2.0, 0.5]]},
        {
            "label": "drop",
            "trial": {"regularizer": "dropkey", "params": {"window": 2}},
            "params": [{"ratio": 0.1}, None],
            "published": [None, 3.0],
        },
    ],
    "presets": {"mini": {"seeds": 2, "data": ["trec"]}, "paper": {"seeds": 5, "overrides": {"lr": 0.1}}},
}


@pytest.mark.parametrize("name", suite_names())
def test_every_shipped_suite_has_cells_in_both_presets(name: str) -> None:
    suite = load_suite(name)
    for preset in (default_preset(suite.presets), "paper"):
        cells = list(suite.cells(SuiteOptions(preset=preset)))
        assert any(cell.baseline for cell in cells)
        assert all(cell.seeds for cell in cells)


def test_a_cell_combines_suite_row_and_column() -> None:
    suite = parse_suite(SMALL, "small", "small.yaml")
    cells = list(suite.cells(SuiteOptions(preset="paper", overrides={"epochs": 1})))
    assert [(cell.row, cell.column, cell.published) for cell in cells] == [
        ("base", "A", 1.0), ("base", "B", (2.0, 0.5)), ("drop", "A", None), ("drop", "B", 3.0),
    ]  # fmt: skip
    assert cells[2].request.params == {"window": 2, "ratio": 0.1}
    assert cells[3].request.params == {"window": 2}
    assert cells[0].request.overrides == {"lr": 0.1, "epochs": 1}
    assert cells[0].seeds == (0, 1, 2, 3, 4)


@pytest.mark.parametrize("name", ["masksub/imagenet", "early-late-dropout/early"])
def test_steps_on_the_command_line_replace_the_epochs_of_a_preset(name: str) -> None:
    (cell, *_) = load_suite(name).cells(SuiteOptions(preset="paper", overrides={"steps": 30}))
    assert cell.request.overrides["steps"] == 30
    assert "epochs" not in cell.request.overrides
    swept = cell.with_params({"set.epochs": 2})
    assert "steps" not in swept.request.overrides


def test_options_select_data_and_seeds_and_add_rows() -> None:
    suite = parse_suite(SMALL, "small", "small.yaml")
    options = SuiteOptions(
        data=("mr-synthetic",), seeds=(7,), regularizers=("dropout:ratio=0.2,schedule=decreasing,align=finetune",)
    )
    cells = list(suite.cells(options))
    assert [(cell.row, cell.request.data, cell.seeds) for cell in cells] == [
        ("base", "mr-synthetic", (7,)),
        ("drop", "mr-synthetic", (7,)),
        ("dropout:ratio=0.2,schedule=decreasing,align=finetune", "mr-synthetic", (7,)),
    ]
    added = cells[2].request
    assert (added.regularizer, added.params, added.schedule, added.align) == (
        "dropout", {"ratio": 0.2}, "decreasing", "finetune",
    )  # fmt: skip


def test_an_added_row_is_repeated_per_model_if_the_rows_name_models() -> None:
    options = SuiteOptions(regularizers=("dropattention-e:ratio=0.2",), models=("t2t-vit-14", "volo-d1"))
    cells = [cell for cell in load_suite("dropkey/table1").cells(options) if "dropattention" in cell.row]
    rows = {cell.row: cell.request.model for cell in cells}
    assert rows == {f"{model} + dropattention-e:ratio=0.2": model for model in options.models}
    assert {cell.request.params["ratio"] for cell in cells} == {0.2}
    assert not any(cell.baseline for cell in cells)


def test_a_row_may_have_recipe_keys_for_one_preset_only() -> None:
    row = {**SMALL["rows"][1], "presets": {"paper": {"lr": 0.3, "steps": 9}}}
    suite = parse_suite({**SMALL, "rows": [SMALL["rows"][0], row]}, "small", "small.yaml")
    overrides = [cell.request.overrides for cell in suite.cells(SuiteOptions(preset="paper"))]
    assert overrides == [{"lr": 0.1}] * 2 + [{"lr": 0.3, "steps": 9}] * 2
    assert [cell.request.overrides for cell in suite.cells(SuiteOptions())] == [{}] * 2


def test_a_preset_selects_data_unless_the_user_does() -> None:
    suite = parse_suite(SMALL, "small", "small.yaml")
    assert {cell.request.data for cell in suite.cells(SuiteOptions())} == {"trec"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (SuiteOptions(preset="mni"), "unknown preset of small 'mni': did you mean mini"),
        (SuiteOptions(data=("trek",)), "unknown data of small 'trek': did you mean trec"),
        (SuiteOptions(models=("text-transfomer",)), "did you mean text-transformer"),
        (SuiteOptions(regularizers=("dropkey:ratio",)), "'ratio' is not of the form key=value"),
    ],
)
def test_options_that_the_suite_does_not_have_are_rejected(options: SuiteOptions, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(parse_suite(SMALL, "small", "small.yaml").cells(options))


def test_trials_are_counted_before_any_is_created(monkeypatch: pytest.MonkeyPatch) -> None:
    suite = parse_suite(SMALL, "small", "small.yaml")
    monkeypatch.setattr(Cell, "trials", None)
    grid = parse_space([f"ratio={','.join(str(number / 1000) for number in range(1, 901))}"])
    options = SuiteOptions(seeds=tuple(range(2000)), sweep=grid, regularizers=("dropkey",))
    with pytest.raises(InputError, match="suite small: more than 1,000,000 trials: request fewer seeds or candidates"):
        request_suite(suite, options, Settings())


def test_a_users_suite_is_read_from_its_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(SMALL))
    assert load_suite(str(file)).title == "t"
    file.write_text("rows: [")
    with pytest.raises(InputError, match="not valid YAML"):
        load_suite(str(file))
    file.write_text("!!python/object/apply:os.system ['true']")
    with pytest.raises(InputError, match="not valid YAML"):
        load_suite(str(file))
    with pytest.raises(InputError, match="no such suite file"):
        load_suite(str(tmp_path / "none.yaml"))


def test_an_unknown_suite_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean dropattention/table3"):
        load_suite("dropattention/table33")


def test_an_added_row_of_a_label_that_is_there_is_numbered_unless_its_trials_are_the_same() -> None:
    suite = load_suite("quickstart")
    rows = [row.model_copy(update={"label": "dropout"}) if "dropout 0" in row.label else row for row in suite.rows]
    suite = suite.model_copy(update={"rows": rows})
    options = SuiteOptions(seeds=(0,), regularizers=("dropout", "dropout:ratio=0.3", "none"))
    request = request_suite(suite, options, Settings()).request
    labels = [cell.row for cell in request.cells]
    assert labels[-2:] == ["dropout (2)", "dropout:ratio=0.3"]
    assert len(set(labels)) == len(labels) == 6
