from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dropbench.db.store.run_record import RunRecord
from dropbench.db.store.store import Store, SubmissionRow, open_store
from dropbench.harness.trials.trial import TRIAL_STATES, DataRef, Trial, TrialState, WeightsRef
from tests.db.records import attempt, dump, make_trial
from tests.requests import named


def submission(id: str = "a" * 32) -> SubmissionRow:
    return SubmissionRow(id=id, executor="local", folder="/jobs", host="here", pid=1)


def test_enqueue_merges_by_id_and_adds_the_suite(store: Store) -> None:
    first, second = make_trial(0), make_trial(1)
    enqueued = store.enqueue([first, second, first], [named("one", first), named("two", first)])
    assert enqueued.added == [first.id, second.id]
    assert enqueued.present == []
    again = store.enqueue([first, second], [named("three", first)])
    assert (again.added, again.present, again.requeued) == ([], [first.id, second.id], [])
    assert store.suites([first.id, second.id]) == {first.id: ["one", "three", "two"]}
    assert store.counts()["queued"] == 2


def test_enqueue_is_whole_or_not_at_all(store: Store) -> None:
    def broken() -> Any:
        yield from (make_trial(seed) for seed in range(2000))
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        store.enqueue(broken())
    assert store.states() == {}


def test_enqueue_queues_cancelled_and_skipped_again_but_no_failed(store: Store) -> None:
    cancelled, skipped, failed, done = (make_trial(seed) for seed in range(4))
    store.enqueue((cancelled, skipped, failed, done), [named("s", *(cancelled, skipped, failed, done))])
    store.set_states({cancelled.id: ("cancelled", None), skipped.id: ("skipped", "no grid")})
    store.set_states({failed.id: ("failed", "boom"), done.id: ("succeeded", None)})
    enqueued = store.enqueue((cancelled, skipped, failed, done), [named("s", *(cancelled, skipped, failed, done))])
    assert set(enqueued.requeued) == {cancelled.id, skipped.id}
    states = store.states([cancelled.id, skipped.id, failed.id, done.id])
    assert [row.state for row in states.values()] == ["queued", "queued", "failed", "succeeded"]
    assert states[skipped.id].reason is None
    assert states[failed.id].reason == "boom"


def test_trial_comes_back_equal(store: Store) -> None:
    plain = make_trial(5, schedule="decreasing", overrides={"lr": 0.5, "amp": True}, plugins={"my.py": "ff"})
    weighted = make_trial(6, weights=WeightsRef(path="/old/weights.pt", digest="ab"))
    store.enqueue([plain, weighted])
    assert store.trials([weighted.id, plain.id, "0" * 12]) == {weighted.id: weighted, plain.id: plain}


def test_moved_weights_and_data_are_found_again(store: Store) -> None:
    """Data in their default folder have no path."""

    def moved(weights: str, folder: str | None) -> Trial:
        data = DataRef(name="trec", fingerprint="0" * 16, path=folder)
        return make_trial(weights=WeightsRef(path=weights, digest="ab")).model_copy(update={"data": data})

    trials = moved("/old/w.pt", "/old/trec"), moved("/new/w.pt", "/new/trec"), moved("/new/w.pt", None)
    for trial in trials:
        store.enqueue([trial])
        assert store.trials([trials[0].id]) == {trials[0].id: trial}
    store.record([RunRecord(trials[0], "succeeded")])  # of a run directory that is older than the last request
    assert store.trials([trials[0].id])[trials[0].id].data == trials[-1].data


def test_counts_have_every_state(store: Store) -> None:
    assert store.counts() == dict.fromkeys(TRIAL_STATES, 0)
    trials = [make_trial(seed) for seed in range(3)]
    store.enqueue(trials)
    store.set_states({trials[0].id: ("failed", "x")})
    assert store.counts() == {**dict.fromkeys(TRIAL_STATES, 0), "queued": 2, "failed": 1}
    assert store.counts([trials[0].id, trials[0].id]) == {**dict.fromkeys(TRIAL_STATES, 0), "failed": 1}
    assert store.counts([]) == dict.fromkeys(TRIAL_STATES, 0)


def test_states_in_the_order_asked(store: Store) -> None:
    trials = [make_trial(seed) for seed in range(3)]
    store.enqueue(trials)
    ids = [trials[2].id, "0" * 12, trials[0].id]
    assert list(store.states(ids)) == [trials[2].id, trials[0].id]
    row = store.states()[trials[1].id]
    assert (row.config_id, row.seed, row.state, row.submission_id) == (trials[1].config_id, 1, "queued", None)


def test_a_claim_takes_only_what_waits(store: Store) -> None:
    trials = [make_trial(seed) for seed in range(4)]
    store.enqueue(trials)
    store.set_states({trials[0].id: ("failed", "x")})
    ids = [trial.id for trial in trials]
    assert store.intend([*ids[:3], ids[1]], submission()) == ids[1:3]
    assert store.intend(ids, submission("b" * 32)) == ids[3:]
    assert store.intend(ids, submission("c" * 32)) == []
    rows = store.states(ids)
    assert [row.submission_id for row in rows.values()] == [None, "a" * 32, "a" * 32, "b" * 32]
    assert [row.id for row in store.open_submissions()] == ["a" * 32, "b" * 32]


def test_a_submission_from_intent_to_end(store: Store) -> None:
    trial = make_trial()
    store.enqueue([trial])
    given = submission()
    store.intend([trial.id], given)
    assert store.open_submissions() == [given]
    store.submitted(given.id, "123")
    assert store.open_submissions() == [replace(given, state="submitted", job_id="123")]
    store.end_submission(given.id)
    assert store.open_submissions() == []


def test_set_states_is_guarded_and_lets_go_of_the_submission(store: Store) -> None:
    first, second = make_trial(0), make_trial(1)
    store.enqueue([first, second])
    store.intend([first.id], submission())
    assert store.set_states({first.id: ("running", None)}) == [first.id]
    assert store.states()[first.id].submission_id == "a" * 32
    new: dict[str, tuple[TrialState, str | None]] = {
        first.id: ("cancelled", "by hand"),
        second.id: ("cancelled", "by hand"),
        "0" * 12: ("cancelled", None),
    }
    assert store.set_states(new, only_from={"running"}) == [first.id]
    row = store.states()[first.id]
    assert (row.state, row.reason, row.submission_id) == ("cancelled", "by hand", None)
    assert store.states()[second.id].state == "queued"
    assert store.set_states(new, only_from=set()) == []


def test_record_is_idempotent_and_keeps_only_what_the_directory_says(store: Store) -> None:
    trial = make_trial()
    lost = {"number": 1, **_columns(attempt("lost"))}
    before = RunRecord(trial, "running", None, [lost], [("train/loss", 1, 0.5), ("train/loss", 2, 0.4)])
    store.record([before])
    # The checkpoint was at step 1: what came later is taken back, and trained again with another value.
    done = {**lost, "state": "succeeded"}
    after = RunRecord(
        trial, "succeeded", None, [done], [("train/loss", 1, 0.5), ("test/accuracy", -1, None)], "2026", "2027"
    )
    store.record([after])
    once = dump(store)
    store.record([after])
    assert dump(store) == once
    assert {row[1:] for row in once["metrics"]} == {
        ("'train/loss'", "1", "0.5", "None"),
        ("'test/accuracy'", "-1", "None", f"'{trial.config_id}'"),
    }
    assert [row[2] for row in once["attempts"]] == ["'succeeded'"]
    assert store.states()[trial.id].state == "succeeded"


def _columns(attempt: dict[str, Any]) -> dict[str, Any]:
    names = ["executor", "job_id", "pid", "device", "cpu_seconds", "gpu_seconds", "peak_memory_bytes", "steps_done"]
    return {**dict.fromkeys([*names, "message"]), **attempt}


def test_record_keeps_the_submission_of_a_running_trial(store: Store) -> None:
    trial = make_trial()
    store.enqueue([trial])
    store.intend([trial.id], submission())
    store.record([RunRecord(trial, "running")])
    assert store.states()[trial.id].submission_id == "a" * 32
    store.record([RunRecord(trial, "succeeded")])
    assert store.states()[trial.id].submission_id is None


def test_values_are_never_sql(store: Store) -> None:
    store.enqueue([make_trial()], [named("it's", make_trial())])
    assert store.find("data=x'--") == []
    assert len(store.find("it's")) == 1
    assert store.find("ratio=0.3'") == []
    assert store.find(None) == store.find(make_trial().id[:9]) == [make_trial().id]


def test_closing_lets_go_of_the_file(url: str) -> None:
    with open_store(url) as store:
        store.enqueue([make_trial()])
    with open_store(url, create=False) as store:
        assert store.counts()["queued"] == 1
