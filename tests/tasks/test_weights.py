"""Test initial weights from the user, and pre-trained transformers models on every text task."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from dropbench.harness.errors import InputError
from dropbench.harness.training.regularization import bind_trial
from dropbench.harness.trials.plugins import load_plugins
from dropbench.harness.trials.trial import Trial
from dropbench.tasks.preset_task import PresetTask
from dropbench.tasks.text.base import TextTask
from dropbench.tasks.weights import require_fitting_weights, resolve_weights, weights_ref
from tests.harness.trials.test_plugins import restored  # noqa: F401 - used by pytest
from tests.input_errors import one_line
from tests.tasks.making import CPU, DETR, METRO, SHORT, TEXTS, VOLO, save_bert, task_of, trial_of
from tests.training import run

pytestmark = pytest.mark.usefixtures("few")
SMALL = {"steps": 3, "batch_size": 8, "max_length": 24}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bert")
    save_bert(path)
    return path


def make(task: str, folder: Path, overrides: dict[str, Any] | None = None, **fields: Any) -> Trial:
    overrides = {**SMALL, **SHORT.get(task, {}), **(overrides or {})}
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
    metric = {"text-regression": "pearson", "question-answering": "f1"}.get(task, "accuracy")
    assert abs(result["metrics"][f"test/{metric}"]) <= 100


@pytest.mark.parametrize(("task", "kind"), [
    ("text-classification", "SequenceClassification"),
    ("textual-entailment", "SequenceClassification"),
    ("sequence-labelling", "TokenClassification"),
])  # fmt: skip
def test_a_fine_tuned_checkpoint_is_loaded_whole(folder: Path, tmp_path: Path, task: str, kind: str) -> None:
    import transformers

    classes = len(set_up(make(task, folder)).classes)
    torch.manual_seed(2)
    plain: Any = getattr(transformers, f"BertFor{kind}").from_pretrained(folder, num_labels=classes).eval()
    plain.save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    trained = set_up(make(task, tmp_path))
    batch = trained.batch("test", range(5))
    scores = cast(Any, trained).logits(trained.build_model().eval(), batch if isinstance(batch, dict) else batch[0])
    assert not any("random weights" in note for note in trained.notes)
    if task == "sequence-labelling":
        inputs, first = {"input_ids": batch["tokens"]}, batch["first"]
    elif task == "textual-entailment":
        inputs, first = {"input_ids": batch[0][0], **batch[0][1]}, None
        assert inputs["token_type_ids"].any()
    else:
        inputs, first = {"input_ids": batch[0]}, None
    expected = plain(attention_mask=(inputs["input_ids"] != 0).long(), **inputs).logits
    if first is not None:
        expected = torch.stack([row[places] for row, places in zip(expected, first, strict=True)])
    torch.testing.assert_close(scores, expected)


def test_parameters_that_a_checkpoint_lacks_are_named(folder: Path) -> None:
    task = set_up(make("text-classification", folder))
    task.build_model()
    assert task.notes[-1] == "random weights, as the checkpoint has none: classifier.bias, classifier.weight"


def test_a_pair_is_one_input_as_the_tokenizer_joins_it(folder: Path) -> None:
    task: Any = set_up(make("textual-entailment", folder, {"max_length": 12}))
    premise, hypothesis = "where is the man who runs ?", "a man runs ."
    whole = task.tokenizer.tokenizer(premise, hypothesis, truncation="longest_first", max_length=12)
    ids, truncated = task.tokenizer.encode_pairs([(premise, hypothesis)], 12)
    assert truncated == [True]
    assert ids == {name: [whole[name]] for name in ("input_ids", "token_type_ids")}
    assert any("pairs truncated to max_length=12" in note for note in task.notes)
    (tokens, features), labels = task.batch("train", [3, 5])
    assert tokens.shape == features["token_type_ids"].shape == (2, tokens.shape[1])
    assert len(labels) == 2
    siamese: Any = set_up(make("textual-entailment", folder, {"model.pairs": "siamese"}))
    tokens, _ = siamese.batch("train", [3, 5])
    assert tokens.shape[:2] == (2, 2)
    assert siamese.logits(siamese.build_model(), tokens).shape == (2, 3)


def test_a_head_of_ours_pools_the_vectors_of_the_encoder(folder: Path) -> None:
    from transformers import BertModel

    task = set_up(make("textual-entailment", folder, {"model.pooling": "mean"}))
    model: Any = task.build_model().eval()
    plain = BertModel.from_pretrained(folder).eval()
    (tokens, features), _ = task.batch("test", range(5))
    mask = (tokens != 0).long()
    hidden = plain(input_ids=tokens, attention_mask=mask, **features).last_hidden_state
    mean = (hidden * mask[..., None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
    torch.testing.assert_close(model(tokens, features), model.classifier(mean))


def test_one_option_sets_every_dropout_of_a_checkpoint(folder: Path) -> None:
    model = set_up(make("text-classification", folder, {"model.dropout": 0.25})).build_model()
    rates = {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)}
    config: Any = cast(Any, model).model.config
    assert rates == {0.25}
    assert (config.hidden_dropout_prob, config.attention_probs_dropout_prob) == (0.25, 0.25)


@pytest.mark.slow
def test_a_word_of_several_subwords_is_tagged_at_the_first(folder: Path) -> None:
    task: Any = set_up(make("sequence-labelling", folder))
    row = task.splits["test"].words[0]
    ((tokens, first),) = task.tokenizer.encode_words([row])
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
    (tokens,) = task.tokenizer.encode(["who is the man ?"])
    assert len(tokens) == 7
    assert task.truncate([tokens])[0].tolist() == [*tokens[:4], tokens[-1]]
    assert any("texts truncated to max_length=5" in note for note in task.notes)


def test_other_weights_are_another_trial_and_changed_ones_are_refused(tmp_path: Path, folder: Path) -> None:
    first, second = tmp_path / "one.pt", tmp_path / "other.pt"
    for path in (first, second):
        path.write_bytes(b"1")
    trial = make("text-classification", folder).model_copy(update={"weights": weights_ref(str(first))})
    assert resolve_weights(trial) == first
    assert trial.id == trial.model_copy(update={"weights": weights_ref(str(second))}).id
    second.write_bytes(b"2")
    assert trial.id != trial.model_copy(update={"weights": weights_ref(str(second))}).id
    first.write_bytes(b"3")
    with pytest.raises(InputError, match="have changed since the trial was made"):
        resolve_weights(trial)
    with pytest.raises(InputError, match="weights /dev/zero: not a regular file"):
        weights_ref("/dev/zero")


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
    with pytest.raises(InputError, match="expected a file that exists, a folder with config"):
        make("text-classification", tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"config\.json"):
        make("text-classification", tmp_path)
    with pytest.raises(InputError, match="starts from random weights: remove `--weights x`"):
        trial_of("text-classification", "trec-synthetic", "text-transformer", weights="x")
    with pytest.raises(InputError, match="expected `--weights` with a folder"):
        trial_of("text-classification", "trec-synthetic", "transformers-encoder")


PATCHES = '''
from torch import nn
from dropbench import MODELS

class Patches(nn.Module):
    def __init__(self, channels, classes):
        super().__init__()
        self.embed = nn.Conv2d(channels, 16, kernel_size=4, stride=4)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), num_layers=1)
        self.classify = nn.Linear(16, classes)

    def forward(self, images):
        return self.classify(self.encoder(self.embed(images).flatten(2).transpose(1, 2)).mean(dim=1))

@MODELS.register("patches", tasks=["image-classification"])
def build(name, options, *, image_size, channels, classes):
    """Attention over patches."""
    return Patches(channels, classes)

class Words(nn.Module):
    def __init__(self, vocabulary, classes):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, 16)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), num_layers=1)
        self.classify = nn.Linear(16, classes)

    def forward(self, tokens):
        return self.classify(self.encoder(self.embed(tokens)).mean(dim=1))

@MODELS.register("words", tasks=["text-classification"])
def build_words(name, options, *, head, vocabulary, max_length, classes):
    """A mean of embeddings."""
    return Words(vocabulary, classes)
'''


@pytest.mark.parametrize(
    ("task", "data", "model", "layer"),
    [
        ("image-classification", "digits", "patches", "embed.weight"),
        ("text-classification", "trec-synthetic", "words", "embed.weight"),
    ],
)
@pytest.mark.usefixtures("restored")
def test_a_plug_in_model_starts_from_weights_by_their_names(
    tmp_path: Path, task: str, data: str, model: str, layer: str
) -> None:
    (plugin := tmp_path / "patches.py").write_text(PATCHES)
    load_plugins([plugin])
    built: Any = task_of(PresetTask, trial_of(task, data, model)).build_model()
    state = {name: torch.ones_like(value) for name, value in built.state_dict().items()}
    torch.save(state, tmp_path / "ones.pt")
    started: Any = task_of(PresetTask, trial := trial_of(task, data, model, weights=str(tmp_path / "ones.pt")))
    assert all(torch.equal(value, state[name]) for name, value in started.build_model().state_dict().items())
    assert "weights of ones.pt" in started.notes
    require_fitting_weights(trial, CPU)
    more_classes = {**state, "classify.weight": torch.ones(99, state["classify.weight"].shape[1])}
    torch.save({"model": {**more_classes, "classify.bias": torch.ones(99)}}, tmp_path / "other.pt")
    started = task_of(PresetTask, trial_of(task, data, model, weights=str(tmp_path / "other.pt")))
    assert torch.equal(started.build_model().state_dict()[layer], state[layer])
    assert any("weights of other.pt (model); the classifier is new: 99 classes in" in note for note in started.notes)
    torch.save({**state, layer: torch.ones(3, 3)}, tmp_path / "odd.pt")
    with one_line(rf"odd\.pt: {layer} has shape \(3, 3\): expected the model's"):
        require_fitting_weights(trial_of(task, data, model, weights=str(tmp_path / "odd.pt")), CPU)


@pytest.mark.parametrize(
    ("task", "data", "model", "overrides"),
    [
        ("image-classification", "digits", "t2t-vit-digits", {}),
        ("image-classification", "digits", "vit-digits", {}),
        ("image-classification", "cifar10-synthetic", "volo-cifar", VOLO),
        ("object-detection", "coco-synthetic", "detr", DETR),
        ("mesh-recovery", "humbi-synthetic", "metro", METRO),
    ],
)
def test_weights_of_another_model_are_refused_before_queueing(
    tmp_path: Path, task: str, data: str, model: str, overrides: dict[str, Any]
) -> None:
    torch.save({"blocks.0.weight": torch.ones(2, 2)}, tmp_path / "other.pt")
    trial = trial_of(task, data, model, overrides, weights=str(tmp_path / "other.pt"))
    with one_line(r"weights .*other\.pt: "):
        require_fitting_weights(trial, CPU)
