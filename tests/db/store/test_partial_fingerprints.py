"""Trials of version 0.1 whose fingerprint covers parts of the data: kept, marked, and used only on request."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from db.queries.results import results
from db.store.run_record import RunRecord
from db.store.store import Store
from harness.errors import InputError
from harness.runs.run_directory import RunDirectory
from harness.settings import Settings
from harness.trials.task import TASKS
from harness.trials.trial import Trial, TrialRequest
from tasks.trial_factory import resolve_data
from tests.db.conftest import Call

REQUEST = TrialRequest(task="text-classification", data="mr", model="text-transformer")
MARK = "(partial fingerprint)"


@pytest.fixture
def data(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set of more than 128 KiB."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    for name in ("DROPBENCH_ACCEPT_PARTIAL", "DROPBENCH_TRUST_CACHE"):
        monkeypatch.setenv(name, "")  # the command line sets them
    (folder / "mr").mkdir()
    lines = (f"{number % 2} sentence number {number} of many\n" for number in range(6000))
    (folder / "mr/rt-polarity.all").write_text("".join(lines))
    return folder / "mr"


def made(data: Path, **settings: Any) -> Trial:
    return TASKS.get(REQUEST.task).trial_for(REQUEST, Settings(folders={"mr": data}, **settings))


def written_by_0_1(directory: RunDirectory) -> None:
    """Write `trial.json` as version 0.1 did."""
    content = json.loads((directory.path / "trial.json").read_bytes())
    del content["data"]["partial"]
    (directory.path / "trial.json").write_text(json.dumps(content))


def test_an_old_trial_answers_for_nothing_unless_it_is_accepted(
    data: Path, folder: Path, call: Call, make_directory: Callable[..., RunDirectory]
) -> None:
    old = made(data, accept_partial=True)
    assert (old.data.partial, len(old.data.fingerprint)) == (True, 12)
    assert made(data).id != old.id
    written_by_0_1(make_directory(folder / "runs", old, metrics={"test/accuracy": 77.0}, attempts=[]))
    assert call("db", "rebuild").code == 0
    done = call("results")
    assert f"{old.data.fingerprint} {MARK}" in done.out
    words = f"--task {REQUEST.task} --data mr={data} --model {REQUEST.model} --executor debug".split()
    done = call("run", *words, "--accept-partial")
    assert done.code == 0, done.err
    assert "nothing to train" in done.err
    assert MARK in done.out
    assert os.environ["DROPBENCH_ACCEPT_PARTIAL"] == "1"


def test_a_worker_refuses_an_old_trial_unless_it_is_accepted(data: Path) -> None:
    accepting, old = Settings(folders={"mr": data}, accept_partial=True), made(data, accept_partial=True)
    with pytest.raises(InputError, match=r"partial fingerprint of version 0\.1: .* `--accept-partial`"):
        resolve_data(old, Settings(folders={"mr": data}))
    assert resolve_data(old, accepting).folder == data
    assert resolve_data(made(data), accepting).folder == data
    content = bytearray((data / "rt-polarity.all").read_bytes())
    content[100_000:100_001] = b"?"
    (data / "rt-polarity.all").write_bytes(content)
    assert resolve_data(old, accepting).folder == data  # as version 0.1
    content[5:6] = b"?"
    (data / "rt-polarity.all").write_bytes(content)
    with pytest.raises(InputError, match="have changed since the trial was made"):
        resolve_data(old, accepting)


def test_small_data_keep_their_trials_and_lose_their_mark(
    data: Path, store: Store, make_trial: Callable[..., Trial]
) -> None:
    (data / "rt-polarity.all").write_text("0 a\n1 b\n")
    new = made(data)
    assert made(data, accept_partial=True) == new
    read = Trial.from_json(new.to_json().replace(',"partial":false', ""))
    assert (read.id, read.data.partial) == (new.id, True)
    store.record([RunRecord(read, "succeeded", None, [], [("test/accuracy", -1, 1.0)])])
    assert results(store)[0]["fingerprint"] == f"{new.data.fingerprint} {MARK}"
    assert store.enqueue([new]).present == [new.id]
    store.record([RunRecord(read, "succeeded", None, [], [("test/accuracy", -1, 1.0)])])
    assert results(store)[0]["fingerprint"] == new.data.fingerprint
    assert not store.trials([new.id])[new.id].data.partial
