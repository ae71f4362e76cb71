"""Parts of the page: embedded JSON, logs and durations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropbench.db.report.page import templates
from dropbench.db.report.page.details import duration, log_lines


@given(st.text())
def test_json_cannot_end_a_script(text: str) -> None:
    script = str(templates.script_json({"text": text}))
    assert json.loads(script) == {"text": text}
    assert not set(script) & set("<>&\u2028\u2029")


def test_the_last_lines_of_a_log(tmp_path: Path) -> None:
    file = tmp_path / "log.txt"
    assert log_lines(file) == []
    file.write_bytes(b"\xff" + b"x" * 40_000 + b"\n" + b"10%\r20%\r30%\n\n\x1b[1mbold\x1b[0m\n")
    assert log_lines(file) == ["30%", "bold"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59.6, "1 min"), (3599, "59 min 59 s"), (3601, "1 h"), (90_061, "1 d 1 h")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
