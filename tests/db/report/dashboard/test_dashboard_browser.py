"""The dashboard in a real browser: it follows what runs, and leaves the page as its reader has set it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from db.snapshot import Snapshot
from db.store import Store
from harness.rundir import RunDirectory
from harness.settings import Settings

if TYPE_CHECKING:
    from tests.db.report.conftest import Ran, Reader, Tables

    Read = Callable[..., Reader]

PHONE = {"width": 390, "height": 844}


def holds(region: str, text: str) -> str:
    return f"document.querySelector('[data-region={region}]').innerText.includes('{text}')"


def test_a_running_trial_is_followed(read: Read, port: int, place: Settings, tables: Tables, ran: Ran) -> None:
    trial = tables.ask(tables.suite())[3].trials[0]  # "running", says the database
    directory = RunDirectory.create(place.runs, trial)
    directory.write_attempt(1, ran.attempt("running", number=1))
    with directory.lock() as mine:
        assert mine
        directory.append_event("train", step=20, steps=80, loss=1.5, lr=0.1)
        reader = read(f"http://127.0.0.1:{port}/", viewport=PHONE)
        reader.until(holds("working", "20 / 80"))
        directory.append_event("train", step=60, steps=80, loss=1.25, lr=0.1)
        reader.until(holds("working", "60 / 80"))
        assert reader.overflow() <= 0
        reader.page.get_by_role("link", name=trial.id).first.click()
        reader.until(holds("trial", "step 60 of 80"))
        reader.see_plots()
        directory.append_event("train", step=80, steps=80, loss=1.0, lr=0.1)
        reader.until(holds("trial", "step 80 of 80"))
        reader.see_plots()
        assert reader.overflow() <= 0
    assert {one.split("/")[2] for one in reader.asked} == {f"127.0.0.1:{port}"}


def test_a_page_stays_as_its_reader_has_set_it(
    read: Read, port: int, place: Settings, store: Store, tables: Tables
) -> None:
    reader: Any = read(f"http://127.0.0.1:{port}/suite?name=mine", viewport=PHONE)
    reader.see_plots()
    rows = reader.first_column()
    reader.page.locator(".results thead button").nth(1).click()
    link = reader.page.locator(".results tbody").nth(1).locator("td a.open").first
    link.click()
    cell = reader.page.locator(link.get_attribute("href"))
    assert cell.evaluate("(one) => one.open")
    waiting = tables.ask(tables.suite())[5].trials[0]
    store.record([Snapshot(waiting, "succeeded", None, [], [], [("test/accuracy", -1, 99.5)])])
    reader.until(holds("table", "99.50"))
    assert reader.first_column() == [rows[1], rows[0], rows[2]]
    assert cell.evaluate("(one) => one.open")
    reader.see_plots()
    assert reader.overflow() <= 0
