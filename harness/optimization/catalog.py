"""The registry of optimizers, and what libraries know of schedules, layers and adapters, imported on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from dropbench.harness.registry import Registry

if TYPE_CHECKING:
    from torch.optim import Optimizer

OptimizerBuilder = Callable[[list[dict[str, Any]], Any], "Optimizer"]
"""(groups of parameters, recipe) -> the optimizer. Each group has `params`, its `weight_decay`, and the `share` by
which the trainer multiplies the learning rate."""

OPTIMIZERS: Registry[OptimizerBuilder] = Registry("optimizer", "a function of groups of parameters and a recipe")
"""The fact `reads` names the recipe keys that an optimizer reads besides `lr` and `weight_decay`; default: all."""

BETAS: tuple[str, ...] = ("beta1", "beta2")
MOMENTUM: tuple[str, ...] = ("momentum",)
for _name, _reads, _help in (
    ("adamw", BETAS, "torch's AdamW"),
    ("adam", BETAS, "torch's Adam"),
    ("sgd", MOMENTUM, "torch's SGD with momentum"),
):
    OPTIMIZERS.add(_name, f"dropbench.harness.optimization.optimizers:{_name}", help=_help, reads=_reads)

TIMM_OPTIMIZERS: dict[tuple[str, ...], str] = {
    BETAS: """
        adabelief adafactor adamax adamc adamp adopt adoptc adoptw cadafactor cadamc cadamp cadamw cadopt cadoptc
        cadoptw clamb clambw claprop clion clionc cmars cnadamc cnadamw lamb lambc lambcd lambcw lambw laprop lapropc
        lion lionc mars nadam nadamc nadamw novograd novogradc novogradw radabelief radam radamw
    """,
    MOMENTUM: """
        adafactorbv adafactorbvc cadafactorbv cadafactorbvc crmsproptf csgdc csgdp csgdw larc lars madgrad
        madgradw nesterov nesterovw nlarc nlars rmsprop rmsproptf rmsproptfc rmsproptfw sgdc sgdp sgdw
    """,
    (*BETAS, *MOMENTUM): "adamuon muon nadamuon nmuon",
    (): "adadelta adagrad adan adanw cadan cadanw",
}
"""timm's optimizers by the keys that they read. Those of other packages, second-order ones and older forms are left
out, and its `momentum`, which is `sgd` here."""
for _reads, _names in TIMM_OPTIMIZERS.items():
    for _name in _names.split():
        OPTIMIZERS.add(
            _name, "dropbench.adapters.libraries.timm_models:build_optimizer", help=f"timm's {_name}", reads=_reads
        )

TransformersSchedule = Literal[
    "constant_with_warmup", "cosine_with_restarts", "cosine_with_min_lr", "cosine_warmup_with_min_lr", "inverse_sqrt",
    "polynomial", "warmup_stable_decay",
]  # fmt: skip
"""transformers' names of schedules that are functions of the step, besides those that DropBench has."""

TRANSFORMERS_SCHEDULES = "dropbench.adapters.libraries.fine_tuning:schedule"
"""(name, peak rate, warm-up steps, steps, options) -> a function of the step, from 0, that returns the learning
rate as a share of its peak."""
TIMM_LAYERS = "dropbench.adapters.libraries.timm_models:parameter_layers"
"""(model with a `group_matcher`) -> the layer of each parameter by name, from 0."""
LORA = "dropbench.adapters.libraries.fine_tuning:add_lora"
"""(model, options) -> None: adds LoRA to a model and freezes all other parameters."""
