"""Tiny trials whose numbers stand for an item: the engine, a task, a model or a regularizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dropbench.harness.models.catalog import MODELS
from dropbench.harness.registry import Registry
from dropbench.harness.regularizers import REGULARIZERS
from dropbench.harness.trials.task import TASKS
from dropbench.harness.trials.trial import TrialRequest

LENGTH = {"steps": 3, "evaluate_every": 1}
NARROW = {"model.dim": 24, "model.heads": 3}
DETECTOR = {
    "image_size": 64, "batch_size": 4, "model.num_queries": 6, "model.encoder_layers": 1, "model.decoder_layers": 1,
    "model.embed_dim": 32, "model.feedforward": 32,
}  # fmt: skip
SMALL: Mapping[str, tuple[str, dict[str, Any]]] = {
    "vit-digits": ("digits", {"batch_size": 16, "model.depth": 2, "model.embed_dim": 16}),
    "t2t-vit-digits": ("digits", {"batch_size": 16}),
    "volo-cifar": ("cifar10-synthetic", {"batch_size": 4}),
    "text-transformer": ("trec-synthetic", {"batch_size": 16, "model.layers": 2, **NARROW}),
    "bert-tiny": ("trec-synthetic", {"batch_size": 8}),
    "learned-dropout-lm": ("text-synthetic", {"batch_size": 8, "model.layers": 2, **NARROW}),
    "learned-dropout-lm-moe": ("text-synthetic", {"batch_size": 8, "model.layers": 1, **NARROW}),
    "detr": ("coco-synthetic", DETECTOR),
    "qpic": ("hico-det-synthetic", DETECTOR),
    "metro": ("humbi-synthetic", {
        "image_size": 32, "batch_size": 8, "model.hidden": "32,16", "model.between": "16", "model.layers": 1,
        "model.num_heads": 2, "model.feedforward": 32,
    }),
    "transformer-wmt-en-de": ("multi30k-synthetic", {
        "pieces": 120, "max_tokens": 300, "model.encoder_layers": 1, "model.decoder_layers": 1, "model.dim": 32,
        "model.feedforward": 64,
    }),
}  # fmt: skip
"""For a model of each family: its data set, and the overrides that make it small."""
LANGUAGE = {"context": 16, "vocabulary": 300, "evaluation_batches": 4}
DATA = {
    "sequence-labelling": "conll2000-synthetic",
    "textual-entailment": "snli-synthetic",
    "text-regression": "sts-b-synthetic",
    "multiple-choice": "swag-synthetic",
    "question-answering": "squad-synthetic",
}
"""The data sets of tasks that the model's own in `SMALL` are not for."""
MODEL_OF = {"learned-dropout": "learned-dropout-lm", "token-dropout": "text-transformer"}
"""The models of regularizers that do not act on a ViT."""
WITH_DROPOUT = {"attentiondrop-consistency", "r-drop"}
"""Regularizers that compare passes, which are equal without another one."""
SLOW = {"volo-cifar", "detr", "qpic", "metro", "transformer-wmt-en-de"}
"""Models in `SMALL` whose trials take seconds."""
UNBUILT = {
    "transformers-encoder": "takes architecture and weights from a user's folder; `bert-tiny` is its family's",
    "image-encoder": "takes architecture and weights from a user's folder; `vit-digits` is its family's",
}
"""Models without a case, with the reason."""


def items() -> list[str]:
    """Return the engine and all registered tasks, models and regularizers that DropBench defines."""

    def named(kind: str, registry: Registry[Any]) -> list[str]:
        return [f"{kind} {name}" for name in registry if registry.entry(name).plugin is None]

    names = ["engine", *named("task", TASKS), *named("model", MODELS), *named("regularizer", REGULARIZERS)]
    parts = {f"regularizer {name}" for name in REGULARIZERS if "parts" in REGULARIZERS.entry(name).facts}
    left_out = {"regularizer none", *(f"model {name}" for name in UNBUILT), *parts}  # parts have cases of their own
    return [item for item in names if item not in left_out]


def representative(model: str) -> str:
    """Return the model of the same builder that is trained."""
    target = MODELS.entry(model).target
    return next(name for name in SMALL if MODELS.entry(name).target == target)


SEEDS = {"masksub": 2}
"""Seeds of items whose numbers would depend on the processor: a gradient that is only rounding decides Adam's step."""


def request(item: str) -> TrialRequest:
    """Return the trial that is trained for an item."""
    kind, _, name = item.partition(" ")
    if kind == "task":
        model = next(model for model in SMALL if name in MODELS.entry(model).facts["tasks"])
        return _request(model, name)
    if kind == "model":
        return _request(representative(name))
    if kind == "regularizer":
        joined = f"{name}+dropout" if name in WITH_DROPOUT else name
        trial = _request(MODEL_OF.get(name, "vit-digits"), regularizer=joined, lr=0.01)
        return trial.model_copy(update={"seed": SEEDS.get(name, trial.seed)})
    return _request("vit-digits", accumulate=2, ema=0.9)


def _request(model: str, task: str = "", regularizer: str = "none", **overrides: Any) -> TrialRequest:
    data, small = SMALL[model]
    task = task or MODELS.entry(model).facts["tasks"][0]
    more = LANGUAGE if task == "language-modelling" else {}
    return TrialRequest(
        task=task,
        data=DATA.get(task, data),
        model=model,
        regularizer=regularizer,
        overrides={**LENGTH, **small, **more, **overrides},
        seed=1,
    )
