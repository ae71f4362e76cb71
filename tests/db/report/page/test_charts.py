"""Parts of the page: bands over seeds, embedded JSON, logs and durations."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from db.report.page import templates
from db.report.page.charts import merge_seeds
from db.report.page.details import duration, log_lines

curve = st.lists(st.tuples(st.integers(0, 10_000), st.one_of(st.none(), st.floats(-1e6, 1e6))), max_size=60).map(
    lambda points: sorted(dict(points).items())
)


@given(st.lists(curve, max_size=5), st.integers(2, 50))
def test_a_band_encloses_its_curves(curves: list[list[tuple[int, float | None]]], limit: int) -> None:
    band = merge_seeds(curves, limit)
    kept = [[(step, value) for step, value in points if value is not None] for points in curves]
    kept = [points for points in kept if points]
    if not kept:
        assert band is None
        return
    assert band is not None
    assert len(band.steps) <= limit
    assert band.seeds == len(kept)
    steps = [step for points in kept for step, _ in points]
    assert (band.steps[0], band.steps[-1]) == (min(steps), max(steps))
    assert np.all(np.diff(band.steps) > 0)
    slack = 1e-9 * np.abs(band.mean) + 1e-9
    assert np.all(band.low <= band.mean + slack)
    assert np.all(band.mean <= band.high + slack)
    values = [value for points in kept for _, value in points]
    assert band.low.min() >= min(values) - 1e-6
    assert band.high.max() <= max(values) + 1e-6


def test_a_band_of_the_same_steps_is_their_mean() -> None:
    band = merge_seeds([[(1, 1.0), (2, 3.0)], [(1, 3.0), (2, None)], [(1, 2.0)]], 10)
    assert band is not None
    assert [band.steps.tolist(), band.mean.tolist()] == [[1, 2], [2.0, 3.0]]
    assert [band.low.tolist(), band.high.tolist()] == [[1.0, 3.0], [3.0, 3.0]]


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
