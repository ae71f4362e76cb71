"""Any sequence of operations on the queue, compared with a plain dictionary as its model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dropbench.db.schema.connection import connect
from dropbench.db.schema.tables import METADATA
from dropbench.db.store.store import Store, SubmissionRow
from dropbench.harness.trials.trial import FINAL_STATES
from tests.db.records import done, make_trial
from tests.requests import named

SEEDS = st.lists(st.integers(0, 7), max_size=8)


def machine() -> type[RuleBasedStateMachine]:
    trials = [make_trial(seed) for seed in range(8)]
    ids = [trial.id for trial in trials]
    number = iter(range(10**9))

    class Queue(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            engine = connect("sqlite://")
            METADATA.create_all(engine)  # in a fraction of the time of a file and its migration
            self.store = Store(engine)
            self.states: dict[str, str] = {}
            self.suites: set[tuple[str, str]] = set()
            self.holder: dict[str, str] = {}

        def teardown(self) -> None:
            self.store.close()

        @rule(seeds=SEEDS, suite=st.sampled_from(["a", "b"]))
        def enqueue(self, seeds: list[int], suite: str) -> None:
            enqueued = self.store.enqueue(own := [trials[seed] for seed in seeds], [named(suite, *own)] if own else [])
            requested = {ids[seed] for seed in seeds}
            assert set(enqueued.added) == requested - set(self.states)
            assert set(enqueued.present) == requested & set(self.states)
            for id in requested:
                if self.states.get(id) in (None, "cancelled"):
                    self.states[id] = "queued"
                self.suites.add((suite, id))

        @rule(seeds=SEEDS)
        def claim(self, seeds: list[int]) -> None:
            name = f"{next(number):032d}"
            claimed = self.store.intend([ids[seed] for seed in seeds], SubmissionRow(name, "local", "/", "here", 1))
            assert len(set(claimed)) == len(claimed)
            assert set(claimed) == {ids[seed] for seed in seeds if self.states.get(ids[seed]) == "queued"}
            for id in claimed:
                self.states[id], self.holder[id] = "submitted", name

        @rule(seeds=SEEDS, state=st.sampled_from(["queued", "running", "cancelled", "failed"]))
        def change(self, seeds: list[int], state: Any) -> None:
            changed = self.store.set_states({ids[seed]: (state, None) for seed in seeds}, only_from={"submitted"})
            assert set(changed) == {ids[seed] for seed in seeds if self.states.get(ids[seed]) == "submitted"}
            self.states.update(dict.fromkeys(changed, state))

        @rule(seed=st.integers(0, 7))
        def succeed(self, seed: int) -> None:
            self.store.record([done(trials[seed], 90.0)])
            self.states[ids[seed]] = "succeeded"

        @invariant()
        def same(self) -> None:
            rows = self.store.states()
            assert {id: row.state for id, row in rows.items()} == self.states
            for id, row in rows.items():
                held = row.state in ("submitted", "running")
                assert row.submission_id == (self.holder[id] if held else None)
            assert sum(self.store.counts().values()) == len(self.states)
            memberships = {(suite, id) for id, suites in self.store.suites(ids).items() for suite in suites}
            assert memberships == self.suites

    return Queue


@pytest.mark.filterwarnings("ignore:.*NonInteractiveExampleWarning")
def test_any_order_of_actions() -> None:
    assert {"succeeded", "failed", "cancelled"} <= FINAL_STATES
    run_state_machine_as_test(
        machine(),
        settings=settings(
            max_examples=15, stateful_step_count=20, deadline=None, database=None,
            suppress_health_check=[HealthCheck.too_slow], derandomize=True,
        ),
    )  # fmt: skip
