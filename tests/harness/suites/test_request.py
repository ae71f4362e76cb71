"""The identity of requests, and what they may name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.errors import InputError
from dropbench.harness.suites.request import read_request, request_files, write_request
from dropbench.harness.suites.suite import load_suite
from dropbench.jobs.queue.request import published_request
from tests.db.records import make_trial
from tests.requests import named


def test_a_copy_has_an_id_of_its_own() -> None:
    request = published_request(load_suite("quickstart"), "mini")
    later = request.model_copy(update={"created_at": "2026-01-01T00:00:00.000+00:00"})
    other = request.model_copy(update={"extends": request.id})
    assert (later.id == request.id, other.id == request.id) == (True, False)


def test_how_metrics_are_shown_is_no_part_of_the_id() -> None:
    request = published_request(load_suite("quickstart"), "mini")
    metrics = {task: tuple(replace(each, decimals=5) for each in own) for task, own in request.metrics.items()}
    cells = [cell.model_copy(update={"measured": replace(cell.measured, decimals=5)}) for cell in request.cells]
    shown = request.model_copy(update={"metrics": metrics, "cells": tuple(cells)})
    assert shown.id == request.id
    assert '"decimals":5' in shown.to_json()
    cells[0] = cells[0].model_copy(update={"measured": replace(cells[0].measured, unit="mm")})
    assert request.model_copy(update={"cells": tuple(cells)}).id != request.id


@pytest.mark.parametrize(
    ("keys", "value"),
    [
        (("extends",), "../requests"),
        (("cells", 0, "candidates", 0, "config"), "/etc"),
        (("cells", 0, "candidates", 0, "trials"), ["../../secret"]),
        (("cells", 0, "candidates", 0, "trials"), ["0123456789ab\n"]),
    ],
)
def test_a_foreign_request_names_no_path(tmp_path: Path, keys: tuple[Any, ...], value: Any) -> None:
    write_request(tmp_path, named("mine", make_trial()))
    (file,) = request_files(tmp_path)
    content = json.loads(file.read_bytes())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    file.write_text(json.dumps(content))
    with pytest.raises(InputError, match=str(keys[-1])) as error:
        read_request(file)
    assert "holds request" not in str(error.value)
