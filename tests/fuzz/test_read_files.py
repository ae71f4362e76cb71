"""Hostile files: JSON of data sets, profiles, and run directories of one trial beside whole ones."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.hostile import call, changed, paths_of, texts, values

DEEP = b"[" * 100_000
CONTENTS = (b"", b"\n", b"{", b"{}", b"[]", b"[[]]", b"null", b"3", b'"x"', b"9" * 5000, b"\xff\xfe", b"\0" * 100, DEEP)
PROFILE: dict[str, Any] = {
    "partition": "a", "account": "b", "qos": "c", "constraint": "d", "nodes": 1, "tasks": 1, "gpus": 0, "cpus": 1,
    "memory": 4, "time": 60, "signal_delay": 90, "setup": ["true"], "environment": {"A": "b"}, "trials": "tiny",
}  # fmt: skip
COCO = ("annotations/instances_train2017.json", "annotations/instances_val2017.json")

fuzzed = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], print_blob=False)
pytestmark = pytest.mark.slow


def spoil(path: Path, how: str) -> None:
    """Replace a file by something else that is no regular file."""
    path.unlink()
    match how:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case "loop":
            path.symlink_to(path)


@pytest.fixture(scope="module")
def coco(campaign: Path) -> Path:
    """Return a folder with the generated COCO files, of few images."""
    from dropbench.tasks.data import locate

    source = locate("coco-synthetic")
    shutil.copytree(source.folder, "coco")
    for name in COCO:
        content = json.loads((Path("coco") / name).read_bytes())
        content["images"] = content["images"][:12]
        ids = {image["id"] for image in content["images"]}
        content["annotations"] = [entry for entry in content["annotations"] if entry["image_id"] in ids][:12]
        (Path("coco") / name).write_text(json.dumps(content))
    return Path("coco").absolute()


@fuzzed
@given(draw=st.data(), name=st.sampled_from(COCO), content=st.sampled_from([None, None, None, *CONTENTS]))
def test_annotations(coco: Path, draw: st.DataObject, name: str, content: bytes | None) -> None:
    file = coco / name
    whole = file.read_bytes()
    if content is None:
        value = json.loads(whole)
        path = draw.draw(st.sampled_from(list(paths_of(value))))
        content = json.dumps(
            changed(value, path, draw.draw(st.sampled_from(["replace", "remove"])), draw.draw(values))
        ).encode()
    try:
        file.write_bytes(content)
        call("data", "check", f"coco={coco}", "--quick")
    finally:
        file.write_bytes(whole)


def toml(value: Any) -> str:
    """Return a value as TOML; what TOML does not have becomes text."""
    if isinstance(value, list):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(str(key))} = {toml(item)}' for key, item in value.items())}}}"
    return json.dumps(value) if isinstance(value, bool | str) else str(value) if value is not None else '"None"'


@fuzzed
@given(draw=st.data())
def test_profiles(campaign: Path, draw: st.DataObject) -> None:
    path = draw.draw(st.sampled_from(list(paths_of(PROFILE))))
    profile = changed(PROFILE, path, draw.draw(st.sampled_from(["replace", "rename"])), draw.draw(values))
    content = "[profiles.a]\n" + "".join(f"{json.dumps(str(key))} = {toml(value)}\n" for key, value in profile.items())
    Path("dropbench.toml").write_bytes(content.encode("utf-8", "surrogatepass"))
    call("submit", "--executor", "slurm", "--profile", "a", "--dry-run")
    Path("dropbench.toml").unlink()


@settings(fuzzed, max_examples=50)
@given(
    draw=st.data(),
    content=st.sampled_from(CONTENTS) | texts.map(str.encode),
    how=st.sampled_from(["content"] * 6 + ["folder", "pipe", "device", "loop"]),
    command=st.sampled_from([["status"], ["results"], ["report", "tiny.yaml", "--format", "json"], ["db", "rebuild"]]),
)
def test_run_directories(campaign: Path, draw: st.DataObject, content: bytes, how: str, command: list[str]) -> None:
    shutil.rmtree("copy", ignore_errors=True)
    shutil.copytree("runs", "copy/runs")
    shutil.copy("dropbench.db", "copy/dropbench.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DROPBENCH_RUNS", "copy/runs")
        patch.setenv("DROPBENCH_DB", "sqlite:///copy/dropbench.db")
        victim, *others = sorted(folder for folder in Path("copy/runs").iterdir() if (folder / "result.json").exists())
        names = [file.relative_to(victim) for file in sorted(victim.rglob("*")) if file.is_file()]
        names += [Path("events.jsonl"), Path("attempts/1.json"), Path("lease/1"), Path("environment.json")]
        file = victim / draw.draw(st.sampled_from(names))
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)
        if how != "content":
            spoil(file, how)
        call(*command)
        rows = json.loads(call("results", "--format", "json", *(folder.name for folder in others)).out)
        assert [row["mean"] for row in rows if row["metric"] == "accuracy"] != []


def test_database_files(campaign: Path) -> None:
    whole = Path("dropbench.db").read_bytes()
    for content in (*CONTENTS, whole[:1000], whole[: len(whole) // 2], whole[:100] + b"\xff" * 4000 + whole[4100:]):
        Path("hostile.db").write_bytes(content)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("DROPBENCH_DB", "sqlite:///hostile.db")
            for command in (["status"], ["results"], ["report", "tiny.yaml"], ["db", "upgrade"], ["db", "rebuild"]):
                call(*command)
        call("db", "import", "hostile.db")
