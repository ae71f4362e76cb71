"""The suites of Learned Dropout against the tables of the source."""

from __future__ import annotations

import pytest

from harness.models.catalog import MODELS
from harness.suites.cell import SuiteOptions
from harness.suites.suite import load_suite

SHIFT_0 = (2.937, 3.384, 0.6167, 15_335_424)
BASELINE = (2.845, 3.475, None, 15_441_192)
TABLES: dict[str, dict[str, tuple[float | None, ...]]] = {
    "penalty": {"with penalty": SHIFT_0[:3], "without penalty": (2.911, 3.403, 0.9609)},
    "shift": {
        "shift_init = 0": SHIFT_0[:3],
        "shift_init = π/2": (2.967, 3.405, 0.5955),
        "shift_init = π": (3.055, 3.457, 0.2507),
    },
    "baseline": {"shift_init = 0": SHIFT_0, "baseline": BASELINE},
    "dropout": {
        "shift_init = 0": SHIFT_0,
        "baseline": BASELINE,
        "0.2 dropout baseline": (3.1, 3.354, None, 15_441_192),
        "0.3 dropout baseline": (3.213, 3.425, None, 15_441_192),
        "0.4 dropout baseline": (3.319, 3.512, None, 15_441_192),
    },
    "precomputed": {"shift_init = 0": SHIFT_0, "pre-computed masks": (2.937, 3.425, 0.7752, 15_418_368)},
}
METRICS = ("train-loss", "loss", "kept", "parameters")


@pytest.mark.parametrize("name", list(TABLES))
def test_the_paper_preset_is_the_table_of_the_source(name: str) -> None:
    values: dict[str, tuple[float | None, ...]] = {}
    for cell in load_suite(f"learned-dropout/{name}").cells(SuiteOptions(preset="paper")):
        row = values.get(cell.row, ())
        assert cell.metric == METRICS[len(row)]
        assert cell.request.data == "enwiki"
        assert isinstance(cell.published, float | int | None)
        values[cell.row] = (*row, cell.published)
    assert values == TABLES[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", list(TABLES))
def test_mini_is_the_same_table_on_a_small_text(name: str) -> None:
    cells = list(load_suite(f"learned-dropout/{name}").cells(SuiteOptions()))
    assert {cell.request.data for cell in cells} == {"wikitext-2"}
    assert {cell.published for cell in cells} == {None}
    assert list(dict.fromkeys(cell.row for cell in cells)) == list(
        dict.fromkeys(cell.row for cell in load_suite(f"learned-dropout/{name}").cells(SuiteOptions(preset="paper")))
    )
    on_the_dump = load_suite(f"learned-dropout/{name}").cells(SuiteOptions(data=("enwiki",)))
    assert all(cell.request.preset == "mini" for cell in on_the_dump)


def test_the_model_of_a_row_has_the_printed_number_of_parameters() -> None:
    models = {15_335_424: "learned-dropout-lm", 15_441_192: "learned-dropout-lm-baseline"}
    for name in ("baseline", "dropout"):
        for cell in load_suite(f"learned-dropout/{name}").cells(SuiteOptions(preset="paper")):
            if cell.metric == "parameters":
                assert cell.request.model == models[cell.published]  # type: ignore[index]


def test_only_the_paper_preset_repeats_the_particularities_of_the_published_runs() -> None:
    for preset, evaluation, steps in (("paper", "faithful", 28_000), ("mini", None, None)):
        for cell in load_suite("learned-dropout/dropout").cells(SuiteOptions(preset=preset)):
            expected = evaluation if "dropout baseline" in cell.row else None
            assert cell.request.overrides.get("model.evaluation") == expected
        for cell in load_suite("learned-dropout/precomputed").cells(SuiteOptions(preset=preset)):
            expected = steps if cell.row == "pre-computed masks" else None  # type: ignore[assignment]
            assert cell.request.overrides.get("steps") == expected


def test_dropout_applies_to_attention_and_everything_else() -> None:
    for cell in load_suite("learned-dropout/dropout").cells(SuiteOptions()):
        if "dropout baseline" in cell.row:
            ratio = float(cell.row.split()[0])
            assert cell.request.params == {"ratio": ratio}
            assert cell.request.overrides == {"model.dropout": ratio}


def test_tables_with_the_same_row_share_its_run() -> None:
    requests = {
        name: next(
            cell.request
            for cell in load_suite(f"learned-dropout/{name}").cells(SuiteOptions())
            if cell.row in ("shift_init = 0", "with penalty")
        )
        for name in (*TABLES, "moe")
    }
    assert len({request.model_dump_json() for request in requests.values()}) == 1


def test_the_table_of_experts_has_all_language_models() -> None:
    cells = list(load_suite("learned-dropout/moe").cells(SuiteOptions()))
    assert {cell.request.model for cell in cells} == {
        name for name in MODELS if "language-modelling" in MODELS.entry(name).facts["tasks"]
    }
    assert {cell.metric for cell in cells} == {*METRICS, "active-parameters"}
