"""Hostile suite files: each key with another value, none, or another name; and damaged bytes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.hostile import call, changed, paths_of, texts, values
from tests.jobs.workplace import SUITE

FULL = f"""{SUITE}
plugin_rows: false
sweep: {{ratio: [0.1, 0.2]}}
search: {{sampler: grid}}
notes: [a note]
figure: {{kind: curves, over: ratio}}
"""
FORMATS = ("table", "md", "tex", "csv", "json", "html", "png")
BYTES = (
    b"\xff", b"\0", b"\t", b"\xef\xbb\xbf", b"\xe2\x80", b"[", b"{", b"&a ", b"*a", b"!!int ", b"!!python/name:os "
)  # fmt: skip

fuzzed = settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], print_blob=False)
pytestmark = pytest.mark.slow


def report(content: bytes, kind: str) -> None:
    Path("hostile.yaml").write_bytes(content)
    call("report", "hostile.yaml", "--format", kind, *(("-o", "out.png") if kind == "png" else ()))


@fuzzed
@given(draw=st.data(), kind=st.sampled_from(FORMATS))
def test_changed_keys(campaign: Path, draw: st.DataObject, kind: str) -> None:
    content = yaml.safe_load(FULL)
    for _ in range(draw.draw(st.integers(1, 2))):
        paths = list(paths_of(content))
        path = draw.draw(st.sampled_from(paths)) if paths else None
        if path is not None:
            how = draw.draw(st.sampled_from(["replace", "replace", "remove", "rename"]))
            content = changed(content, path, how, draw.draw(values))
    report(yaml.safe_dump(content, allow_unicode=True).encode(), kind)


@fuzzed
@given(draw=st.data())
def test_damaged_bytes(campaign: Path, draw: st.DataObject) -> None:
    content = bytearray(FULL.encode())
    for _ in range(draw.draw(st.integers(1, 3))):
        start = draw.draw(st.integers(0, len(content)))
        new = draw.draw(st.sampled_from(BYTES) | texts.map(str.encode))
        content[start : start + draw.draw(st.sampled_from([0, 0, 1, 5, 1000]))] = new
    report(bytes(content), "json")


@pytest.mark.parametrize(
    "name", ["hostile.yaml", "x" * 300 + ".yaml", "folder.yaml", "pipe.yaml", "device.yaml", ".yaml"]
)
def test_what_is_no_file(campaign: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.chdir(tmp_path)
    Path("folder.yaml").mkdir()
    os.mkfifo("pipe.yaml")
    Path("device.yaml").symlink_to("/dev/zero")
    assert call("report", name).code == 2
