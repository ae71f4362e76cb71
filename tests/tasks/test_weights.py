"""Test initial weights from the user, and pre-trained transformers models on every text task."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from dropbench.harness.errors import InputError
from dropbench.harness.runs.run_directory import RunDirectory
from dropbench.harness.settings import Settings
from dropbench.harness.training.engine import run_trial
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import Trial, TrialRequest
from dropbench.tasks.text.base import TextTask
from dropbench.tasks.weights import resolve_weights, weights_ref
from tests.input_errors import one_line

WORDS = ("what", "is", "the", "who", "where", "how", "a", "man", "dog", "run", "##s", "##ing", ".", "?", ",")
TASKS_ON_TEXT = {
    "text-classification": "trec-synthetic",
    "sequence-labelling": "conll2000-synthetic",
    "textual-entailment": "snli-synthetic",
}
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
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
    )
    BertModel(config).save_pretrained(path)
    return path


def make(task: str, folder: Path, **fields: Any) -> Trial:
    overrides = {**SMALL, **fields.pop("overrides", {})}
    request = TrialRequest(
        task=task,
        data=TASKS_ON_TEXT[task],
        model="transformers-encoder",
        weights=str(folder),
        overrides=overrides,
        **fields,
    )
    trial = TASKS.get(task).trial_for(request, Settings())
    TASKS.get(task).check(trial)
    return trial


def set_up(trial: Trial) -> TextTask:
    task = TASKS.get(trial.task)(trial, Settings(device="cpu", threads=1))
    task.setup()
    assert isinstance(task, TextTask)
    return task


@pytest.mark.parametrize("task", TASKS_ON_TEXT)
def test_a_pre_trained_encoder_trains_on_every_task(tmp_path: Path, folder: Path, task: str) -> None:
    trial = make(task, folder, regularizer="dropkey", params={"ratio": 0.2})
    directory = RunDirectory.create(tmp_path, trial)
    result = run_trial(directory, Settings(runs=tmp_path, device="cpu", threads=1))
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


def test_other_weights_are_another_trial_and_changed_ones_are_refused(tmp_path: Path) -> None:
    first, second = tmp_path / "one.pt", tmp_path / "other.pt"
    first.write_bytes(b"1")
    second.write_bytes(b"1")
    assert weights_ref(first).digest == weights_ref(second).digest
    trial = Trial.model_validate(
        {
            "task": "t",
            "data": {"name": "d", "fingerprint": "0" * 12},
            "model": "m",
            "regularizer": {"name": "none"},
            "preset": "mini",
            "recipe": {},
            "seed": 0,
            "weights": weights_ref(first),
        }
    )
    assert resolve_weights(trial) == first
    assert trial.id == trial.model_copy(update={"weights": weights_ref(second)}).id
    second.write_bytes(b"2")
    assert trial.id != trial.model_copy(update={"weights": weights_ref(second)}).id
    first.write_bytes(b"3")
    with pytest.raises(InputError, match="have changed since the trial was made"):
        resolve_weights(trial)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"overrides": {"max_length": 33}}, "max_length=33: .* has 32 positions"),
        ({"overrides": {"model.layers": 3}}, "unknown option of model transformers-encoder 'layers'"),
    ],
)
def test_options_that_do_not_fit_the_weights_raise_an_error_of_one_line(
    folder: Path, fields: dict[str, Any], message: str
) -> None:
    with one_line(message):
        make("text-classification", folder, **fields)


def test_features_are_refused_for_subword_models(folder: Path) -> None:
    with pytest.raises(InputError, match="has its own tokenizer: expected no features"):
        make("sequence-labelling", folder, overrides={"features": "case"})


def test_missing_and_unexpected_weights_raise_input_errors(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected a file, or a folder"):
        make("text-classification", tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"config\.json"):
        make("text-classification", tmp_path)
    request = TrialRequest(task="text-classification", data="trec-synthetic", model="text-transformer", weights="x")
    with pytest.raises(InputError, match="starts from random weights: remove `--weights x`"):
        TASKS.get("text-classification").trial_for(request, Settings())
    request = request.model_copy(update={"model": "transformers-encoder", "weights": None})
    with pytest.raises(InputError, match="expected `--weights FOLDER`"):
        TASKS.get("text-classification").check(TASKS.get("text-classification").trial_for(request, Settings()))


def test_weights_that_are_a_device_are_reported() -> None:
    with pytest.raises(InputError, match="weights /dev/zero: not a regular file"):
        weights_ref(Path("/dev/zero"))
