"""Tasks and trials on small data, with small models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
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

WORDS = ("what", "is", "the", "who", "where", "how", "a", "man", "dog", "run", "##s", "##ing", ".", "?", ",")
"""The words of `save_bert`."""


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


def save_bert(path: Path) -> None:
    """Save a small BERT with transformers; its vocabulary includes every letter."""
    import torch
    from transformers import BertConfig, BertModel, BertTokenizer

    letters = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    BertTokenizer(vocab=vocabulary).save_pretrained(path)
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=32,
    )  # fmt: skip
    BertModel(config).save_pretrained(path)
