"""Tasks and trials on small data, with small models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from dropbench.harness.settings import Settings
from dropbench.harness.trials.task import TASKS, Task
from dropbench.harness.trials.trial import Trial, TrialRequest

Kind = TypeVar("Kind", bound=Task)

CPU = Settings(device="cpu", threads=1)
DETR: dict[str, Any] = {
    "image_size": 64, "batch_size": 4, "model.num_queries": 6, "model.encoder_layers": 1, "model.decoder_layers": 1,
    "model.embed_dim": 32, "model.feedforward": 32,
}  # fmt: skip
METRO: dict[str, Any] = {
    "image_size": 64, "batch_size": 8, "model.hidden": "32,16", "model.between": "16", "model.layers": 1,
    "model.num_heads": 2, "model.feedforward": 32,
}  # fmt: skip
LANGUAGE_MODEL: dict[str, Any] = {
    "context": 16, "vocabulary": 300, "batch_size": 8, "evaluation_batches": 4, "model.layers": 1, "model.dim": 24,
    "model.heads": 3,
}  # fmt: skip
VOLO: dict[str, Any] = {
    "model.layers": "1,1", "model.embed_dim": 16, "model.num_heads": 2, "model.stem_dim": 4, "model.mlp_ratio": 1,
}  # fmt: skip
TEXTS = {
    "text-classification": "trec-synthetic",
    "sequence-labelling": "conll2000-synthetic",
    "textual-entailment": "snli-synthetic",
    "text-regression": "sts-b-synthetic",
    "multiple-choice": "swag-synthetic",
    "question-answering": "squad-synthetic",
}
"""The tasks on texts, with a data set each."""
SHORT: dict[str, dict[str, Any]] = {"question-answering": {"stride": 4}}
"""Recipe keys that a task on texts needs besides a small `max_length`."""


def trial_of(
    task: str, data: str, model: str, overrides: dict[str, Any] | None = None, settings: Settings = CPU, **fields: Any
) -> Trial:
    """Return a trial that was checked as before it is queued."""
    request = TrialRequest(task=task, data=data, model=model, overrides=overrides or {}, **fields)
    trial = TASKS.get(task).trial_for(request, settings)
    TASKS.get(task).check(trial)
    return trial


def task_of(kind: Callable[..., Kind], trial: Trial, settings: Settings = CPU) -> Kind:
    """Return the task of a trial after `setup`."""
    task = TASKS.get(trial.task)(trial, settings)
    assert isinstance(kind, type)
    assert isinstance(task, kind)
    task.setup()
    return cast(Kind, task)
