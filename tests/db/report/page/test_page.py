"""The page of a suite as a document: valid links, escaped text, and a limited size."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lxml import html as parser

from dropbench.db.report.page import templates
from dropbench.db.report.page.document import page
from dropbench.db.report.page.limits import Limits
from dropbench.db.report.page.table import table_of
from dropbench.db.report.view.build import with_subsets
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.suites.cell import SuiteOptions
from tests.db.report import tables, written

HOSTILE = (
    "<script>alert(1)</script>\"'&</style>]]>\x1b[31m\u202eevil\u2028\nnext\\ {{7*7}} javascript:x " + "W" * 10_000
)


@pytest.fixture(autouse=True)
def _no_plotting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the charts' script, which takes seconds and is covered by the browser tests."""
    monkeypatch.setattr("dropbench.db.report.page.document.vega_bundle", lambda: "/* plots */")


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def view(store: Store, runs: Path) -> View:
    return written.filled(store, runs)


def checked(text: str) -> Any:
    """Return the parsed document after checks that apply to every page."""
    document = parser.document_fromstring(text)
    ids = document.xpath("//@id")
    assert len(ids) == len(set(ids))
    for link in document.xpath("//a/@href"):
        assert link.startswith("#")
        assert link[1:] in ids
    assert not document.xpath("//@style | //@src[not(starts-with(., 'data:image/png'))] | //link | //iframe | //form")
    assert not [name for element in document.iter() for name in element.attrib if name.startswith("on")]
    assert all(script.get("type") == "application/json" for script in document.xpath("//script")[:-2])
    policy = document.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")[0]
    for script in [*document.xpath("//script[not(@type)]"), *document.xpath("//style")]:
        assert templates.digest(script.text) in policy
    assert "unsafe" not in policy
    for chart in document.xpath("//script[@type='application/json']"):
        json.loads(chart.text)
    assert not re.search(r"https?://", re.sub(r"/\* plots \*/", "", text))
    return document


def texts(root: Any, path: str) -> list[str]:
    return [" ".join(element.text_content().split()) for element in root.xpath(path)]


def test_the_table_is_the_same_as_in_other_formats(view: View, store: Store, runs: Path) -> None:
    document = checked(page(view, store, runs))
    assert texts(document, "//table[contains(@class, 'results')]//thead//th") == ["row", "TREC ↑", "MR ↑"]
    rows = [texts(body, "./tr/*") for body in document.xpath("//table[contains(@class, 'results')]/tbody")]
    assert rows[1] == [
        "dropkey 0.3", "85.00 ± 4.36 (3) (best)", "75.00 (1/3)[2] (best)", "Δ base", "+2.00 [−0.48, +4.48]", "+5.00",
        "published (Δ)", "90.00 ± 0.50 (−5.00)", "",
    ]  # fmt: skip
    assert rows[2][:3] == ["dropkey 0.5", "81.50 ± 3.54 (2/3)[3]", "queued"]
    sorts = document.xpath("//table[contains(@class, 'results')]/tbody/tr[1]/td[1]/@data-sort")
    assert [float(value) for value in sorts] == [83.0, 85.0, 81.5]
    assert "OutOfMemoryError: no memory" in texts(document, "//ol[@class='notes']/li")[2]


def test_a_number_links_to_its_trials(view: View, store: Store, runs: Path) -> None:
    document = checked(page(view, store, runs))
    link = document.xpath("//tbody/tr[1]/td[1]/a/@href")[1]
    (cell,) = document.xpath(f"//details[@id='{link[1:]}']")
    assert texts(cell, "./summary") == ["dropkey 0.3 · TREC 85.00 ± 4.36"]
    text = " ".join(" ".join(cell.itertext()).split())
    ids = [seed.id for seed in view.cells["dropkey 0.3", "TREC"].seeds]
    assert all(id in text for id in ids)
    for part in ("+2.00 [−0.48, +4.48] over 3 pairs", "regularizer.name none dropkey", "node1", "1.5 GiB", "1 min",
                 "0.033 CPU-hours", "last line", "a note", "dev/accuracy"):  # fmt: skip
        assert part in text
    assert "\x1b" not in text


def test_one_column_has_its_numbers_in_columns(store: Store, runs: Path) -> None:
    document = checked(page(written.filled(store, runs, of=tables.suite(["TREC"])), store, runs))
    assert texts(document, "//table[contains(@class, 'results')]//thead//th") == [
        "row", "accuracy ↑", "n", "Δ base", "published", "Δ"
    ]  # fmt: skip
    assert document.xpath("//table[contains(@class, 'results')]/tbody[3]/tr/td/@data-sort") == [
        "81.50",
        "2",
        "-2.00",
        "",
        "",
    ]


def test_charts_and_their_numbers(view: View, store: Store, runs: Path) -> None:
    document = checked(page(view, store, runs))
    titles = texts(document, "//section/h2")
    assert titles == [
        "Table", "The metric over the drop ratio", "Differences from the baseline", "Learning curves",
        "Two trials side by side", "Trials",
    ]  # fmt: skip
    captions = texts(document, "//figcaption")
    assert captions == [
        "trec",
        "mr",
        "TREC: Δ accuracy ↑",
        "MR: Δ accuracy ↑",
        "TREC: dev accuracy",
        "TREC: training loss",
        "MR: dev accuracy",
        "MR: training loss",
    ]
    specs = [json.loads(script.text) for script in document.xpath("//figure/script")]
    points = specs[0]["data"]["values"]
    assert [(point.get("x"), point["y"], point.get("p")) for point in points] == [
        (None, 83.0, 88.4), (0.3, 85.0, 90.0), (0.5, 81.5, None),
    ]  # fmt: skip
    assert [point.get("s") for point in points] == [[80.0, 82.0, 87.0], [82.0, 83.0, 90.0], [79.0, 84.0]]
    forest = specs[2]["data"]["values"]
    assert [(point["y"], point.get("l"), point.get("h"), point["s"]) for point in forest] == [
        (2.0, -0.48414, 4.4841, [2.0, 1.0, 3.0]), (-2.0, None, None, [-1.0, -3.0]),
    ]  # fmt: skip
    assert ["TREC", "dropkey 0.3", "+2.00 [−0.48, +4.48]", "3", "0.0742", "0.0742"] in [
        texts(row, "./td") for row in document.xpath("//tr")
    ]
    loss = [point for point in specs[5]["data"]["values"] if point["r"] == 0]
    assert (loss[0]["x"], loss[0]["y"], loss[0]["l"], loss[0]["h"]) == (1, 2.1, 2.0, 2.2)
    assert loss[-1]["x"] == 40
    assert ["TREC", "none", "3", "90", "40", "0.15"] in [texts(row, "./td") for row in document.xpath("//tr")]


def test_equal_differences_and_subsets_are_marked(store: Store, runs: Path) -> None:
    view = written.filled(store, runs, {**tables.values, ("dropkey 0.3", "TREC"): (81.0, 83.0, 88.0)})
    directory = RunDirectory(runs / view.cells["none", "TREC"].seeds[0].id)
    directory.write_result({"metrics": {"test/accuracy": 80.0}, "notes": ["subset: train: 60 rows"]})
    document = checked(page(with_subsets(view, runs), store, runs))
    assert texts(document, "//table[contains(@class, 'results')]//thead//th")[1:] == ["TREC (subset) ↑", "MR ↑"]
    assert "+1.00 [equal differences]" in texts(document, "//table[contains(@class, 'results')]//td")
    facts = texts(document, "//dl[@class='pairs']/div")
    assert "Δ base+1.00 [equal differences] over 3 pairs" in [fact.replace("base ", "base") for fact in facts]
    assert facts.count("subset train: 60 rows") + facts.count("subsettrain: 60 rows") == 3
    captions = texts(document, "//figcaption")
    assert [caption for caption in captions if caption.startswith(("trec", "mr"))] == ["trec (subset)", "mr"]


def test_a_column_without_trials_has_no_curves(store: Store, runs: Path) -> None:
    cells = tables.resolve(tables.suite())
    cells = [replace(cell, trials=[]) if cell.cell.column == "MR" else cell for cell in cells]
    written.fill(store, runs, cells, tables.values)
    document = checked(page(tables.view(store, cells), store, runs))
    captions = ["trec", "mr", "TREC: Δ accuracy ↑", "TREC: dev accuracy", "TREC: training loss"]
    assert texts(document, "//figcaption") == captions


def test_ratios_are_read_from_the_runs(store: Store, runs: Path) -> None:
    suite = tables.suite(["TREC"])
    cells = tables.resolve(suite)
    falling = [cell.trials[0].model_copy(update={"schedule": "decreasing"}) for cell in cells]
    cells = [replace(cell, trials=[trial]) for cell, trial in zip(cells, falling, strict=True)]
    written.fill(store, runs, cells, tables.values)
    document = checked(page(tables.view(store, cells, suite), store, runs))
    (spec,) = [json.loads(script.text) for script in document.xpath("//section[@aria-labelledby='layers']//script")]
    points = [(point["x"], point["y"]) for point in spec["data"]["values"] if point["r"] == 1]
    assert points == [(1, 0.3), (2, 0.2), (3, 0.1), (4, 0.0)]


def test_analyses_side_by_side(view: View, store: Store, runs: Path) -> None:
    from PIL import Image

    generator = np.random.default_rng(0)
    for row in ("none", "dropkey 0.3"):
        folder = runs / view.cells[row, "TREC"].seeds[0].id / "analysis"
        folder.mkdir()
        entropy = {"encoder-self.1": generator.normal(1, 0.1, 90), "encoder-self.2": np.full((90, 4), 2.0)}
        sparsity = {"a.counts": np.eye(3)[:2], "a.edges": np.arange(4.0), "a.heads": np.ones(2)}
        keep_rate = {"sites": np.array(["a", "b"]), "kept": np.array([0.9, 0.8]), "nominal": np.array([0.95, np.nan])}
        occlusion = {"losses": np.array([0.0, 0.5]), "accuracy": np.array([[90.0, 90.0], [80.0, 84.0]])}
        kinds = {"entropy": entropy, "sparsity": sparsity, "keep-rate": keep_rate, "occlusion": occlusion}
        for kind, arrays in kinds.items():
            np.savez(folder / f"{kind}.npz", allow_pickle=False, **arrays)
        Image.new("RGB", (1200, 600), "red").save(folder / "predictions.png")
    damaged = runs / view.cells["dropkey 0.5", "TREC"].seeds[0].id / "analysis"
    damaged.mkdir()
    (damaged / "entropy.npz").write_bytes(b"none")
    (damaged / "predictions.png").write_bytes(b"none")
    document = checked(page(view, store, runs))
    (spec,) = [json.loads(script.text) for script in document.xpath("//section[@aria-labelledby='entropy']//script")]
    for number in (0, 1):
        assert sum(point["y"] for point in spec["data"]["values"] if point["r"] == number) == pytest.approx(
            1, abs=0.001
        )
    assert ["TREC", "none", "1", "encoder-self.2", "2"] in [texts(row, "./td") for row in document.xpath("//tr")]
    rows = [texts(row, "./td") for row in document.xpath("//tr")]
    assert ["TREC", "none", "1", "a", "0.9", "0.95"] in rows
    assert ["TREC", "none", "1", "b", "0.8", ""] in rows
    assert ["TREC", "dropkey 0.3", "1", "0.5", "82"] in rows
    assert len(document.xpath("//img[starts-with(@src, 'data:image/png;base64,')]")) == 2
    assert (
        "1 more are in the run directories"
        in document.xpath("//section[@aria-labelledby='predictions']")[0].text_content()
    )


@pytest.mark.parametrize("state", ["", "queued", "running", "boom"])
def test_without_any_number(state: str, store: Store, runs: Path) -> None:
    view = written.filled(store, runs, dict.fromkeys(tables.values, (state,) * 3))
    document = checked(page(view, store, runs))
    shown = {"": "not run", "boom": "failed"}.get(state, state)
    assert shown in texts(document, "//tbody/tr[1]/td[1]")[0]


def test_untrusted_text_is_escaped(store: Store, runs: Path) -> None:
    values = {
        (HOSTILE if row == "dropkey 0.3" else row, column): seeds for (row, column), seeds in tables.values.items()
    }
    values["none", "MR"] = (HOSTILE, HOSTILE, HOSTILE)
    view = written.filled(store, runs, values, tables.suite(title=HOSTILE, label=HOSTILE), HOSTILE)
    text = page(view, store, runs)
    document = checked(text)
    assert len(document.xpath("//script[not(@type)]")) == 2
    assert "<script>alert" not in text
    assert "7*7" in text
    assert not set("\x1b\u202e\u2028") & set(text)
    assert "W" * 2001 not in text
    assert len(text) < 600_000
    assert "javascript" not in "".join(document.xpath("//@href"))


def test_the_page_of_a_large_suite_is_limited(store: Store, runs: Path, monkeypatch: Any) -> None:
    for name, limit in (("full_trials", 4), ("listed_trials", 12), ("table_cells", 4), ("trials", 2)):
        monkeypatch.setattr(Limits, name, limit)
    cells = tables.resolve(tables.suite(), SuiteOptions(seeds=tuple(range(6))))
    written.fill(store, runs, cells, {position: [80.0] * 6 for position in tables.values})
    document = checked(page(tables.view(store, cells), store, runs))
    text = " ".join(document.text_content().split())
    assert "The first 2 of 3 rows; dropbench report mine --format csv has all." in text
    assert "24 trials, by row and column of the table. 4 of them are shown in full" in text
    assert "And 3 more trials of this cell" in text
    assert "Drawn from 2 of 24 trials" in text
    assert len(document.xpath("//details[@class='cell']")) == 4
    assert len(document.xpath("//details[@class='trial']")) == 4


def test_every_cell_of_the_table_links_to_its_details(view: View) -> None:
    anchors = {position: f"c{number}" for number, position in enumerate(view.cells)}
    table = table_of(view, anchors)
    links = [cell.details for row in table.rows for cell in row.cells]
    assert links == [anchors[row, column] for row in view.rows for column in view.columns]
