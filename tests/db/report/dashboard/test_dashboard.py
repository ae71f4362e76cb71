"""Responses of the dashboard: pages, changed regions, and rejected requests."""

from __future__ import annotations

import hashlib
import http.client
import json
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from lxml import html as parser

from dropbench.db.report.view.requests import tables_of
from dropbench.db.store.store import Store
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.suites.cell import SuiteOptions
from dropbench.harness.trials.trial import DataRef
from tests.damage import age, damage
from tests.db.records import attempt, done, dump, make_trial
from tests.db.report import tables, written
from tests.patience import PATIENCE
from tests.requests import named

if TYPE_CHECKING:
    from tests.db.conftest import Call


class Answer:
    """A response with its text."""

    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status, self.headers = response.status, response.headers
        self.text = response.read().decode()

    def document(self) -> Any:
        return parser.document_fromstring(self.text)


Ask = Callable[..., Answer]


@pytest.fixture
def ask(port: int) -> Ask:
    """Return a function that sends a request (path, method, **headers) to the dashboard."""

    def request(path: str, method: str = "GET", **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host="host" in headers)
            for name, value in headers.items():
                connection.putheader(name, value)
            connection.endheaders()
            return Answer(connection.getresponse())
        finally:
            connection.close()

    return request


def test_pages_lead_to_each_other(ask: Ask, settings: Settings) -> None:
    first = ask("/").document()
    assert "mine" in first.xpath("//section[@data-region='suites']//a/text()")
    suite = ask(first.xpath("//section[@data-region='suites']//a/@href")[0])
    document = suite.document()
    assert "85.00 ± 4.36 (3)" in " ".join(document.text_content().split())
    assert document.xpath("//section[@data-region='plot-over']//figure")
    assert document.xpath("//section[@data-region='plot-entropy']/@hidden")
    links = document.xpath("//section[@data-region='cells']//a/@href")
    link = next(link for link in links if link.startswith("/trial/"))
    trial = ask(link)
    assert trial.status == 200
    text = " ".join(trial.document().text_content().split())
    assert "last line" in text
    assert "regularizer.name" in text
    for answer in (suite, trial):
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert not answer.document().xpath("//script[not(@src) and not(@type='application/json')] | //@style | //style")


def test_only_changed_regions_are_sent_again(ask: Ask, settings: Settings, store: Store) -> None:
    digests = {
        region.get("data-region"): region.get("data-digest")
        for region in ask("/suite?name=mine").document().xpath("//section")
    }
    have = ",".join(f"{name}:{digest}" for name, digest in digests.items())
    assert json.loads(ask(f"/suite?name=mine&have={quote(have)}").text) == {}
    waiting = tables.resolve(tables.suite())[5].trials[0]
    store.record([done(waiting, 99.5)])
    changed = json.loads(ask(f"/suite?name=mine&have={quote(have)}").text)
    assert {"table", "plot-over", "cells", "progress"} <= changed.keys()
    assert "99.50" in changed["table"]["html"]
    assert "plot-entropy" not in changed


def test_a_running_trial_is_followed(ask: Ask, running: RunDirectory) -> None:
    running.write_attempt(1, attempt("running", number=1))
    running.append_event("resume", step=0)
    with running.lock() as mine:
        assert mine
        for step in (10, 20):
            running.append_event("train", step=step, steps=80, loss=1.5, lr=0.1)
            time.sleep(0.01)
        text = " ".join(ask("/").document().xpath("//section[@data-region='working']")[0].text_content().split())
        assert running.id in text
        assert "20 / 80" in text
        assert "steps/s" in text
        running.append_event("train", step=40, steps=80, loss=1.25, lr=0.1)
        regions = json.loads(ask(f"/trial/{running.id}?have=").text)
        assert "step 40 of 80" in regions["trial"]["html"]
        assert "1.25" in regions["trial"]["html"]
    regions = json.loads(ask(f"/trial/{running.id}?have=").text)
    assert "its worker was killed" in regions["trial"]["html"]
    attempts = parser.fromstring(regions["run"]["html"]).xpath("//h5[contains(., 'Attempts')]/following::tbody[1]/tr")
    assert [row.text_content()[:5] for row in attempts] == ["1lost"]


@pytest.mark.parametrize("kind", ["foreign", "folder", "loop"])
def test_damaged_run_directories_leave_all_pages(ask: Ask, running: RunDirectory, kind: str) -> None:
    contents = ("environment", "result", "trial", "attempts/1")
    for name in ("lease/1", "events.jsonl", "log.txt", *(f"{content}.json" for content in contents)):
        damage(running.path / name, kind)
        age(running.path)
        assert [ask(path).status for path in ("/", "/suite?name=mine", f"/trial/{running.id}")] == [200] * 3, name
    assert str(running.path) in ask(f"/trial/{running.id}").document().text_content()


def test_only_names_of_this_machine_are_accepted(ask: Ask) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "0.0.0.0", ""):
        for path in ("/", "/static/page.js", "/suite?name=mine&have="):
            answer = ask(path, host=host)
            assert (answer.status, "mine" in answer.text) == (400, False), host
    for host in ("127.0.0.1", "localhost", "localhost:9000", "LOCALHOST"):
        assert ask("/static/page.css", host=host).status == 200, host


def test_other_methods_are_rejected(ask: Ask) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
        for path in ("/", "/trial/000000000000", "/nowhere"):
            answer = ask(path, method)
            assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD"), method
    assert ask("/", "HEAD").text == ""


def test_other_paths_are_not_found(ask: Ask) -> None:
    for path in (
        "/static/..%2Fapp.py", "/static/../app.py", "/static/%2e%2e%2f%2e%2e%2fmine.yaml", "/static/page.html.j2",
        "/trial/..%2F..%2Fmine.yaml", "/trial/%00", "/trial/3", "/suite?name=..%2F..%2Fmine", "/suite",
        "/suite?name=nobody", "/suite?name=mine&request=x", "/mine.yaml", "//etc/passwd",
    ):  # fmt: skip
        answer = ask(path)
        assert (answer.status, answer.headers["x-content-type-options"]) == (404, "nosniff"), path
        assert "accuracy" not in answer.text


def test_requests_change_no_file(ask: Ask, settings: Settings, store: Store) -> None:
    def files() -> dict[str, str]:
        paths = sorted(path for path in settings.runs.rglob("*") if path.is_file())
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}

    before = dump(store), files()
    for path in ("/", "/suite?name=mine", "/suite?name=mine&have="):
        assert ask(path).status == 200
    assert (dump(store), files()) == before


def test_untrusted_text_is_escaped(ask: Ask, store: Store) -> None:
    bad = "<script>alert(1)</script>\x1b[31m\u202e\"'& " + "W" * 5000
    trial = make_trial(7, model=bad, data="trec")
    store.enqueue([trial], [named("<img src=x onerror=alert(1)>/../" + "s" * 150, trial)])
    store.set_states({trial.id: ("failed", bad)})
    first = ask("/")
    links = first.document().xpath("//section[@data-region='suites']//a/@href")
    link = next(link for link in links if "img" in link)
    for answer in (first, ask(link), ask(f"/trial/{trial.id}")):
        assert answer.status == 200
        assert "<script>alert" not in answer.text
        assert "<img" not in answer.text
        assert not {"\x1b", "\u202e"} & set(answer.text)
        assert "W" * 2001 not in answer.text


def test_a_suite_run_with_different_overrides_or_data_has_a_table_of_each(
    ask: Ask, store: Store, settings: Settings
) -> None:
    suite = tables.suite()
    options = SuiteOptions(overrides={"steps": 60}, seeds=(0,), regularizers=("dropout:ratio=0.1",))
    short = tables.resolve(suite, options)
    data = DataRef(name="mr", fingerprint="b" * 16)
    other = [replace(cell, trials=[trial.model_copy(update={"data": data}) for trial in cell.trials])
             for cell in tables.resolve(suite) if cell.cell.column == "MR"]  # fmt: skip
    for cells, own in ((short, options), (other, None)):
        written.fill(store, settings.runs, cells, {(cell.cell.row, cell.cell.column): (50.0,) * 9 for cell in cells})
        store.add_requests([tables.request(suite, cells, own)])
    found = tables_of(store, "mine")
    assert [(table.label, len([*table.cells()])) for table in found] == [
        ("preset mini", 3), ("preset mini, steps=60", 8), ("preset mini", 6),
    ]  # fmt: skip
    links = ask("/suite?name=mine").document().xpath("//nav[@aria-label='Variants']//a/@href")
    assert links == [f"/suite?name=mine&request={table.newest.id}" for table in found[1:]]
    assert "dropout:ratio=0.1" in ask(links[0]).text
    assert "dropout:ratio=0.1" not in ask("/suite?name=mine").text


@pytest.mark.parametrize(
    "statement",
    ["UPDATE trials SET seed = -1", "UPDATE configs SET config = '{}'", "UPDATE metrics SET value = 'high'"],
)
def test_damaged_values_are_reported_in_one_line(ask: Ask, store: Store, statement: str) -> None:
    (trial, *_) = tables.resolve(tables.suite())[0].trials
    with store.engine.begin() as connection:
        connection.exec_driver_sql(statement)
    answers = [ask(path) for path in ("/", "/suite?name=mine", f"/trial/{trial.id}")]
    assert {answer.status for answer in answers} <= {200, 503}
    messages = [answer.document().text_content() for answer in answers if answer.status == 503]
    assert messages
    assert all("damaged value of" in message for message in messages)


def test_a_missing_database_is_reported_in_one_line(call: Call, folder: Path) -> None:
    done = call("dashboard")
    assert done.code == 2
    assert done.err == "dropbench: dropbench.db: no database yet: `dropbench run SUITE` creates it\n"
    assert not (folder / "dropbench.db").exists()


def test_a_taken_port_is_reported_in_one_line(call: Call, settings: Settings, monkeypatch: Any) -> None:
    monkeypatch.setenv("DROPBENCH_DB", settings.database)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        done = call("dashboard", "--port", str(number))
    assert done.code == 2
    assert done.err.startswith(f"dropbench: --port {number}: ")


@pytest.mark.parametrize(
    "path",
    ["/trial/%00", "/trial/abc%00def", "/suite?name=%00", "/suite?name=mine&request=%00", "/trial/%ff"],
)
def test_an_address_with_a_nul_or_no_text_does_not_exist(ask: Ask, path: str) -> None:
    assert ask(path).status == 404
