"""The worker in this process, with the real engine."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path

import pytest

from dropbench.harness.errors import Interrupted
from dropbench.harness.runs.run_directory import CANCELLED, RunDirectory
from dropbench.harness.training.engine import run_trial
from dropbench.harness.trials.plugins import keep_plugins
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial
from dropbench.jobs.worker import probe, worker
from dropbench.jobs.worker.attempt import Attempt
from dropbench.jobs.worker.retry import MAX_SPLITS
from tests.harness.attention.attention_case import needs_triton
from tests.jobs.worker.training import Work, run_when_training, states
from tests.jobs.workplace import Tiny, Workplace
from tests.training import after


def test_every_trial_of_the_list_is_run(place: Workplace, work: Work, tiny: Tiny) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)]
    trials = tiny(2)
    work(trials)()
    assert states(place) == {trial.id: ["succeeded"] for trial in trials}
    for directory in place.directories():
        result = directory.result()
        assert result is not None
        assert result["steps"] == 40
        assert "step 40/40" in (directory.path / "log.txt").read_text()
        assert list((directory.path / "checkpoint").glob("step-*")) == [], "training states of a finished trial"
        assert not directory.locked()
    assert handlers == [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2)]
    work(trials, "s2")()
    assert states(place) == {trial.id: ["succeeded"] for trial in trials}, "finished trials are not run again"


def test_only_the_selected_weights_of_a_finished_trial_are_kept(place: Workplace, work: Work, tiny: Tiny) -> None:
    """Not those that the checkpoint before the last had selected, which are as large."""
    (trial,) = tiny(overrides={"average_last": 1, "evaluate_every": 4, "steps": 8})
    directory = RunDirectory.create(place.runs, trial)
    with pytest.raises(Interrupted):
        run_trial(directory, replace(place.settings, device="cpu", threads=1), after(5))
    work([trial])()
    assert directory.succeeded()
    assert [file.name for file in (directory.path / "checkpoint").iterdir()] == ["weights-000000008.pt"]


def test_a_kind_of_trial_that_was_not_run_yet_comes_before_the_next_of_another(
    place: Workplace, work: Work, tiny: Tiny
) -> None:
    trials = tiny(3)
    worker = work(trials)
    worker.kinds = ["a", "a", "b"]
    worker()
    started = {id: attempts[0]["started_at"] for id, attempts in place.attempts().items()}
    assert sorted(started, key=started.__getitem__) == [trials[0].id, trials[2].id, trials[1].id]


def test_a_failing_trial_does_not_stop_the_others(place: Workplace, work: Work, tiny: Tiny) -> None:
    trials = tiny(4)
    place.trouble.write_text("raise 5 1")
    work(trials[:2])()
    place.trouble.write_text("memory 3 2")
    work(trials[2:3])()
    place.trouble.write_text("input 0 3")
    work(trials[3:])()
    assert [states(place)[trial.id] for trial in trials] == [
        ["succeeded"],
        ["failed"],
        [*["out_of_memory"] * MAX_SPLITS, "failed"],
        ["failed"],
    ]
    attempt = place.attempts()[trials[1].id][0]
    assert attempt["cause"] == "ZeroDivisionError: the tiny task divides by zero"
    assert "tiny_task.py" in attempt["message"]
    assert attempt["message"].splitlines()[-1] == attempt["cause"]
    assert attempt["steps_done"] == 4
    assert "Traceback" in (place.runs / trials[1].id / "log.txt").read_text()
    last = place.attempts()[trials[3].id][0]
    assert (last["cause"], last["message"]) == ("data 'tiny': line 3: expected a label", None)


@pytest.mark.parametrize("error", [BaseException("odd"), KeyboardInterrupt()], ids=repr)
def test_a_plug_in_may_raise_anything(
    place: Workplace, work: Work, tiny: Tiny, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def train(*arguments: object) -> None:
        raise error

    trials = tiny(2)
    monkeypatch.setattr(worker, "_train", train)
    work(trials)()
    assert states(place) == {trial.id: ["failed"] for trial in trials}


@pytest.mark.parametrize(
    ("changes", "cause"),
    [
        ({"device": "cuda"}, "device cuda: torch sees no GPU: install torch for its driver, or use `--device cpu`"),
        ({"backend": "triton"}, "backend triton: its kernels run on CUDA, not on cpu: use `--backend auto`"),
    ],
    ids=str,
)
@needs_triton
def test_a_trial_fails_at_its_start_on_a_node_without_the_requested_hardware(
    place: Workplace, work: Work, tiny: Tiny, no_gpu: None,
    changes: dict[str, str], cause: str,
) -> None:  # fmt: skip
    (trial,) = tiny()
    work([trial], **changes)()
    (attempt,) = place.attempts()[trial.id]
    assert (attempt["state"], attempt["cause"], attempt["message"]) == ("failed", cause, None)
    assert not (place.runs / trial.id / "events.jsonl").exists(), "nothing is trained"


def test_a_trial_that_runs_out_of_memory_resumes_in_more_pieces(place: Workplace, work: Work, tiny: Tiny) -> None:
    (trial,) = tiny(overrides={"model.dropout": 0.0})
    work([trial], runs=place.folder / "whole")()
    place.trouble.write_text("short 2")  # of the eight samples of a batch
    work([trial])()
    attempts = place.attempts()[trial.id]
    assert [(attempt["state"], attempt["micro_batch_splits"]) for attempt in attempts] == [
        ("out_of_memory", 1),
        ("out_of_memory", 2),
        ("succeeded", 4),
    ]
    whole, pieces = (RunDirectory(folder / trial.id).result() for folder in (place.folder / "whole", place.runs))
    assert whole is not None
    assert pieces is not None
    assert pieces["metrics"] == pytest.approx(whole["metrics"], rel=1e-5)


def test_running_out_of_memory_in_the_smallest_pieces_fails(place: Workplace, work: Work, tiny: Tiny) -> None:
    (small,) = tiny(overrides={"batch_size": 4})
    (large,) = tiny(overrides={"batch_size": 64})
    place.trouble.write_text("short 0")
    work([small, large])()
    assert states(place)[small.id] == ["out_of_memory"] * 3 + ["failed"]
    assert place.attempts()[small.id][-1]["cause"] == (
        "out of memory even with micro-batches of one sample (the recipe has 4): use a larger GPU"
    )
    assert states(place)[large.id] == ["out_of_memory"] * MAX_SPLITS + ["failed"]
    cause = place.attempts()[large.id][-1]["cause"]
    assert cause == f"out of memory even with each micro-batch in {2**MAX_SPLITS} pieces; MemoryError: no message"
    # A retry starts with whole micro-batches: there may be more memory now.
    place.trouble.write_text("")
    work([large], "s2")()
    assert (states(place)[large.id][-1], place.attempts()[large.id][-1]["micro_batch_splits"]) == ("succeeded", 1)


def test_a_failed_trial_is_retried_by_another_submission_only(place: Workplace, work: Work, tiny: Tiny) -> None:
    trials = tiny()
    place.trouble.write_text("raise 5")
    work(trials)()
    work(trials)()
    assert states(place) == {trials[0].id: ["failed"]}
    place.trouble.write_text("")
    work(trials, "s2")()
    assert states(place) == {trials[0].id: ["failed", "succeeded"]}


def test_a_plug_in_is_loaded_from_its_copy(place: Workplace, work: Work, tiny: Tiny) -> None:
    (trial,) = tiny()
    (changed,) = tiny()
    changed = changed.model_copy(update={"plugins": {"task tiny": "0" * 64}})
    keep_plugins([trial], place.runs)
    entry = TASKS.put("tiny", None)
    try:
        work([trial, Trial.model_validate(changed.model_dump())])()
        assert "tiny" not in TASKS
    finally:
        TASKS.put("tiny", entry)
    causes = {attempts[0]["state"]: attempts[0]["cause"] for attempts in place.attempts().values()}
    cause = (
        f"plug-in of task tiny has changed since the trial was made, and {place.runs}/plugins has no copy of version "
        "00000000: restore it, or enqueue it again, as another trial"
    )
    assert causes == {"succeeded": None, "failed": cause}


def test_locked_deleted_and_cancelled_trials_are_skipped(place: Workplace, work: Work, tiny: Tiny) -> None:
    trials = tiny(4)
    worker = work(trials)
    first, second, third, fourth = (RunDirectory(Path(path)) for path in worker.directories)
    (second.path / CANCELLED).touch()
    (third.path / "trial.json").unlink()
    third.path.rename(place.folder / "elsewhere")
    with first.lock() as locked:
        assert locked
        worker()
    assert states(place) == {first.id: [], second.id: [], fourth.id: ["succeeded"]}


def test_the_end_of_a_dead_attempt_is_recorded_and_its_temporary_files_deleted(
    place: Workplace, work: Work, tiny: Tiny
) -> None:
    worker = work(tiny())
    directory = RunDirectory(Path(worker.directories[0]))
    Attempt(directory, submission="s0", executor="local", job_id=None)
    (directory.path / "checkpoint").mkdir()
    (directory.path / "checkpoint" / ".step-000000007.pt.x").write_bytes(b"half of it")
    worker()
    assert states(place)[directory.id] == ["lost", "succeeded"]
    assert list(directory.path.rglob(".*")) == []


PRINTING = """
import os, sys, warnings
from pathlib import Path
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.jobs.worker.worker import _redirect_output
for number in (1, 2):
    with _redirect_output(RunDirectory(Path(sys.argv[1])), number):
        print("from Python")
        os.system("echo from a child")
        print("to standard error", file=sys.stderr)
        warnings.warn("a warning")
print("afterwards")
"""


def test_all_output_and_warnings_go_to_the_log(place: Workplace) -> None:
    done = place.call(str(place.folder), program=["-W", "default", "-c", PRINTING])
    assert (done.stdout, done.stderr) == ("afterwards\n", "")
    log = (place.folder / "log.txt").read_text()
    for text in ("from Python", "from a child", "to standard error", "UserWarning: a warning", "--- attempt"):
        assert log.count(text) == 2, log


def test_a_run_directory_that_is_deleted_during_training(place: Workplace, work: Work, tiny: Tiny) -> None:
    trials = tiny(2)
    thread = run_when_training(place, lambda: (place.runs / trials[0].id).rename(place.folder / "gone"))
    worker = work(trials)
    worker()
    thread.join()
    assert states(place) == {trials[1].id: ["succeeded"]}


def test_a_worker_without_its_slot_does_nothing(place: Workplace, work: Work, tiny: Tiny) -> None:
    worker = work(tiny())
    worker.slot_file = str(place.folder / "removed")
    worker()
    assert list(states(place).values()) == [[]]


def test_a_probe_stops_after_its_steps_and_the_trial_continues_from_there(
    place: Workplace, work: Work, tiny: Tiny
) -> None:
    (trial,) = tiny()
    place.pause.write_text("0.01")
    work([trial], probe=True)()
    (directory,) = place.directories()
    (attempt,) = directory.attempts()
    assert (attempt["state"], attempt["cause"]) == ("interrupted", "probe: stopped after 30 steps")
    assert (attempt["steps_done"], attempt["steps"]) == (30, 40)
    assert 0 < attempt["steps_per_second"] < 100
    assert directory.result() is None
    work([trial])()
    assert [attempt["state"] for attempt in directory.attempts()] == ["interrupted", "succeeded"]
    assert [event["step"] for event in directory.events() if event["event"] == "resume"] == [0, 30]


def test_a_trial_shorter_than_the_probe_ends(place: Workplace, work: Work, tiny: Tiny) -> None:
    work(tiny(overrides={"steps": 20}), probe=True)()
    (attempts,) = place.attempts().values()
    assert [attempt["state"] for attempt in attempts] == ["succeeded"]


def test_the_warm_up_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ten steps take 100 s each, the others 2 s."""
    clock = iter([1000.0, 1040.0])
    monkeypatch.setattr(probe, "_time", lambda: next(clock))
    stop = probe.Probe(lambda: False)
    for _ in range(29):
        stop.count()
        assert not stop()
    stop.count()
    assert stop()
    assert stop.rate == 0.5


def test_a_stop_request_ends_a_probe_without_a_rate() -> None:
    stop = probe.Probe(lambda: True)
    assert stop()
    assert stop.rate is None
