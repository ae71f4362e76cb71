"""The page of a suite as a document: everything leads somewhere, nothing from outside acts, and it stays small."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html as parser

from db.report.page import page, templates
from db.report.page.bands import band
from db.report.page.details import duration, log_lines
from db.report.page.table import table_of
from db.report.view import View
from db.store import Store
from harness.suite import Choice
from harness.task import Metric

if TYPE_CHECKING:
    from tests.db.report.conftest import Ran, Tables

HOSTILE = (
    "<script>alert(1)</script>\"'&</style>]]>\x1b[31m\u202eevil\u2028\nnext\\ {{7*7}} javascript:x " + "W" * 10_000
)


@pytest.fixture(autouse=True)
def _no_plotting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making the plots' script takes seconds, and the browser's tests have it."""
    monkeypatch.setattr("db.report.page.plotting", lambda: "/* plots */")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def view(store: Store, tables: Tables, ran: Ran, runs: Path) -> View:
    asked = tables.ask(tables.suite())
    ran.fill(store, runs, asked, tables.values)
    return tables.view(store, asked)


def checked(text: str) -> Any:
    """The document, after what must hold of every page."""
    found = parser.document_fromstring(text)
    ids = found.xpath("//@id")
    assert len(ids) == len(set(ids))
    for link in found.xpath("//a/@href"):
        assert link.startswith("#")
        assert link[1:] in ids
    assert not found.xpath("//@style | //@src[not(starts-with(., 'data:image/png'))] | //link | //iframe | //form")
    assert not [name for one in found.iter() for name in one.attrib if name.startswith("on")]
    assert all(one.get("type") == "application/json" for one in found.xpath("//script")[:-2])
    policy = found.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")[0]
    for script in [*found.xpath("//script[not(@type)]"), *found.xpath("//style")]:
        assert templates.digest(script.text) in policy
    assert "unsafe" not in policy
    for chart in found.xpath("//script[@type='application/json']"):
        json.loads(chart.text)
    assert not re.search(r"https?://", re.sub(r"/\* plots \*/", "", text))
    return found


def texts(found: Any, path: str) -> list[str]:
    return [" ".join(one.text_content().split()) for one in found.xpath(path)]


def test_the_table_is_that_of_the_other_formats(view: View, store: Store, runs: Path) -> None:
    found = checked(page(view, store, runs))
    assert texts(found, "//table[contains(@class, 'results')]//thead//th") == ["row", "TREC ↑", "MR ↑"]
    rows = [texts(body, "./tr/*") for body in found.xpath("//table[contains(@class, 'results')]/tbody")]
    assert rows[1] == [
        "dropkey 0.3", "85.00 ± 4.36 (3) (best)", "75.00 (1/3)[2] (best)", "Δ base", "+2.00 [−0.48, +4.48]", "+5.00",
        "published (Δ)", "90.00 ± 0.50 (−5.00)", "",
    ]  # fmt: skip
    assert rows[2][:3] == ["dropkey 0.5", "81.50 ± 3.54 (2/3)[3]", "queued"]
    sorts = found.xpath("//table[contains(@class, 'results')]/tbody/tr[1]/td[1]/@data-sort")
    assert [float(one) for one in sorts] == [83.0, 85.0, 81.5]
    assert "OutOfMemoryError: no memory" in texts(found, "//ol[@class='notes']/li")[2]


def test_a_number_opens_its_trials(view: View, store: Store, runs: Path) -> None:
    found = checked(page(view, store, runs))
    link = found.xpath("//tbody/tr[1]/td[1]/a/@href")[1]
    (cell,) = found.xpath(f"//details[@id='{link[1:]}']")
    assert texts(cell, "./summary") == ["dropkey 0.3 · TREC 85.00 ± 4.36"]
    told = " ".join(" ".join(cell.itertext()).split())
    ids = [seed.id for seed in view.cells["dropkey 0.3", "TREC"].seeds]
    assert all(id in told for id in ids)
    for part in ("+2.00 [−0.48, +4.48] over 3 pairs", "regularizer.name none dropkey", "node1", "1.5 GiB", "1 min",
                 "0.033 CPU-hours", "last line", "a note", "dev/accuracy"):  # fmt: skip
        assert part in told
    assert "\x1b" not in told


def test_one_column_has_its_numbers_in_columns(store: Store, tables: Tables, ran: Ran, runs: Path) -> None:
    suite = tables.suite(["TREC"])
    asked = tables.ask(suite)
    ran.fill(store, runs, asked, tables.values)
    found = checked(page(tables.view(store, asked, suite), store, runs))
    assert texts(found, "//table[contains(@class, 'results')]//thead//th") == [
        "row", "accuracy ↑", "n", "Δ base", "published", "Δ"
    ]  # fmt: skip
    assert found.xpath("//table[contains(@class, 'results')]/tbody[3]/tr/td/@data-sort") == [
        "81.50",
        "2",
        "-2.00",
        "",
        "",
    ]


def test_plots_and_their_numbers(view: View, store: Store, runs: Path) -> None:
    found = checked(page(view, store, runs))
    titles = texts(found, "//section/h2")
    assert titles == ["Table", "The metric over the drop ratio", "Learning curves", "Trials"]
    captions = texts(found, "//figcaption")
    assert captions == [
        "trec",
        "mr",
        "TREC: dev accuracy",
        "TREC: training loss",
        "MR: dev accuracy",
        "MR: training loss",
    ]
    specs = [json.loads(one.text) for one in found.xpath("//figure/script")]
    points = specs[0]["data"]["values"]
    assert [(one.get("x"), one["y"], one.get("p")) for one in points] == [
        (None, 83.0, 88.4), (0.3, 85.0, 90.0), (0.5, 81.5, None),
    ]  # fmt: skip
    loss = [one for one in specs[3]["data"]["values"] if one["r"] == 0]
    assert (loss[0]["x"], loss[0]["y"], loss[0]["l"], loss[0]["h"]) == (1, 2.1, 2.0, 2.2)
    assert loss[-1]["x"] == 40
    assert ["TREC", "none", "3", "90", "40", "0.15"] in [texts(row, "./td") for row in found.xpath("//tr")]


def test_ratios_are_those_of_the_runs(store: Store, tables: Tables, ran: Ran, runs: Path) -> None:
    suite = tables.suite(["TREC"])
    asked = tables.ask(suite)
    falling = [one.trials[0].model_copy(update={"schedule": "decreasing"}) for one in asked]
    asked = [type(one)(one.cell, [trial]) for one, trial in zip(asked, falling, strict=True)]
    ran.fill(store, runs, asked, tables.values)
    found = checked(page(tables.view(store, asked, suite), store, runs))
    (spec,) = [json.loads(one.text) for one in found.xpath("//section[@aria-labelledby='layers']//script")]
    one = [(point["x"], point["y"]) for point in spec["data"]["values"] if point["r"] == 1]
    assert one == [(1, 0.3), (2, 0.2), (3, 0.1), (4, 0.0)]


def test_analyses_side_by_side(view: View, store: Store, runs: Path) -> None:
    from PIL import Image

    generator = np.random.default_rng(0)
    for row in ("none", "dropkey 0.3"):
        folder = runs / view.cells[row, "TREC"].seeds[0].id / "analysis"
        folder.mkdir()
        entropy = {"encoder-self.1": generator.normal(1, 0.1, 90), "encoder-self.2": np.full((90, 4), 2.0)}
        sparsity = {"a.counts": np.eye(3)[:2], "a.edges": np.arange(4.0), "a.heads": np.ones(2)}
        for kind, arrays in (("entropy", entropy), ("sparsity", sparsity)):
            np.savez(folder / f"{kind}.npz", allow_pickle=False, **arrays)
        Image.new("RGB", (1200, 600), "red").save(folder / "attention-map.png")
    damaged = runs / view.cells["dropkey 0.5", "TREC"].seeds[0].id / "analysis"
    damaged.mkdir()
    (damaged / "entropy.npz").write_bytes(b"none")
    (damaged / "attention-map.png").write_bytes(b"none")
    found = checked(page(view, store, runs))
    (spec,) = [json.loads(one.text) for one in found.xpath("//section[@aria-labelledby='entropy']//script")]
    for number in (0, 1):
        assert sum(one["y"] for one in spec["data"]["values"] if one["r"] == number) == pytest.approx(1, abs=0.001)
    assert ["TREC", "none", "1", "encoder-self.2", "2"] in [texts(row, "./td") for row in found.xpath("//tr")]
    assert len(found.xpath("//img[starts-with(@src, 'data:image/png;base64,')]")) == 2
    assert (
        "1 more are in the run directories"
        in found.xpath("//section[@aria-labelledby='attention-map']")[0].text_content()
    )


@pytest.mark.parametrize("state", ["", "queued", "running", "boom"])
def test_without_any_number(state: str, store: Store, tables: Tables, ran: Ran, runs: Path) -> None:
    asked = tables.ask(tables.suite())
    ran.fill(store, runs, asked, dict.fromkeys(tables.values, (state,) * 3))
    found = checked(page(tables.view(store, asked), store, runs))
    shown = {"": "not run", "boom": "failed"}.get(state, state)
    assert shown in texts(found, "//tbody/tr[1]/td[1]")[0]


def test_words_from_outside_are_words(store: Store, tables: Tables, ran: Ran, runs: Path) -> None:
    suite = tables.suite(title=HOSTILE, label=HOSTILE)
    asked = tables.ask(suite)
    values = {(HOSTILE if row == "dropkey 0.3" else row, column): its for (row, column), its in tables.values.items()}
    values["none", "MR"] = (HOSTILE, HOSTILE, HOSTILE)
    ran.fill(store, runs, asked, values, HOSTILE)
    view = tables.view(store, asked, suite, Metric("accuracy"))
    text = page(view, store, runs)
    found = checked(text)
    assert len(found.xpath("//script[not(@type)]")) == 2
    assert "<script>alert" not in text
    assert "7*7" in text
    assert not set("\x1b\u202e\u2028") & set(text)
    assert "W" * 2001 not in text
    assert len(text) < 600_000
    assert "javascript" not in "".join(found.xpath("//@href"))


def test_a_large_suite_makes_no_large_page(
    store: Store, tables: Tables, ran: Ran, runs: Path, monkeypatch: Any
) -> None:
    for name, most in (
        ("details.MOST_FULL", 4),
        ("details.MOST_LINES", 12),
        ("MOST_CELLS", 4),
        ("training.MOST_TRIALS", 2),
    ):
        monkeypatch.setattr(f"db.report.page.{name}", most)
    asked = tables.ask(tables.suite(), Choice(seeds=tuple(range(6))))
    ran.fill(store, runs, asked, {place: [80.0] * 6 for place in tables.values})
    found = checked(page(tables.view(store, asked), store, runs))
    told = " ".join(found.text_content().split())
    assert "The first 2 of 3 rows: dropbench report mine --format csv has all." in told
    assert "24 trials, by row and column of the table. 4 of them are told in full" in told
    assert "And 3 more trials of this cell" in told
    assert "Drawn of 2 of 24 trials" in told
    assert len(found.xpath("//details[@class='cell']")) == 4
    assert len(found.xpath("//details[@class='trial']")) == 4


curve = st.lists(st.tuples(st.integers(0, 10_000), st.one_of(st.none(), st.floats(-1e6, 1e6))), max_size=60).map(
    lambda points: sorted(dict(points).items())
)


@given(st.lists(curve, max_size=5), st.integers(2, 50))
def test_bands_hold_their_curves(curves: list[list[tuple[int, float | None]]], most: int) -> None:
    found = band(curves, most)
    kept = [[(step, value) for step, value in one if value is not None] for one in curves]
    kept = [one for one in kept if one]
    if not kept:
        assert found is None
        return
    assert found is not None
    assert len(found.steps) <= most
    assert found.seeds == len(kept)
    steps = [step for one in kept for step, _ in one]
    assert (found.steps[0], found.steps[-1]) == (min(steps), max(steps))
    assert np.all(np.diff(found.steps) > 0)
    slack = 1e-9 * np.abs(found.mean) + 1e-9
    assert np.all(found.low <= found.mean + slack)
    assert np.all(found.mean <= found.high + slack)
    values = [value for one in kept for _, value in one]
    assert found.low.min() >= min(values) - 1e-6
    assert found.high.max() <= max(values) + 1e-6


def test_a_band_of_the_same_steps_is_their_mean() -> None:
    found = band([[(1, 1.0), (2, 3.0)], [(1, 3.0), (2, None)], [(1, 2.0)]], 10)
    assert found is not None
    assert [found.steps.tolist(), found.mean.tolist()] == [[1, 2], [2.0, 3.0]]
    assert [found.low.tolist(), found.high.tolist()] == [[1.0, 3.0], [3.0, 3.0]]


@given(st.text())
def test_json_in_a_script_is_only_json(text: str) -> None:
    made = str(templates.script_json({"text": text}))
    assert json.loads(made) == {"text": text}
    assert not set(made) & set("<>&\u2028\u2029")


def test_the_end_of_a_log(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    assert log_lines(file) == []
    file.write_bytes(b"\xff" + b"x" * 40_000 + b"\n" + b"10%\r20%\r30%\n\n\x1b[1mbold\x1b[0m\n")
    assert log_lines(file) == ["30%", "bold"]


@pytest.mark.parametrize(
    ("seconds", "told"), [(0, "0 s"), (59.6, "1 min"), (3599, "59 min 59 s"), (3601, "1 h"), (90_061, "1 d 1 h")]
)
def test_durations(seconds: float, told: str) -> None:
    assert duration(seconds) == told


def test_every_place_of_the_table_has_its_details(view: View) -> None:
    names = {place: f"c{number}" for number, place in enumerate(view.cells)}
    table = table_of(view, names)
    behind = [place.behind for body in table.bodies for place in body.places]
    assert behind == [names[row, column] for row in view.rows for column in view.columns]
