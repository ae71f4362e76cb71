"""Trials that cannot run: refused if they are requested directly, skipped with a reason in a suite."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.db.store.store import Store
from dropbench.harness.errors import InputError, UnsuitableError
from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.jobs.queue.operations import enqueue
from dropbench.tasks.preset_task import PresetTask
from tests.jobs.workplace import Workplace
from tests.requests import requested

REASON = "'masksub' fits none of the 4 sites of TextClassifier: it acts on tokens, for which the model has no site"
SUITE = """
title: A table with an impossible cell
source: these tests
metric: accuracy
trial: {task: text-classification, data: trec-synthetic, model: text-transformer, overrides: {steps: 2, model.dim: 32}}
columns: [{label: TREC}]
rows:
  - {label: none, baseline: true, trial: {regularizer: none}}
  - {label: masked, trial: {regularizer: masksub}}
presets: {mini: {seeds: 2}}
"""


def make(regularizer: str, seed: int = 0, **params: Any) -> Trial:
    request = TrialRequest(
        task="text-classification", data="trec-synthetic", model="text-transformer", regularizer=regularizer,
        params=params, seed=seed,
    )  # fmt: skip
    return TASKS.get(request.task).trial_for(request, Settings())


def test_an_impossible_trial_of_a_suite_is_skipped_with_its_reason(store: Store, place: Workplace) -> None:
    possible, first, second = make("dropkey"), make("masksub"), make("masksub", seed=1)
    enqueued, _ = enqueue(store, place.settings, requested("mine", *(possible, first, second)))
    assert enqueued.skipped == [first.id, second.id]
    assert len(enqueued.added) == 3
    rows = store.states([possible.id, first.id, second.id])
    assert [(row.state, row.reason) for row in rows.values()] == [("queued", None), *[("skipped", REASON)] * 2]


def test_an_impossible_trial_that_is_requested_directly_is_refused(store: Store, place: Workplace) -> None:
    for _ in range(2):  # in a suite or not, before and after it was skipped
        with pytest.raises(UnsuitableError, match=r"^'masksub' fits none of the 4 sites"):
            enqueue(store, place.settings, requested("", make("dropkey"), make("masksub")))
        enqueue(store, place.settings, requested("mine", make("masksub")))
    assert store.counts()["queued"] == 0


def test_an_impossible_option_is_refused_in_a_suite_too(store: Store, place: Workplace) -> None:
    with pytest.raises(InputError, match="window=1000: longer than"):
        enqueue(store, place.settings, requested("mine", make("dropkey", window=1000)))
    assert store.states() == {}


def test_a_skipped_trial_is_queued_when_it_has_become_possible(
    store: Store, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make("masksub")
    assert enqueue(store, place.settings, requested("mine", trial))[0].skipped == [trial.id]
    again, _ = enqueue(store, place.settings, requested("mine", trial, make("dropkey")))
    assert (again.present, again.requeued, again.skipped) == ([trial.id], [], [trial.id])
    monkeypatch.setattr(PresetTask, "check", classmethod(lambda cls, trial: None))  # a later version can run it
    assert enqueue(store, place.settings, requested("mine", trial))[0].requeued == [trial.id]
    assert store.states([trial.id])[trial.id].state == "queued"


def test_a_task_without_class_scores_skips_regularizers_of_the_loss(
    store: Store, place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TASKS.get("text-classification"), "gives_logits", classmethod(lambda cls: False))
    trial = make("r-drop", alpha=0.123)
    assert enqueue(store, place.settings, requested("mine", trial))[0].skipped == [trial.id]
    assert "needs class scores" in str(store.states([trial.id])[trial.id].reason)


@pytest.mark.slow
def test_a_suite_runs_and_shows_its_skipped_cells(place: Workplace) -> None:
    (place.folder / "mine.yaml").write_text(SUITE, encoding="utf-8")
    added = place.call("enqueue", "mine.yaml")
    assert added.stdout.splitlines() == [
        "Added 4 trials (0 already present). 2 queued; run `dropbench submit`.", f"2 trials skipped: {REASON}.",
    ]  # fmt: skip
    done = place.ok("run", "mine.yaml", "--executor", "debug")
    assert "4 trials (2 skipped), 1 worker" in done.stderr
    assert f"[1] {REASON}" in " ".join(done.stdout.split())
    again = place.call("run", "mine.yaml", "--executor", "debug")
    assert again.returncode == 0
    assert "nothing to train: 4 trials already done or skipped (2)" in again.stderr
    assert f"2 trials skipped: {REASON}." in place.call("status").stdout
    (row,) = json.loads(place.call("results", "skipped", "--json").stdout)
    assert (row["state"], row["mark"], row["n"]) == ("skipped", f"{REASON}, synthetic", 0)
    for format in ("table", "md", "tex", "csv", "json", "html"):
        place.ok("report", "mine.yaml", "--format", format, "-o", "report")
        text = (place.folder / "report").read_text(encoding="utf-8")
        assert "skipped" in text
        assert "which the model has no site" in " ".join(text.split())
    alone = place.call(
        "run", "--task", "text-classification", "--data", "trec-synthetic", "--model", "text-transformer",
        "--regularizer", "masksub",
    )  # fmt: skip
    assert alone.returncode == 2
    assert alone.stderr == f"dropbench: {REASON}\n"


def test_weights_that_do_not_fit_are_refused_before_anything_is_queued(
    store: Store, place: Workplace, tmp_path: Path
) -> None:
    torch.save({"blocks.0.weight": torch.ones(2, 2)}, tmp_path / "other.pt")
    request = TrialRequest(
        task="image-classification", data="digits", model="t2t-vit-digits", weights=str(tmp_path / "other.pt")
    )
    trial = TASKS.get(request.task).trial_for(request, Settings())
    with pytest.raises(InputError, match=r"other\.pt: they do not fit this T2T"):
        enqueue(store, place.settings, requested("mine", trial))
    assert store.counts()["queued"] == 0
