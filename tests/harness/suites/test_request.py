"""The identity of requests."""

from __future__ import annotations

from dropbench.harness.suites.suite import load_suite
from dropbench.jobs.queue.request import published_request


def test_a_copy_has_an_id_of_its_own() -> None:
    request = published_request(load_suite("quickstart"), "mini")
    later = request.model_copy(update={"created_at": "2026-01-01T00:00:00.000+00:00"})
    other = request.model_copy(update={"extends": request.id})
    assert (later.id == request.id, other.id == request.id) == (True, False)
