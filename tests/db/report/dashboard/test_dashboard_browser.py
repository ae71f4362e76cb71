"""The dashboard in a real browser: it follows running trials and keeps the state of the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dropbench.db.store.store import Store
from dropbench.harness.runs.run_directory import RunDirectory
from tests.db.records import attempt, done
from tests.db.report import tables

if TYPE_CHECKING:
    from tests.db.report.conftest import Reader

    Read = Callable[..., Reader]

PHONE = {"width": 390, "height": 844}


def test_a_running_trial_is_followed(read: Read, port: int, running: RunDirectory) -> None:
    running.write_attempt(1, attempt("running", number=1))
    with running.lock() as mine:
        assert mine
        running.append_event("train", step=20, steps=80, loss=1.5, lr=0.1)
        reader = read(f"http://127.0.0.1:{port}/", viewport=PHONE)
        reader.shows("[data-region=working]", "20 / 80")
        running.append_event("train", step=60, steps=80, loss=1.25, lr=0.1)
        reader.shows("[data-region=working]", "60 / 80")
        assert reader.overflow() <= 0
        reader.page.get_by_role("link", name=running.id).first.click()
        reader.shows("[data-region=trial]", "step 60 of 80")
        reader.draw_charts()
        running.append_event("train", step=80, steps=80, loss=1.0, lr=0.1)
        reader.shows("[data-region=trial]", "step 80 of 80")
        reader.draw_charts()
        assert reader.overflow() <= 0
    assert {url.split("/")[2] for url in reader.requests} == {f"127.0.0.1:{port}"}


def test_an_update_keeps_what_the_reader_has_opened_and_sorted(read: Read, port: int, store: Store) -> None:
    reader: Any = read(f"http://127.0.0.1:{port}/suite?name=mine", viewport=PHONE)
    reader.draw_charts()
    rows = reader.first_column()
    reader.page.locator(".results thead button").nth(1).click()
    link = reader.page.locator(".results tbody").nth(1).locator("td a.open").first
    link.click()
    cell = reader.page.locator(link.get_attribute("href"))
    assert cell.evaluate("(details) => details.open")
    waiting = tables.resolve(tables.suite())[5].trials[0]
    store.record([done(waiting, 99.5)])
    reader.shows("[data-region=table]", "99.50")
    assert reader.first_column() == [rows[1], rows[0], rows[2]]
    assert cell.evaluate("(details) => details.open")
    reader.draw_charts()
    assert reader.overflow() <= 0


def test_trials_are_compared_while_others_run(read: Read, port: int, store: Store) -> None:
    reader = read(f"http://127.0.0.1:{port}/suite?name=mine", viewport=PHONE)
    reader.draw_charts()
    box = reader.page.locator("[data-region=plot-compare]")
    second = reader.page.get_by_label("Second trial")
    chosen = tables.resolve(tables.suite())[4].trials[2]  # dropkey 0.5 on TREC
    second.select_option(chosen.id)
    assert box.locator("tbody tr", has_text="regularizer.params.ratio").inner_text().split()[-1] == "0.5"
    reader.page.get_by_label("Filter").fill("dropkey 0.5")
    waiting = tables.resolve(tables.suite())[5].trials[0]
    store.record([done(waiting, 99.5)])
    reader.shows("[data-region=table]", "99.50")
    reader.draw_charts()
    assert second.input_value() == chosen.id
    assert box.locator(".mark-line path[stroke='var(--c2)']").count() == 2
    assert reader.page.locator(".results tbody:visible").count() == 1
    assert box.locator(".save").count() == 3
    assert reader.overflow() <= 0
