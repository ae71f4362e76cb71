"""The page of a suite in a real browser: no errors, no network, sorting, links and charts."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from lxml import etree

from dropbench.db.report.formats.documents import as_csv, as_latex
from dropbench.db.report.page.document import page
from dropbench.db.report.view.view import View
from dropbench.db.store.store import Store
from tests.db.report import tables, written

if TYPE_CHECKING:
    from tests.db.report.conftest import Reader

    Read = Callable[..., Reader]

PHONE, DESK = {"width": 390, "height": 844}, {"width": 1280, "height": 900}


@pytest.fixture(params=["plain", "hostile"])
def file(request: pytest.FixtureRequest, tmp_path: Path, store: Store) -> Path:
    """Write a page; the hostile one has a long label with markup and control characters."""
    label = (
        "<img src=x onerror=alert(1)>" + "\u202e\x1b[2J" + "W" * 10_000 if request.param == "hostile" else "dropkey 0.3"
    )
    values = {(label if row == "dropkey 0.3" else row, column): seeds for (row, column), seeds in tables.values.items()}
    text = label if request.param == "hostile" else ""
    view = written.filled(store, tmp_path / "runs", values, tables.suite(label=label), text)
    file = tmp_path / "page.html"
    file.write_text(page(view, store, tmp_path / "runs"), encoding="utf-8")
    return file


def test_a_page_works_offline(read: Read, file: Path) -> None:
    for options in ({"viewport": PHONE, "color_scheme": "dark"}, {"viewport": DESK, "color_scheme": "light"}):
        reader = read(file.as_uri(), offline=True, **options)
        reader.draw_charts()
        assert reader.overflow() <= 0
        shown = reader.page
        background = shown.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(20, 23, 27)") == (options["color_scheme"] == "dark")

        rows = reader.first_column()
        head = shown.locator(".results thead th").nth(1)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "descending"
        assert reader.first_column() == [rows[1], rows[0], rows[2]]
        head.locator("button").press("Enter")
        assert head.get_attribute("aria-sort") == "ascending"
        assert reader.first_column() == [rows[2], rows[0], rows[1]]
        head.locator("button").press("Space")
        assert reader.first_column() == rows

        link = shown.locator(".results tbody").nth(1).locator("td a.open").first
        link.press("Enter")
        cell = shown.locator(link.get_attribute("href"))
        cell.locator("details.trial summary").first.click()
        assert cell.locator("pre").first.inner_text().rstrip().endswith("last line")
        assert shown.evaluate("document.activeElement.tagName") == "SUMMARY"
        shown.evaluate("document.querySelectorAll('details').forEach((details) => (details.open = true))")
        assert reader.overflow() <= 0

        lines = shown.locator("figure.chart").first.locator(".mark-symbol path")
        before = lines.count()
        shown.locator(".legend button").nth(1).click()
        paths = "document.querySelector('figure.chart').querySelectorAll('.mark-symbol path')"
        reader.until(f"{paths}.length < {before}")
        assert reader.requests == [file.as_uri()]


def test_charts_take_the_colors_of_the_scheme(read: Read, file: Path) -> None:
    reader = read(file.as_uri(), viewport=DESK, color_scheme="light")
    reader.draw_charts()
    first = "getComputedStyle(document.querySelector('figure.chart svg .mark-symbol path')).fill"
    light = reader.page.evaluate(first)
    reader.page.emulate_media(color_scheme="dark")
    reader.until(f"{first} !== '{light}'")


@pytest.fixture
def view(tmp_path: Path, store: Store) -> View:
    """Train the suite with analyses of two cells; both keep more than 90 % of the attention."""
    view = written.filled(store, tmp_path / "runs")
    for number, row in enumerate(("none", "dropkey 0.3")):
        for seed in view.cells[row, "TREC"].seeds:
            folder = tmp_path / "runs" / seed.id / "analysis"
            folder.mkdir()
            rates = np.array([0.95 - 0.01 * number, 0.92])
            np.savez(folder / "keep-rate.npz", sites=np.array(["a", "b"]), kept=rates, nominal=np.array([0.94, np.nan]))
            scores = np.array([[97.0] * 5, [93.0 + seed.seed] * 5])
            np.savez(folder / "occlusion.npz", losses=np.array([0.0, 0.5]), accuracy=scores)
            weights = np.full((2, 2), 0.25) if number else np.array([[0.7, 0.1], [0.1, 0.1]])
            image = np.arange(64, dtype=np.uint8).reshape(8, 8, 1)
            np.savez(folder / "attention-map.npz", allow_pickle=False, **{"map.0": weights, "shown.0": image})
    return view


@pytest.fixture
def analyzed(tmp_path: Path, store: Store, view: View) -> str:
    """Write the page and return its address."""
    file = tmp_path / "page.html"
    file.write_text(page(view, store, tmp_path / "runs"), encoding="utf-8")
    return file.as_uri()


def saved(reader: Reader, part: Any, kind: str) -> str:
    """Return the file that a button of a part of the page saves."""
    with reader.page.expect_download() as download:
        part.locator(".save button", has_text=kind).first.click()
    reader.page.wait_for_timeout(150)  # Chromium saves at most ten files per second
    assert download.value.suggested_filename.endswith(f".{kind.lower()}")
    return Path(download.value.path()).read_text(encoding="utf-8")


def test_every_plot_and_table_can_be_saved(read: Read, analyzed: str, view: View) -> None:
    reader = read(analyzed, viewport=DESK, offline=True, color_scheme="dark")
    reader.draw_charts()
    assert not reader.page.locator("figure:not(:has(.save))").count()
    assert reader.page.evaluate(
        "[...document.querySelectorAll('table')].every((table) =>"
        " table.parentElement.previousElementSibling.matches('.save'))"
    )
    table = reader.page.locator("section[aria-labelledby=table]")
    assert saved(reader, table, "CSV") == as_csv(view)
    assert saved(reader, table, "TeX") == as_latex(view)
    for figure in reader.page.locator("figure.chart").all():
        drawing = etree.fromstring(saved(reader, figure, "SVG").encode())
        assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
        assert drawing.xpath("//*[local-name() = 'path' or local-name() = 'image']")
        assert "var(" not in etree.tostring(drawing, encoding="unicode")
    delta = reader.page.locator("section[aria-labelledby=delta]")
    lines = list(csv.reader(saved(reader, delta.locator("figure").first, "CSV").splitlines()))
    assert lines[:2] == [["row", "value", "low", "high", "seeds"], ["dropkey 0.3", "2", "-0.48414", "4.4841", "2 1 3"]]
    delta.locator("summary").click()
    assert r"TREC & dropkey 0.3 & +2.00 [$-$0.48, +4.48] & 3 & 0.0742 & 0.0742 \\" in saved(
        reader, delta.locator("details"), "TeX"
    )


def test_a_filter_leaves_matching_rows_cells_and_trials(read: Read, analyzed: str) -> None:
    reader = read(analyzed, viewport=PHONE)
    box, shown = reader.page.get_by_label("Filter"), reader.page.locator(".cell:visible > summary .label")
    box.fill("Dropkey 0.5")
    assert reader.page.locator(".results tbody:visible th").all_inner_texts()[0] == "dropkey 0.5"
    assert reader.page.locator(".results tbody:visible").count() == 1
    assert shown.all_inner_texts() == ["dropkey 0.5 · TREC", "dropkey 0.5 · MR"]
    box.fill("outofmemory")  # the reason of a trial
    assert shown.all_inner_texts() == ["dropkey 0.5 · TREC"]
    reader.page.locator(".cell:visible > summary").click()
    assert reader.page.locator(".trials > li:visible").count() == 1
    assert reader.page.locator(".find output").inner_text() == "1 of 18 trials"
    box.fill("")
    assert (shown.count(), reader.page.locator(".results tbody:visible").count()) == (6, 3)
    assert reader.page.locator(".find output").inner_text() == ""


def compared(reader: Reader) -> dict[str, list[str]]:
    """Return the table of two trials side by side."""
    rows = reader.page.locator(".compare tbody tr").all()
    return {row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in rows}


def test_two_trials_side_by_side(read: Read, analyzed: str, view: View) -> None:
    reader = read(analyzed, viewport=PHONE)
    reader.draw_charts()
    table = compared(reader)
    assert table["row"] == ["none", "dropkey 0.3"]
    assert table["regularizer.name"] == ["none", "dropkey"]
    assert table["result"] == ["80.00 (accuracy)", "82.00 (accuracy)"]
    assert "seed" not in table
    other = view.cells["dropkey 0.5", "TREC"].seeds[2].id
    reader.page.get_by_label("Second trial").select_option(other)
    reader.draw_charts()
    table = compared(reader)
    assert (table["seed"], table["trial"][1], table["result"][1]) == (["0", "2"], other, "84.00 (accuracy)")
    for figure in reader.page.locator(".compare figure").all():
        strokes = figure.locator(".mark-line path").evaluate_all(
            "(lines) => lines.map((line) => line.getAttribute('stroke'))"
        )
        assert strokes == ["var(--c1)", "var(--c2)"]
    assert reader.overflow() <= 0


def test_charts_are_there_when_the_page_has_loaded(read: Read, analyzed: str) -> None:
    # With a stopped clock: a slow machine draws the last charts later. The page is open as soon as it has loaded.
    reader = read(analyzed, viewport=PHONE, script="performance.now = () => 0")
    charts = reader.page.locator("figure.chart")
    assert charts.count() == charts.locator("svg").count() == 12
    assert reader.page.evaluate("scrollY") == 0
    reader.page.emulate_media(media="print")
    assert reader.page.locator("figure.chart svg:visible").count() == 12
    assert reader.page.locator(".save:visible, .find:visible").count() == 0


def test_single_seeds_intervals_and_the_line_of_no_difference(read: Read, analyzed: str) -> None:
    reader = read(analyzed, viewport=DESK)
    reader.draw_charts()
    metric = reader.page.locator("section[aria-labelledby=over] figure").first
    seeds = metric.locator(".mark-symbol path[opacity='0.6'], .mark-symbol path[fill-opacity='0.6']")
    assert seeds.count() == 5  # of the points at 0.3 and 0.5; one seed failed
    forest = reader.page.locator("section[aria-labelledby=delta] figure").first
    rules = forest.locator(".mark-rule.role-mark line")
    boxes = [rule.bounding_box() for rule in rules.all()]
    assert [box["width"] > box["height"] for box in boxes] == [False, True]
    zero, interval = boxes
    assert interval["x"] < zero["x"] < interval["x"] + interval["width"]


def test_axes_start_where_the_data_are(read: Read, analyzed: str) -> None:
    reader = read(analyzed, viewport=DESK)
    reader.draw_charts()
    for section, low in (("keep-rate", 0.85), ("occlusion", 85.0), ("over", 60.0), ("curves", 45.0)):
        figure = reader.page.locator(f"section[aria-labelledby={section}] figure").first
        ticks = figure.locator(".role-axis-label").last.locator("text").all_text_contents()
        assert min(map(float, ticks)) >= low, section


def test_the_nearest_point_of_a_line_shows_its_values(read: Read, analyzed: str) -> None:
    reader = read(analyzed, viewport=DESK)
    reader.draw_charts()
    plot = reader.page.locator("section[aria-labelledby=curves] figure .plot").first
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    tooltip, row = reader.page.locator("#vg-tooltip-element.visible"), r"row\t(none|dropkey 0\.[35])\nstep\t[1-4]0\n"
    for share in (0.3, 0.55, 0.85):  # between the points, away from the lines
        reader.page.mouse.move(box["x"] + share * box["width"], box["y"] + 0.3 * box["height"])
        tooltip.wait_for()
        assert re.match(row + r"dev accuracy\t\d+\n", tooltip.inner_text())
    forest = reader.page.locator("section[aria-labelledby=delta] figure .plot").first
    forest.hover(position={"x": 300, "y": 20})
    reader.shows("#vg-tooltip-element", "+2.00 [−0.48, +4.48]")


def test_the_page_can_be_read_without_scripts(read: Read, analyzed: str) -> None:
    reader = read(analyzed, viewport=PHONE, java_script_enabled=False)
    shown = reader.page
    assert shown.locator(".results tbody:visible").count() == 3
    assert shown.locator("figure.chart:visible, .find:visible, .compare:visible, .save").count() == 0
    assert shown.locator("figure.picture img:visible").count() == 1
    shown.locator("section[aria-labelledby=curves] summary").click()
    assert shown.locator("section[aria-labelledby=curves] tbody tr:visible").count() > 1
