"""The hyper-parameters of a trial. A task adds its own fields in a subclass."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from dropbench.harness.optimization.catalog import BETAS, MOMENTUM, OPTIMIZERS, TransformersSchedule
from dropbench.harness.optimization.options import ClassWeights, Lora, Names, listed, split_key
from dropbench.harness.regularizers.base import SiteKind
from dropbench.harness.regularizers.spec import Scalar
from dropbench.harness.trials.trial import Seed
from dropbench.harness.validation import FiniteModel, validated

MINI = "mini"
MODEL_PREFIX = "model."
"""The prefix of a model's own options among overrides."""
NESTED = ("model", "lora", "lr_options")
"""Recipe keys with keys of their own: ``lora.r``."""
OF_CLASSES = ("label_smoothing", "class_weights")
"""Recipe keys of a cross entropy of classes."""
FILLED_IN = ("_fingerprint", "_digest")
"""The suffixes of keys that are filled in from the user's files."""


class Recipe(FiniteModel):
    """Hyper-parameters. All of them change the result, so they are part of a trial's identity."""

    epochs: int | None = Field(default=None, ge=1, description="length of the training, in epochs")
    steps: int | None = Field(default=None, ge=1, description="length of the training, instead of epochs, in steps")
    batch_size: int = Field(default=64, ge=1, description="size of a batch over all devices, in samples")
    accumulate: int = Field(default=1, ge=1, description="micro-batches that a batch is split into")
    optimizer: str = Field(default="adamw", description="adamw, adam or sgd of torch, one of timm, or a plug-in's")
    lr: float = Field(default=1e-3, gt=0, description="peak learning rate")
    min_lr: float = Field(default=0.0, ge=0, description="learning rate at the end of the schedule")
    beta1: float = Field(default=0.9, ge=0, lt=1, description="decay of Adam's mean of gradients")
    beta2: float = Field(default=0.999, ge=0, lt=1, description="decay of Adam's mean of squared gradients")
    momentum: float = Field(default=0.9, ge=0, lt=1, description="momentum of SGD")
    weight_decay: float = Field(
        default=0.0, ge=0, description="weight decay of matrices, not of positions; see decay_all"
    )
    backbone_lr: float | None = Field(default=None, gt=0, description="backbone's learning rate, as a share of lr")
    head_lr: float | None = Field(default=None, gt=0, description="peak learning rate of the head; default: lr")
    layer_decay: float | None = Field(
        default=None, gt=0, le=1, description="factor of the learning rate per layer below the head (ELECTRA, BEiT)"
    )
    freeze: Names | None = Field(
        default=None, description="parts of names of parameters that are not trained, as embeddings,layer.[0-3]"
    )
    lora: Annotated[Lora | None, "keys of its own, such as lora.r=8"] = Field(
        default=None, description="train low-rank adapters and the head alone (peft): lora.r=8"
    )
    decay_all: bool | None = Field(default=None, description="weight decay on biases, norms and positions, too")
    lr_schedule: (
        Literal["cosine", "timm-cosine", "linear", "constant", "inverse-sqrt", "step"] | TransformersSchedule
    ) = Field(
        default="cosine",
        description="of the learning rate; timm-cosine: decays from step 0, hidden by the warm-up, and changes per "
        "epoch; with _: a schedule of transformers, whose warm-up begins at 0",
    )
    lr_options: dict[str, Scalar] | None = Field(
        default=None, description="arguments of a schedule of transformers, as power or num_cycles"
    )
    lr_drop: float | None = Field(
        default=None, gt=0, description="drop of lr_schedule=step, in steps, or a share of all steps if at most 1"
    )
    lr_decay_steps: float | None = Field(
        default=None, gt=0, description="end of cosines and linear, in steps, or a share of all steps if at most 1"
    )
    warmup: float = Field(default=0.0, ge=0, description="linear warm-up, in steps, or a share of all steps if below 1")
    warmup_lr: float | None = Field(default=None, ge=0, description="learning rate of step 0; default: from 0")
    clip_norm: float | None = Field(default=None, ge=0, description="largest gradient norm; 0: no limit")
    label_smoothing: float = Field(default=0.0, ge=0, lt=1, description="share of the target that all classes share")
    class_weights: ClassWeights = Field(
        default=None,
        description="weights of the classes in the loss: balanced (inverse to their number in train), numbers in the "
        "order of the classes, or by class as yes:2,no:1",
    )
    amp: Literal["no", "bf16", "fp16"] = Field(default="no", description="format of autocast; no: float32")
    checkpoint_activations: Literal[True] | None = Field(
        default=None, description="layers keep their inputs alone, and run again in the backward pass: less memory"
    )
    channels_last: Literal[True] | None = Field(default=None, description="convolutions with channels as last axis")
    ema: float | None = Field(default=None, gt=0, lt=1, description="decay of the averaged weights for evaluation")
    evaluate_every: int | None = Field(
        default=None, ge=1, description="time between evaluations, in steps; default: an epoch"
    )
    patience: int | None = Field(
        default=None, ge=1, description="time without improvement before a stop, in evaluations"
    )
    average_last: int | None = Field(
        default=None, ge=1, description="average the weights of this many last evaluations, instead of the best on dev"
    )
    kinds: tuple[SiteKind, ...] | None = Field(
        default=None, description="kinds of sites to regularize, as decoder-self,cross; default: all but class, token"
    )
    finetune_epochs: int = Field(
        default=50, ge=1, description="length of the second phase of align=finetune (DropKey 4.1), in epochs"
    )
    finetune_lr: float = Field(default=1e-5, gt=0, description="constant learning rate of that phase")
    seed_init: Seed | None = Field(default=None, description="seed of the initial weights; default: the trial's")
    seed_order: Seed | None = Field(
        default=None, description="seed of the order and augmentation of data; default: the trial's"
    )
    seed_masks: Seed | None = Field(
        default=None, description="seed of the draws of model and regularizer; default: the trial's"
    )
    seed_splits: Seed | Literal["trial"] | None = Field(
        default=None, description="seed of splits that the data do not have, or 'trial': the trial's; default: 2019"
    )
    model: dict[str, Scalar] = Field(default_factory=dict, description="the model's own options")

    @field_validator("kinds", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return listed(value)

    @field_validator("optimizer")
    @classmethod
    def _registered(cls, name: str) -> str:
        return OPTIMIZERS.entry(name).name

    @field_validator("kinds")
    @classmethod
    def _in_order(cls, kinds: tuple[SiteKind, ...] | None) -> tuple[SiteKind, ...] | None:
        return kinds and tuple(kind for kind in get_args(SiteKind) if kind in kinds)

    @field_validator("model")
    @classmethod
    def _bounded(cls, options: dict[str, Scalar]) -> dict[str, Scalar]:
        # Before a model is built: a hundred million layers would take hours, and larger widths overflow.
        for name, value in options.items():
            limit = 1000 if name.endswith(("depth", "layers")) else 10**6
            numbers = map(float, re.findall(r"\d+", value)) if isinstance(value, str) else [value]
            if any(number > limit for number in numbers):
                raise ValueError(f"{name}={value!s:.40}: expected at most {limit}")
        return options

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            raise ValueError("expected either epochs or steps")
        if (self.lr_drop is None) != (self.lr_schedule != "step"):
            raise ValueError("expected lr_drop with lr_schedule=step, and only there")
        if self.batch_size % self.accumulate:
            raise ValueError(f"accumulate={self.accumulate} does not divide batch_size={self.batch_size}")
        return self

    def unread(self, model: Mapping[str, Any]) -> dict[str, str]:
        """Return the keys that no trial with this recipe reads, or a user may not set, each with the reason.

        A subclass adds its own. An override of such a key is refused: it would train the same weights as another trial.

        Args:
            model: the registered facts of the model, such as `tokenizer`.
        """
        filled_in = (key for key in type(self).model_fields if key.endswith(FILLED_IN))
        every = BETAS + MOMENTUM
        optimizer = {*every} - {*OPTIMIZERS.entry(self.optimizer).facts.get("reads", every)}
        if self.lr_schedule in get_args(TransformersSchedule):
            schedule: tuple[str, ...] = ("min_lr", "lr_decay_steps", "warmup_lr")
        elif self.lr_schedule in ("cosine", "timm-cosine", "linear"):
            schedule = ("lr_options",)
        else:
            schedule = ("min_lr", "lr_decay_steps", "lr_options")
        return {
            **dict.fromkeys(filled_in, "it is filled in"),
            **dict.fromkeys(optimizer, f"not read with optimizer={self.optimizer}"),
            **dict.fromkeys(schedule, f"not read with lr_schedule={self.lr_schedule}"),
            **({} if self.warmup else {"warmup_lr": "not read without warmup"}),
        }

    def refused_by(self, model: Mapping[str, Any]) -> set[str]:
        """Return the keys that a model does not read whatever the other keys are; `model` as for `unread`."""
        return {key for key, reason in self.unread(model).items() if self.unread({}).get(key) != reason}


def default_preset(presets: Iterable[str]) -> str:
    """Return the preset of commands that name none: mini, or else the first."""
    names = list(presets)
    return MINI if MINI in names or not names else names[0]


def override(values: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Update recipe keys by a later layer: one that sets `steps` removes `epochs` of earlier ones, and vice versa."""
    for given, other in (("steps", "epochs"), ("epochs", "steps")):
        if given in layer and other not in layer:
            values.pop(other, None)
    values.update(layer)


def complete_recipe(kind: type[Recipe], layers: Sequence[Mapping[str, Any]]) -> Recipe:
    """Merge mappings into a recipe; later layers take precedence.

    The keys of `NESTED` are merged key by key, and ``model.x`` is the key x of `model`. See `override` for `steps` and
    `epochs`.

    Raises:
        InputError: a key is unknown, or a value is invalid.
    """
    values: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {"model": {}}
    for layer in layers:
        own: dict[str, Any] = {}
        for key, value in layer.items():
            holder, inner = split_key(key, NESTED)
            if key in NESTED and isinstance(value, Mapping):
                nested.setdefault(key, {}).update(value)
            elif holder:
                nested.setdefault(holder, {})[inner] = value
            else:
                own[key] = value
        override(values, own)
    return validated(kind, {**nested, **values}, "recipe", "recipe key")


@dataclass(frozen=True)
class ResolvedRecipe:
    """A recipe resolved without reading any data.

    Attributes:
        recipe: as in `Trial.recipe`.
        notes: differences between ``paper`` and its source for this model and data, in short sentences.
    """

    recipe: Mapping[str, Any]
    notes: tuple[str, ...] = ()
