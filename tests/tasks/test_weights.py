"""Test initial weights from the user, and pre-trained transformers models on every text task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.harness.errors import InputError
from dropbench.harness.training.regularization import bind_trial
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.text.base import TextTask
from dropbench.tasks.weights import resolve_weights, weights_ref
from tests.input_errors import one_line
from tests.tasks.making import TEXTS, task_of, trial_of
from tests.training import run

WORDS = ("what", "is", "the", "who", "where", "how", "a", "man", "dog", "run", "##s", "##ing", ".", "?", ",")
SMALL = {"steps": 3, "batch_size": 8, "max_length": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a BERT with transformers; its vocabulary includes every letter."""
    from transformers import BertConfig, BertModel, BertTokenizer

    path = tmp_path_factory.mktemp("bert")
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
    return path


def make(task: str, folder: Path, overrides: dict[str, Any] | None = None, **fields: Any) -> Trial:
    overrides = {**SMALL, **(overrides or {})}
    return trial_of(task, TEXTS[task], "transformers-encoder", overrides, weights=str(folder), **fields)


def set_up(trial: Trial) -> TextTask:
    return task_of(TextTask, trial)


@pytest.mark.parametrize(
    ("regularizer", "outcome"),
    [("none", "kept"), ("r-drop", "kept"), ("mixout", "kept"), ("drophead", "kept"), ("dropkey", "replaced"),
     ("hiddenkey", "replaced"), ("no-attention-dropout", "replaced")],
)  # fmt: skip
def test_a_trial_follows_the_rule_for_the_attention_dropout_of_a_checkpoint(
    folder: Path, regularizer: str, outcome: str
) -> None:
    trial = make("text-classification", folder, regularizer=regularizer)
    report = bind_trial(set_up(trial).build_model(), trial)
    assert str(report).splitlines()[1] == f"  the model's own attention dropout of 0.1 at 2 sites: {outcome}"


@pytest.mark.parametrize("task", TEXTS)
def test_a_pre_trained_encoder_trains_on_every_task(tmp_path: Path, folder: Path, task: str) -> None:
    result = run(tmp_path, make(task, folder, regularizer="dropkey", params={"ratio": 0.2}))
    assert result["steps"] == 3
    assert 0 <= result["metrics"]["test/accuracy"] <= 100


def test_the_weights_are_those_of_the_folder(folder: Path) -> None:
    from transformers import BertModel

    task = set_up(make("text-classification", folder))
    model: Any = task.build_model().eval()
    plain = BertModel.from_pretrained(folder).eval()
    tokens, _ = task.batch("test", range(5))
    expected = plain(input_ids=tokens, attention_mask=(tokens != 0).long()).last_hidden_state
    hidden, real = model.encoder(tokens)
    torch.testing.assert_close(hidden[real], expected[real])


@pytest.mark.slow
def test_a_word_of_several_subwords_is_tagged_at_the_first(folder: Path) -> None:
    task: Any = set_up(make("sequence-labelling", folder))
    row = task.splits["test"].words[0]
    tokens, first = task.tokenizer.encode_words(row)
    pieces = task.tokenizer.tokenizer.convert_ids_to_tokens(tokens)
    assert pieces[0] == "[CLS]"
    assert pieces[-1] == "[SEP]"
    for word, position in zip(row, first, strict=True):
        assert word.lower().startswith(pieces[position])
    part = task.tokenizer.tokenizer.convert_ids_to_tokens(task.tokens["test"][0].tolist())
    assert task.sample_view("test", 0).words == tuple(part)
    batch = task.batch("test", range(3))
    assert batch["first"].shape == batch["tags"].shape
    assert task.logits(task.build_model().eval(), batch).shape == (*batch["tags"].shape, len(task.classes))


def test_a_truncated_text_keeps_its_end_token(folder: Path) -> None:
    task = set_up(make("text-classification", folder, overrides={"max_length": 5}))
    tokens = task.tokenizer.encode("who is the man ?")
    assert len(tokens) == 7
    assert task.truncate(tokens).tolist() == [*tokens[:4], tokens[-1]]
    assert any("texts truncated to max_length=5" in note for note in task.notes)


def test_other_weights_are_another_trial_and_changed_ones_are_refused(tmp_path: Path, folder: Path) -> None:
    first, second = tmp_path / "one.pt", tmp_path / "other.pt"
    for path in (first, second):
        path.write_bytes(b"1")
    trial = make("text-classification", folder).model_copy(update={"weights": weights_ref(first)})
    assert resolve_weights(trial) == first
    assert trial.id == trial.model_copy(update={"weights": weights_ref(second)}).id
    second.write_bytes(b"2")
    assert trial.id != trial.model_copy(update={"weights": weights_ref(second)}).id
    first.write_bytes(b"3")
    with pytest.raises(InputError, match="have changed since the trial was made"):
        resolve_weights(trial)
    with pytest.raises(InputError, match="weights /dev/zero: not a regular file"):
        weights_ref(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"max_length": 33}, "max_length=33: .* has 32 positions"),
        ({"model.layers": 3}, "unknown option of model transformers-encoder 'layers'"),
        ({"features": "case"}, "has its own tokenizer: expected no features"),
    ],
)
def test_options_that_do_not_fit_the_weights_raise_an_error_of_one_line(
    folder: Path, overrides: dict[str, Any], message: str
) -> None:
    with one_line(message):
        set_up(make("text-classification", folder, overrides))


def test_missing_and_unexpected_weights_raise_input_errors(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a file, or a folder"):
        make("text-classification", tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"config\.json"):
        make("text-classification", tmp_path)
    with pytest.raises(InputError, match="starts from random weights: remove `--weights x`"):
        trial_of("text-classification", "trec-synthetic", "text-transformer", weights="x")
    with pytest.raises(InputError, match="expected `--weights FOLDER`"):
        trial_of("text-classification", "trec-synthetic", "transformers-encoder")
