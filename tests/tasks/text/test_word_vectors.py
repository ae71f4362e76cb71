"""Test pre-trained word vectors in a task: rows of the embedding, norms, and the trial's fingerprint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.harness.errors import InputError
from dropbench.harness.settings import Settings
from dropbench.tasks.text.base import TextTask
from dropbench.tasks.text.tokenizer import WordTokenizer
from tests.tasks.making import TEXTS, task_of, trial_of

DIM = 5


def make(root: Path, task: str = "text-classification", **overrides: Any) -> TextTask:
    settings = Settings(data=root, device="cpu", threads=1)
    trial = trial_of(task, TEXTS[task], "text-transformer", {"vectors": "some.txt", **overrides}, settings)
    return task_of(TextTask, trial, settings)


def write(root: Path, words: list[str], seed: int = 0) -> torch.Tensor:
    """Write a file of vectors with norms many times those of random embeddings."""
    vectors = torch.randn(len(words), DIM, generator=torch.Generator().manual_seed(seed)) * 7
    rows = [" ".join([word, *(f"{x:.6f}" for x in row)]) for word, row in zip(words, vectors.tolist(), strict=True)]
    (root / "vectors").mkdir(exist_ok=True)
    (root / "vectors" / "some.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return vectors


@pytest.mark.parametrize("task", TEXTS)
def test_words_are_initialized_with_their_vectors(tmp_path: Path, task: str) -> None:
    write(tmp_path, ["nobody-writes-this"])
    tokenizer = make(tmp_path, task).tokenizer
    assert isinstance(tokenizer, WordTokenizer)
    words = sorted(tokenizer.vocabulary)[:8]
    vectors = write(tmp_path, ["nobody-writes-this", *words])[1:]
    with_vectors = make(tmp_path, task)
    model: Any = with_vectors.build_model()
    weight = model.encoder.embedding.weight.detach()
    assert weight.shape == (tokenizer.size, DIM)
    rows = weight[[tokenizer.vocabulary[word] for word in words]]
    torch.testing.assert_close(rows / vectors, (rows[0, 0] / vectors[0, 0]).expand_as(rows), rtol=1e-4, atol=0)
    assert float(rows.square().mean().sqrt()) == pytest.approx(DIM**-0.5, rel=1e-4)
    assert weight[with_vectors.tokenizer.padding].abs().sum() == 0
    assert any(note.startswith(f"8 of {len(tokenizer.vocabulary):,} words have vectors") for note in with_vectors.notes)
    loss = with_vectors.loss(model, with_vectors.batch("train", range(4)))
    loss.backward()
    assert model.encoder.embedding.weight.grad is not None


def test_frozen_vectors_are_not_trained(tmp_path: Path) -> None:
    write(tmp_path, ["what"])
    model: Any = make(tmp_path, freeze_vectors=True).build_model()
    assert not model.encoder.embedding.weight.requires_grad
    assert model.encoder.projection.weight.requires_grad


def test_other_vectors_are_another_trial_and_changed_ones_are_refused(tmp_path: Path) -> None:
    write(tmp_path, ["what"])
    first = make(tmp_path)
    write(tmp_path, ["what"], seed=1)
    assert make(tmp_path).trial.id != first.trial.id
    with pytest.raises(InputError, match="have changed since the trial was made"):
        first.build_model()
    with pytest.raises(InputError, match=r"vectors 'others.txt' not found in .*: expected one of some.txt"):
        make(tmp_path, vectors="others.txt")
