"""Files of predictions: what is written is read back, and nothing that is damaged or foreign is taken for them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from dropbench.harness.errors import InputError
from dropbench.harness.predictions import store
from dropbench.harness.predictions.recorder import rounded, shortest
from dropbench.harness.predictions.schema import Header, Predictions, Ratio, content_id, unique_ids
from dropbench.harness.predictions.store import predictions_path, read_predictions, write_predictions

HEADER = Header(
    format=1, trial="0123456789ab", task="t", data="d", fingerprint="f", split="test", rows=2,
    columns={"target": "class", "tags": "classes", "loss": "number", "n": "count", "boxes": "matrix", "text": "text"},
    classes=("no", "yes"),
    metrics={"loss": Ratio(sum="loss", over=("n",)), "perplexity": Ratio(sum="loss", over=("n",), exponential=True)},
)  # fmt: skip
ROWS: list[dict[str, Any]] = [
    {"id": "00000000000a", "index": 0, "target": 1, "tags": [0, 1], "loss": 0.5, "n": 2, "boxes": [[1, 2.5]],
     "text": "ä\n"},
    {"id": "00000000000a-2", "index": 7, "target": 0, "tags": [], "loss": None, "n": 0, "boxes": [], "text": ""},
]  # fmt: skip


def write_lines(path: Path, *lines: Any) -> Path:
    path.write_bytes(gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))
    return path


def test_predictions_are_read_as_written_and_equal_ones_give_equal_bytes(tmp_path: Path) -> None:
    path = predictions_path(tmp_path, "test")
    for _ in range(2):
        write_predictions(path, Predictions(HEADER, ROWS))
    found = read_predictions(path)
    assert (found.header, found.rows) == (HEADER, ROWS)
    assert list(found.header.metrics) == ["loss", "perplexity"]
    assert found.metrics() == {"loss": 0.25, "perplexity": pytest.approx(np.exp(0.25))}
    content = path.read_bytes()
    write_predictions(path, Predictions(HEADER, ROWS))
    assert path.read_bytes() == content
    with pytest.raises(FileNotFoundError):
        read_predictions(predictions_path(tmp_path, "dev"))


def test_a_failed_write_leaves_the_previous_file_and_nothing_else(tmp_path: Path) -> None:
    path = predictions_path(tmp_path, "test")
    write_predictions(path, Predictions(HEADER, ROWS))
    before = path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_predictions(path, Predictions(HEADER, [*ROWS, {"loss": float("nan")}]))
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["test.jsonl.gz"]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("id", "x"), ("id", "00000000000a-02"), ("id", 3), ("index", -1), ("index", True), ("target", 2),
        ("target", -1), ("target", 1.0), ("tags", [0, 2]), ("tags", 0), ("loss", "1"), ("loss", True), ("n", 1.5),
        ("n", None), ("boxes", [1]), ("boxes", [["x"]]), ("text", None), ("more", 1),
    ],
)  # fmt: skip
def test_a_row_with_another_type_is_refused_by_its_line(tmp_path: Path, column: str, value: object) -> None:
    path = write_lines(tmp_path / "a", HEADER.model_dump(), ROWS[0], {**ROWS[1], column: value})
    with pytest.raises(InputError, match=r"a:3: .*expected") as error:
        read_predictions(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda header: {**header, "format": 2}, "expected predictions in format 1"),
        (lambda header: [header], "expected predictions in format 1"),
        (lambda header: {**header, "rows": 3}, "2 rows: expected 3"),
        (lambda header: {**header, "rows": -1}, "rows=-1"),
        (lambda header: {**header, "trial": "../../x"}, "trial="),
        (lambda header: {**header, "code": "x"}, "unknown key"),
        (lambda header: {**header, "columns": {"a": "pickle"}}, "columns"),
        (lambda header: {**header, "metrics": {"m": {"sum": "text"}}}, "expected a column of numbers"),
        (lambda header: {**header, "metrics": {"m": {"sum": "loss", "scale": 1e999}}}, "damaged predictions"),
    ],
)
def test_a_foreign_header_is_refused(tmp_path: Path, change: Callable[[Any], Any], message: str) -> None:
    path = write_lines(tmp_path / "a", change(HEADER.model_dump()), *ROWS)
    with pytest.raises(InputError, match=message):
        read_predictions(path)


@pytest.mark.parametrize("content", [b"", b"no gzip", *map(gzip.compress, (b"", b"{", b"[" * 9999))])
def test_other_content_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(InputError, match="damaged predictions"):
        read_predictions(tmp_path / "a")


def test_every_truncated_file_is_refused(tmp_path: Path) -> None:
    path = predictions_path(tmp_path, "test")
    write_predictions(path, Predictions(HEADER, ROWS))
    content = path.read_bytes()
    for end in range(len(content)):
        path.write_bytes(content[:end])
        with pytest.raises(InputError, match="damaged"):
            read_predictions(path)


def test_a_file_that_expands_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 1000)
    (tmp_path / "a").write_bytes(gzip.compress(b" " * 1001))
    with pytest.raises(InputError, match="more than 1,000 bytes"):
        read_predictions(tmp_path / "a")


def test_ids_depend_on_the_content_alone() -> None:
    assert content_id("ab", "c") != content_id("a", "bc") != content_id("abc")
    assert content_id("ä") == content_id("ä".encode())
    assert unique_ids(["a", "b", "a", "a"]) == ["a", "b", "a-2", "a-3"]


@given(arrays(np.float32, (3,), elements=st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_the_shortest_numbers_give_the_same_float32(values: Any) -> None:
    assert np.array(json.loads(json.dumps(shortest(values))), np.float32).tolist() == values.tolist()


def test_numbers_that_are_not_finite_are_not_stored() -> None:
    assert rounded([1.23456, float("nan"), float("inf")], 3) == [1.235, None, None]
