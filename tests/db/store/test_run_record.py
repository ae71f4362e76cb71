from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dropbench.db.store.run_record import read_run_record
from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from tests.damage import damage
from tests.db.records import attempt, make_directory, make_trial


@pytest.mark.parametrize(
    ("states", "result", "expected", "reason"),
    [
        ([], False, "queued", None),
        (["running"], False, "queued", "its worker was killed"),
        (["failed"], False, "failed", "cause 1"),
        (["out_of_memory"], False, "queued", "cause 1"),
        (["cancelled"], False, "cancelled", "cause 1"),
        (["interrupted"], False, "queued", "cause 1"),
        (["preempted"], False, "queued", "cause 1"),
        (["timeout"], False, "queued", "cause 1"),
        (["lost"], False, "queued", "cause 1"),
        (["node_failure"], False, "queued", "cause 1"),
        (["failed", "lost"], False, "queued", "cause 2"),
        (["lost", "failed"], False, "failed", "cause 2"),
        (["lost", "succeeded"], True, "succeeded", None),
        (["running"], True, "succeeded", None),
        (["succeeded"], False, "queued", "cause 1"),
    ],
)
def test_state_comes_from_result_and_last_attempt(
    tmp_path: Path, states: list[str], result: bool, expected: str, reason: str | None
) -> None:
    attempts = [attempt(state, f"cause {number}") for number, state in enumerate(states, 1)]
    directory = make_directory(
        tmp_path, make_trial(), attempts=attempts, metrics={"test/accuracy": 90} if result else None
    )
    record = read_run_record(directory)
    assert (record.state, record.reason) == (expected, reason)
    assert [attempt["number"] for attempt in record.attempts] == list(range(1, len(states) + 1))


def test_a_locked_directory_is_running(tmp_path: Path) -> None:
    directory = make_directory(tmp_path, make_trial(), attempts=[attempt("running")])
    with directory.lock() as mine:
        assert mine
        assert read_run_record(directory).state == "running"
    assert read_run_record(directory).state == "queued"


def test_a_cancelled_directory_is_cancelled(tmp_path: Path) -> None:
    directory = make_directory(tmp_path, make_trial())
    (directory.path / "cancelled").touch()
    assert read_run_record(directory).state == "cancelled"


def test_curves_and_final_values(tmp_path: Path) -> None:
    metrics = {"test/accuracy": 88.5, "train/loss": float("nan"), "dev/accuracy": 87}
    directory = make_directory(tmp_path, make_trial(), metrics=metrics, losses=[2.0, 1.0, float("inf")])
    directory.append_event("evaluate", step=2, split="dev", metrics={"accuracy": 50.0})
    directory.append_event("checkpoint", step=2)
    directory.append_event("train", step=3, loss=9.0)
    directory.append_event("resume", step=2)
    directory.append_event("train", step=3, loss=0.5)
    directory.append_event("evaluate", step=3, split="dev", metrics={"accuracy": 60.0})
    directory.append_event("evaluate", step=3, split="dev", metrics={"accuracy": 61.0})
    values = {(name, step): value for name, step, value in read_run_record(directory).metrics}
    assert values == {
        ("train/loss", 0): 2.0, ("train/loss", 1): 1.0, ("train/loss", 2): None, ("train/loss", 3): 0.5,
        ("train/lr", 0): 0.01, ("train/lr", 1): 0.01, ("train/lr", 2): 0.01,
        ("dev/accuracy", 2): 50.0, ("dev/accuracy", 3): 61.0,
        ("test/accuracy", -1): 88.5, ("dev/accuracy", -1): 87.0, ("train/loss", -1): None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("more", "expected"), [({}, "Python 3.11, torch 2.13"), ({"compile": True}, "Python 3.11, torch 2.13 compiled")]
)
def test_versions_say_whether_the_model_was_compiled(tmp_path: Path, more: dict[str, Any], expected: str) -> None:
    directory = make_directory(tmp_path, make_trial())
    content = {"python": "3.11.7", "libraries": {"torch": "2.13.0+cpu"}, **more}
    directory.write("environment.json", content)
    assert read_run_record(directory).libraries == expected


def test_times_come_from_the_attempts(tmp_path: Path) -> None:
    first = attempt("lost", started_at="2026-01-01T00:00:00.000+00:00", ended_at="2026-01-01T00:01:00.000+00:00")
    second = attempt("running", started_at="2026-01-02T00:00:00.000+00:00")
    directory = make_directory(tmp_path, make_trial(), attempts=[first, second])
    record = read_run_record(directory)
    assert (record.created_at, record.updated_at) == (first["started_at"], second["started_at"])
    fresh = read_run_record(make_directory(tmp_path, make_trial(1)))
    assert fresh.created_at is not None
    assert fresh.created_at == fresh.updated_at


def cut(name: str) -> Callable[[RunDirectory], None]:
    def damage(directory: RunDirectory) -> None:
        file = directory.path / name
        file.write_bytes(file.read_bytes()[:-20])

    return damage


def write(name: str, text: str) -> Callable[[RunDirectory], None]:
    def damage(directory: RunDirectory) -> None:
        (directory.path / name).write_text(text, encoding="utf-8")

    return damage


def file_for_folder(directory: RunDirectory) -> None:
    damage(directory.path / "attempts", "list")


def attempt_of(content: dict[str, Any]) -> Callable[[RunDirectory], None]:
    return lambda directory: directory.write_attempt(1, content)


def result_of(accuracy: Any) -> Callable[[RunDirectory], None]:
    return lambda directory: directory.write_result({"metrics": {"test/accuracy": accuracy}})


DAMAGES: dict[str, tuple[Callable[[RunDirectory], None], str]] = {
    "trial cut short": (cut("trial.json"), "trial.json"),
    "result cut short": (cut("result.json"), "result.json: damaged"),
    "result without metrics": (write("result.json", "{}"), "result.json: damaged"),
    "a metric that is a word": (write("result.json", '{"metrics": {"test/accuracy": "high"}}'), "result.json: damaged"),
    "a metric that is a truth": (result_of(True), "expected a number"),
    "trial of another id": (write("trial.json", "{}"), "trial.json"),
    "attempt of an unknown state": (attempt_of({"state": "x"}), "attempts/1.json: state=x: input"),
    "attempt without a state": (attempt_of({}), "attempts/1.json: state: field required"),
    "attempt that is a list": (write("attempts/1.json", "[]"), "attempts/1.json: "),
    "folder of attempts that is a file": (file_for_folder, "attempts: Not a directory"),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_damage_is_reported_in_one_line_that_names_the_file(tmp_path: Path, what: str) -> None:
    directory = make_directory(
        tmp_path, make_trial(), attempts=[attempt("succeeded")], metrics={"test/accuracy": 1.0}, losses=[1.0]
    )
    cause, message = DAMAGES[what]
    cause(directory)
    with pytest.raises(InputError, match=re.escape(message)) as error:
        read_run_record(directory)
    assert str(directory.path) in str(error.value)
    assert "\n" not in str(error.value)


def test_torn_lines_and_unknown_keys_are_no_damage(tmp_path: Path) -> None:
    directory = make_directory(tmp_path, make_trial(), attempts=[attempt("failed", "x", newer=1)], losses=[1.0, 2.0])
    with (directory.path / "events.jsonl").open("ab") as file:
        file.write(b'{"event": "train", "step": 3, "lo')
    record = read_run_record(directory)
    assert len(record.metrics) == 4
    assert "newer" not in record.attempts[0]
    assert json.dumps(record.attempts)
