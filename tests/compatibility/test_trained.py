"""Trials that 969bcf6 trained, interrupted or queued: with its engine, nothing is trained again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.trials.result_versions import ENGINE
from tests.compatibility.command import dropbench
from tests.compatibility.written import FIRST_VERSIONS, WRITTEN, assert_same, lay_plugins, read_json, table, unpack_runs

IMAGE = "--task image-classification --data digits --model vit-digits --set model.depth=2"
TEXT = "--task text-classification --data trec-synthetic --model text-transformer --set steps=8 --set lr=0.003"
LANGUAGE = (
    "--task language-modelling --data wikitext-2-synthetic --model learned-dropout-lm --set steps=4"
    " --set accumulate=2 --set evaluation_batches=1"
)
ACCEPT = "--accept-partial"
"""The set has a file of more than 128 KiB, of which 969bcf6 read the beginning and the end."""
WORDS = (
    "--task sequence-labelling --data conll2000-synthetic --model text-transformer --set steps=8 --set lr=0.003"
    " --set finetune_epochs=1"
)
TRAINED = {
    "suite": "small.yaml --plugin my.py",
    "out-of-memory": f"{IMAGE} --set evaluate_every=2 --set steps=4 --plugin trouble.py --regularizer large",
    "text": f"{TEXT} --set evaluate_every=2 --seeds 2 --regularizer none",
    "monte-carlo": f"{TEXT} --set evaluate_every=2 --seeds 2"
    " --regularizer dropattention-c:ratio=0.3,window=2,align=monte-carlo-3",
    "language": f"{LANGUAGE} {ACCEPT} --set evaluate_every=2 --seeds 2 --regularizer none",
    "learned-dropout": f"{LANGUAGE} {ACCEPT} --set evaluate_every=2 --seeds 2"
    " --regularizer learned-dropout:max_coeff=0.2",
    "finetune": f"{WORDS} --set evaluate_every=2 --regularizer dropattention-e:ratio=0.3,window=3,align=finetune",
    "plug-in": "tiny.yaml --plugin tiny.py",
}
INTERRUPTED, ANALYZED = "5f8ec7625f84", "fd8845166f09"


def result(folder: Path, trial: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "runs" / trial / "result.json").read_bytes())
    return content


def times(folder: Path) -> dict[str, int]:
    """Return the time at which each file of the run directories was written."""
    files = (folder / "runs").glob("[0-9a-f]*/**/*")
    return {str(path): path.stat().st_mtime_ns for path in files if path.is_file()}


def assert_same_training(old: dict[str, Any], new: dict[str, Any]) -> None:
    """Equal but for the rounding of another processor."""
    assert (new["steps"], new["selected_step"], new["notes"]) == (old["steps"], old["selected_step"], old["notes"])
    assert set(new["metrics"]) >= set(old["metrics"])
    for name, value in old["metrics"].items():
        assert new["metrics"][name] == pytest.approx(value, rel=1e-3), name


def test_a_trained_quickstart_has_nothing_to_train_and_prints_the_same_table(tmp_path: Path) -> None:
    unpack_runs(WRITTEN / "quickstart" / "runs.tar.xz", tmp_path)
    lay_plugins(tmp_path)
    before = times(tmp_path)
    # What is now quickstart/full was named quickstart.
    done = dropbench(tmp_path, "run", "quickstart/full", *FIRST_VERSIONS)
    assert done.code == 0, done.err
    assert "nothing to train" in done.out + done.err
    old = table((WRITTEN / "quickstart" / "printed.txt").read_text(encoding="utf-8"))
    assert len(old) == 10
    assert table(done.out) == [old[0].replace("quickstart:", "quickstart/full:"), *old[1:]]
    changed = {path for path, time in times(tmp_path).items() if time != before.get(path)}
    assert {Path(path).name for path in changed} == {"suites.json"}
    for file, arguments in {
        "report.json": ("report", "quickstart/full", *FIRST_VERSIONS, "--format", "json"),
        "results.json": ("results", "quickstart/full", "--json"),
        "status.json": ("status", "--json"),
    }.items():
        written = (WRITTEN / "quickstart" / file).read_text(encoding="utf-8")
        assert_same(
            json.loads(written.replace('"quickstart"', '"quickstart/full"')), dropbench(tmp_path, *arguments).json
        )


@pytest.mark.parametrize("arguments", TRAINED.values(), ids=list(TRAINED))
def test_what_was_trained_is_not_trained_again(kept: Path, arguments: str) -> None:
    before = times(kept)
    done = dropbench(kept, "run", "--executor", "debug", *arguments.split(), *FIRST_VERSIONS)
    assert done.code == 0, done.err
    assert "nothing to train" in done.out + done.err
    assert times(kept) == before


def test_an_interrupted_trial_of_another_engine_does_not_go_on(complete: Path) -> None:
    """Its checkpoint stays as it was written."""
    checkpoint = complete / "runs" / INTERRUPTED / "checkpoint"
    before = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    assert len(before) > 1
    for arguments in (("retry", INTERRUPTED), ("submit", INTERRUPTED, "--executor", "debug", "--plugin", "tiny.py")):
        done = dropbench(complete, *arguments)
        assert done.code == 0, done.err
    assert dropbench(complete, "collect").code == 0
    (row,) = dropbench(complete, "db", "sql", "--json", f"SELECT * FROM v_trials WHERE trial_id = '{INTERRUPTED}'").json
    assert (row["state"], row["attempts"]) == ("failed", 2)
    assert f"requested with result version 1 of engine; version {ENGINE} is current: enqueue it again" in row["reason"]
    assert {path.name: path.read_bytes() for path in checkpoint.iterdir()} == before


def test_its_trial_of_this_engine_ends_as_it_would_have(complete: Path) -> None:
    options = "--task tiny --data tiny --model tiny-model --regularizer dropkey:ratio=0.3 --set epochs=6"
    more = "--set evaluate_every=3 --executor debug --plugin tiny.py"
    done = dropbench(complete, "run", *options.split(), *more.split())
    assert done.code == 0, done.err
    query = "SELECT trial_id FROM v_trials WHERE task = 'tiny' AND result_versions IS NOT NULL"
    (row,) = dropbench(complete, "db", "sql", "--json", query).json
    assert_same_training(read_json("uninterrupted.json"), result(complete, row["trial_id"]))


def test_trained_weights_are_analyzed(kept: Path, tmp_path: Path) -> None:
    old = kept / "runs" / ANALYZED / "analysis"
    options = ("--plugin", "tiny.py", "-o", str(tmp_path), "--json")
    done = dropbench(kept, "analyze", ANALYZED, "attention-map", *options)
    assert done.code == 0, done.err
    before, after = (json.loads((folder / "attention-map.json").read_bytes()) for folder in (old, tmp_path))
    assert after["scalars"]["peak"] == pytest.approx(before["scalars"]["peak"], rel=1e-4)
    with np.load(old / "attention-map.npz") as arrays, np.load(tmp_path / "attention-map.npz") as found:
        assert set(found) >= set(arrays)
        for name, array in arrays.items():
            if array.dtype.kind == "U":
                assert found[name].tolist() == array.tolist()
            else:
                np.testing.assert_allclose(found[name], array, rtol=1e-3)


def test_failed_and_cancelled_trials_keep_their_reasons(kept: Path) -> None:
    rows = dropbench(kept, "db", "sql", "--json", "SELECT * FROM v_trials WHERE state IN ('failed', 'cancelled')").json
    reasons = {row["regularizer"]: (row["state"], row["reason"]) for row in rows}
    assert reasons == {
        "broken": ("failed", "RuntimeError: the plug-in is broken"),
        "slow": ("cancelled", "cancelled by the user"),
        "dropkey": ("cancelled", "cancelled by the user"),
    }
    done = dropbench(kept, "logs", "377ada540662")
    assert done.code == 0, done.err
    assert "RuntimeError: the plug-in is broken" in done.out


def test_the_queue_is_still_queued(kept: Path) -> None:
    done = dropbench(kept, "results", "queued", "--json")
    assert {row["regularizer"] for row in done.json} == {"none", "dropkey", "dropself"}
    assert {row["state"] for row in done.json} == {"queued"}


def test_a_task_trains_as_before(place: Path, kept: Path) -> None:
    """A trial that starts now also has the digest of its plug-in and the version of the engine, and so another id."""
    done = dropbench(place, "run", "tiny.yaml", "--plugin", "tiny.py", "--executor", "debug")
    assert done.code == 0, done.err
    trials = {trial_in(folder)["regularizer"]["name"]: folder.name for folder in (place / "runs").glob("[0-9a-f]*")}
    for old in ("e0f7f08b7b09", ANALYZED):
        before = trial_in(kept / "runs" / old)
        new = trials[before["regularizer"]["name"]]
        after = trial_in(place / "runs" / new)
        assert before | {key: after[key] for key in ("plugins", "data", "result_versions")} == after
        assert after["result_versions"] == {"engine": ENGINE}
        assert_same_training(result(kept, old), result(place, new))


def trial_in(folder: Path) -> dict[str, Any]:
    trial: dict[str, Any] = json.loads((folder / "trial.json").read_bytes())
    return trial
