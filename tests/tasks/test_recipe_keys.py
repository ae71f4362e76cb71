"""Every recipe key and model option that a trial may override is read when it trains; the others are refused by name.

A trial of each task and family of models is trained with a recipe that records which of its keys are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dropbench.harness.models.catalog import MODELS
from dropbench.harness.registry import load
from dropbench.harness.settings import Settings
from dropbench.harness.trials.alignment import FINETUNE_KEYS
from dropbench.harness.trials.plugins import make_trials
from dropbench.harness.trials.recipe import FILLED_IN
from dropbench.harness.trials.task import TASKS, spec_of
from dropbench.harness.trials.trial import Trial, TrialRequest
from tests.adapters.vision.test_image_encoder import transformers_folder
from tests.input_errors import one_line
from tests.tasks.making import CPU, DETR, LANGUAGE_MODEL, METRO, SHORT, TEXTS, VOLO
from tests.tasks.test_training import TRANSLATION
from tests.tasks.test_weights import folder as bert  # noqa: F401
from tests.training import run

pytestmark = pytest.mark.usefixtures("few")
STEPS = {"steps": 3, "evaluate_every": 3, "warmup": 1}
VIT = {**STEPS, "batch_size": 8, "model.depth": 1, "model.embed_dim": 16, "model.num_heads": 2}
TEXT = {**STEPS, "batch_size": 8, "max_length": 16}
ENCODER = {"model.layers": 1, "model.dim": 16, "model.heads": 2, "model.feedforward": 16}
LANGUAGE = {**STEPS, **LANGUAGE_MODEL}
FAIRSEQ = {key: value for key, value in TRANSLATION.items() if key != "epochs"} | STEPS
DETECTION = {**STEPS, **DETR, "image_size": 32, "batch_size": 2, "model.frozen": False}
DIGITS = ("image-classification", "digits", "vit-digits")
TREC = ("text-classification", "trec-synthetic", "text-transformer")
CASES: dict[str, tuple[tuple[str, str, str], dict[str, Any], dict[str, Any]]] = {
    "vit": (DIGITS, VIT, {}),
    "sgd": (DIGITS, {**VIT, "optimizer": "sgd"}, {}),
    "without warmup": (DIGITS, {**VIT, "warmup": 0}, {}),
    "a constant rate": (DIGITS, {**VIT, "lr_schedule": "constant"}, {}),
    "a rate that drops": (DIGITS, {**VIT, "lr_schedule": "step", "lr_drop": 2}, {}),
    "finetuning": (
        DIGITS, {**VIT, "batch_size": 128, "finetune_epochs": 1}, {"regularizer": "dropkey", "align": "finetune"},
    ),
    "t2t-vit": (("image-classification", "digits", "t2t-vit-digits"), {**VIT, "model.token_dim": 4}, {}),
    "an encoder of images": (
        ("image-classification", "cifar10-synthetic", "image-encoder"),
        {**STEPS, "batch_size": 8, "image_size": 32},
        {},
    ),
    "volo": (
        ("image-classification", "cifar10-synthetic", "volo-cifar"),
        {**STEPS, **VOLO, "batch_size": 4, "token_labels": "image"},
        {},
    ),
    **{
        task: ((task, data, "text-transformer"), {**TEXT, **ENCODER, **SHORT.get(task, {})}, {})
        for task, data in TEXTS.items()
    },
    "bert": (("text-classification", "trec-synthetic", "bert-tiny"), {**TEXT, **ENCODER}, {}),
    "an encoder of transformers": (("text-classification", "trec-synthetic", "transformers-encoder"), TEXT, {}),
    "language model": (("language-modelling", "text-synthetic", "learned-dropout-lm"), LANGUAGE, {}),
    "mixture of experts": (("language-modelling", "text-synthetic", "learned-dropout-lm-moe"), LANGUAGE, {}),
    "translation": (("translation", "multi30k-synthetic", "transformer-wmt-en-de"), FAIRSEQ, {}),
    "translation as fairseq": (
        ("translation", "multi30k-synthetic", "transformer-wmt-en-de"), {**FAIRSEQ, "order": "fairseq"}, {},
    ),
    "detr": (("object-detection", "coco-synthetic", "detr"), DETECTION, {}),
    "qpic": (("interaction-detection", "hico-det-synthetic", "qpic"), DETECTION, {}),
    "metro": (("mesh-recovery", "humbi-synthetic", "metro"), {**STEPS, **METRO, "image_size": 32}, {}),
}  # fmt: skip
SLOW = {"qpic", "metro", "translation as fairseq", "mixture of experts"}
OTHERWISE = {
    *("kinds", "channels_last", "checkpoint_activations", "seed_splits", "model", "epochs", "steps", "freeze", "lora")
}
"""Keys that are read as a part of `Trial.recipe`, or of which one excludes the other."""
UNSET = {
    "volo": {"mixup", "cutmix", "class_weights"},
    "a constant rate": {"lr_drop"},
    "an encoder of transformers": {"vectors"},
}
"""Keys that have to be unset."""


def recorder(kind: type[Any], reads: set[str]) -> Callable[[Any, str], Any]:
    """Return a ``__getattribute__`` for models of pydantic that adds the fields that are read to `reads`."""

    def dump(self: Any) -> Any:
        def recorded(*, include: Any = kind.model_fields, exclude: Any = (), **options: Any) -> Any:
            reads.update(names := {*include} - {*exclude})
            return object.__getattribute__(self, "model_dump")(include=names, **options)

        return recorded

    def read(self: Any, name: str) -> Any:
        if name in kind.model_fields:
            reads.add(name)
        if name == "model_dump":
            return dump(self)
        return object.__getattribute__(self, name)

    return read


@pytest.fixture
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Trial]:
    """Case → its trial."""

    def made(case: str) -> Trial:
        (task, data, model), overrides, fields = CASES[case]
        weights = str(request.getfixturevalue("bert")) if model == "transformers-encoder" else None
        if model == "image-encoder":
            weights = str(tmp_path / "vit")
            transformers_folder(tmp_path / "vit", "ViT")
        named = {"task": task, "data": data, "model": model, "weights": weights, **fields}
        return make_trials(TrialRequest(**named, overrides=overrides), [0], CPU)[0]

    return made


@pytest.mark.parametrize("case", [pytest.param(case, marks=[pytest.mark.slow] * (case in SLOW)) for case in CASES])
def test_what_is_not_read_is_refused(
    case: str, make: Callable[[str], Trial], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make(case)
    task, facts = TASKS.get(trial.task), MODELS.entry(trial.model).facts
    recipe = task.recipe_type.model_validate(trial.recipe)
    refused = {**recipe.unread(facts), **({} if trial.align == "finetune" else dict.fromkeys(FINETUNE_KEYS, ""))}
    reads, options = set[str](), set[str]()
    recording: Any = type("Recording", (task.recipe_type,), {"__getattribute__": recorder(task.recipe_type, reads)})
    set_up = task.setup

    def record(self: Any) -> None:
        self.recipe = recording.model_validate(self.trial.recipe)
        reads.clear()  # what validation has read
        set_up(self)

    monkeypatch.setattr(task, "setup", record)
    kind = load(facts["options"])
    monkeypatch.setattr(kind, "__getattribute__", recorder(kind, options), raising=False)
    run(tmp_path, trial, num_workers=0)
    unset = UNSET.get(case, set())
    unread = {*task.recipe_type.model_fields} - reads - OTHERWISE - unset
    filled_in = {key for key in task.recipe_type.model_fields if key.endswith(FILLED_IN)}
    expected = refused.keys() & task.recipe_type.model_fields.keys()
    assert unread - filled_in == expected - filled_in - unset
    assert {f"model.{option}" for option in {*kind.model_fields} - options} <= refused.keys()


def test_every_family_of_models_is_among_the_cases() -> None:
    assert {MODELS.entry(model).target for (_, _, model), _, _ in CASES.values()} == {
        MODELS.entry(model).target for model in MODELS
    }
    assert {task for (task, _, _), _, _ in CASES.values()} == set(TASKS)


REFUSED: list[tuple[tuple[str, str, str], dict[str, Any], str]] = [
    (TREC, {"backbone_lr": 1e-4}, "recipe: backbone_lr: the model has no backbone"),
    (TREC, {"lr_options.power": 2}, "recipe: lr_options.power=2: not read with lr_schedule=cosine: remove it"),
    (TREC, {"lr_schedule": "polynomial", "warmup_lr": 1e-4}, "recipe: warmup_lr=0.0001: not read with lr_schedule"),
    (TREC, {"lr_schedule": "polynomial", "lr_options.powr": 2}, "lr_schedule=polynomial 'powr': did you mean power?"),
    (TREC, {"lr_schedule": "cosine_with_min_lr"}, "recipe: lr_options with lr_schedule=cosine_with_min_lr: "),
    (TREC, {"freeze": "encodr"}, "unknown part of a parameter's name 'encodr': did you mean encoder?"),
    (TREC, {"freeze": "*"}, r"freeze=\*: nothing is left to train"),
    (TREC, {"lora.r": 2}, "recipe: lora: peft knows no targets for this model: set lora.targets, of "),
    (TREC, {"lora.targets": "qkvs"}, "in lora.targets 'qkvs': did you mean qkv"),
    (TREC, {"lora.targets": "k_proj"}, "unknown linear map in lora.targets 'k_proj': "),
    (TREC, {"lora.rank": 2}, "unknown recipe key at lora 'rank'"),
    (TREC, {"lora": True}, "recipe: lora=True: expected keys of its own, such as lora.r=8"),
    (TREC, {"lora.r": 0}, "recipe: lora.r=0: input should be greater than or equal to 1"),
    (TREC, {"learning_rate": 1e-4}, "unknown recipe key 'learning_rate': did you mean lr?"),
    (TREC, {"dropout": 0}, "unknown recipe key 'dropout': did you mean model.dropout?"),
    (("image-classification", "digits", "vit-digits"), {"optimizer": "lionn"}, "unknown optimizer 'lionn'"),
    (("object-detection", "coco-synthetic", "detr"), {"head_lr": 0.1}, "recipe: head_lr=0.1: the model has no head"),
    (("object-detection", "coco-synthetic", "detr"), {"layer_decay": 0.5}, "layer_decay: expected a model with one"),
    (("translation", "multi30k-synthetic", "transformer-wmt-en-de"), {"class_weights": "balanced"}, "no such loss"),
    (TREC, {"channels_last": True}, "recipe: channels_last: model 'text-transformer' has no convolutions: remove it"),
    (TREC, {"momentum": 0.8}, "recipe: momentum=0.8: not read with optimizer=adam: remove it"),
    (TREC, {"optimizer": "sgd", "beta1": 0.8}, "recipe: beta1=0.8: not read with optimizer=sgd"),
    (TREC, {"lr_schedule": "constant", "min_lr": 0.1}, "recipe: min_lr=0.1: not read with lr_schedule=constant"),
    (TREC, {"warmup": 0, "warmup_lr": 0.1}, "recipe: warmup_lr=0.1: not read without warmup"),
    (TREC, {"freeze_vectors": True}, "recipe: freeze_vectors=True: not read without vectors"),
    (TREC, {"vectors_fingerprint": "0"}, "recipe: vectors_fingerprint=0: it is filled in"),
    (DIGITS, {"token_weight": 0.5}, "recipe: token_weight=0.5: not read without token_labels"),
    (("object-detection", "coco-synthetic", "detr"), {"label_smoothing": 0.1}, "label_smoothing=0.1: the task has no"),
    (("mesh-recovery", "humbi-synthetic", "metro"), {"label_smoothing": 0.1}, "label_smoothing=0.1: the task has no"),
    (("translation", "multi30k-synthetic", "transformer-wmt-en-de"), {"symbols": 100}, "recipe: symbols: not read"),
    (("translation", "wmt16-en-de-synthetic", "transformer-wmt-en-de"), {"pieces": 100}, "recipe: pieces: not read"),
]


@pytest.mark.parametrize(("place", "overrides", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_a_key_that_is_not_read_is_named(
    place: tuple[str, str, str], overrides: Mapping[str, Any], message: str
) -> None:
    task, data, model = place
    request = TrialRequest(task=task, data=data, model=model, overrides=dict(overrides))
    with one_line(message):
        TASKS.get(task).check(make_trials(request, [0], Settings())[0])


def test_a_subword_model_does_not_read_the_keys_of_words() -> None:
    recipe = spec_of("text-classification").recipe_type(epochs=1)
    facts = MODELS.entry("transformers-encoder").facts
    unread = {"min_count", "lowercase", "vectors", "freeze_vectors", "model.head_dropout"}
    assert unread <= recipe.unread(facts).keys()
    for model in ({"pooling": "mean"}, {"pairs": "siamese"}):
        assert "model.head_dropout" not in recipe.model_copy(update={"model": model}).unread(facts)
    assert not {"min_count", "lowercase", "vectors"} & recipe.unread(MODELS.entry("bert-tiny").facts).keys()


def test_keys_of_fine_tuning_and_kinds_of_sites_are_no_part_of_trials_that_do_not_read_them() -> None:
    def ids(regularizer: str, **overrides: Any) -> str:
        task, data, model = DIGITS
        request = TrialRequest(task=task, data=data, model=model, regularizer=regularizer, overrides=overrides)
        return make_trials(request, [0], Settings())[0].id

    assert ids("none", kinds="encoder-self", finetune_lr=1e-4) == ids("none")
    assert ids("r-drop", kinds="encoder-self") != ids("dropkey", kinds="encoder-self")
    assert ids("dropkey", kinds="encoder-self") != ids("dropkey")
