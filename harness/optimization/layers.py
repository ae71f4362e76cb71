"""The layers of a model's parameters and its head, for learning rates that differ by layer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from torch import nn

from dropbench.harness.errors import InputError
from dropbench.harness.models.adapter import parents_of
from dropbench.harness.models.regularize import find_patches
from dropbench.harness.optimization.catalog import TIMM_LAYERS
from dropbench.harness.registry import load_for

STACKS = (nn.ModuleList, nn.Sequential)
HEADS = ("head", "heads", "classifier", "fc", "linear")
"""The names of children of a model that are its head; `linear` is that of `text_encoders.LinearNgrams`."""


def head_parameters(model: nn.Module) -> frozenset[str]:
    """Return the names of the parameters of a model's head; none if it has no head.

    It is what timm calls the classifier, what a model of transformers has besides its base model, or else the children
    of the model named as in `HEADS`.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def inside(*modules: nn.Module) -> frozenset[str]:
        return frozenset(names[id(each)] for module in modules for each in module.parameters() if id(each) in names)

    for module in model.modules():
        any_module = cast(Any, module)
        if callable(getattr(module, "get_classifier", None)):
            classifier = any_module.get_classifier()
            parts = classifier if isinstance(classifier, tuple | list) else (classifier,)
            auxiliary = getattr(module, "aux_head", None)  # of VOLO's tokens
            if head := inside(*(part for part in (*parts, auxiliary) if isinstance(part, nn.Module))):
                return head
        prefix = getattr(module, "base_model_prefix", None)
        if isinstance(prefix, str) and isinstance(base := getattr(module, prefix, None), nn.Module):
            return inside(module) - inside(base)
    return inside(*(child for name, child in model.named_children() if name in HEADS))


def parameter_layers(model: nn.Module) -> dict[str, int]:
    """Return the layer of each parameter by name: 0 before the stack of layers, then 1 to L, and L + 1 after it.

    A model of timm has timm's own layers (`group_matcher`). In all others, the stack is that of the attention, and what
    precedes it are the modules before it and embeddings (Clark et al. 2020, Appendix B; Bao et al. 2022).

    Raises:
        InputError: the model has no stack of layers, or several.
    """
    if hasattr(model, "group_matcher"):
        of_timm: Mapping[str, int] = load_for("layer_decay", TIMM_LAYERS)(model)
        last = max(of_timm.values())
        return {name: of_timm.get(name, last) for name, _ in model.named_parameters()}
    blocks = list(dict.fromkeys(_blocks(model)))
    stacks = list(dict.fromkeys(stack for stack, _ in blocks))
    if len(stacks) != 1:
        listed = ", ".join(stacks) or "none"
        raise InputError(f"layer_decay: expected a model with one stack of layers, not {len(stacks)} ({listed})")
    numbers = {block: number for number, (_, block) in enumerate(blocks, start=1)}
    head = head_parameters(model)
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, nn.Embedding)}
    layers, layer = {}, 0
    for name, parameter in model.named_parameters():
        number = next((numbers[parent] for parent in parents_of(name) if parent in numbers), None)
        if number is not None:
            layer = number
        elif layer and not name.startswith(f"{stacks[0]}."):
            layer = len(blocks) + 1
        before = name not in head and id(parameter) in embeddings
        layers[name] = len(blocks) + 1 if name in head else 0 if before else layer
    return layers


def _blocks(model: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the path of the outermost stack and that of the layer, the innermost item of a stack, for each attention.

    Attention outside stacks, and the stacks in it, count for nothing.
    """
    paths = {id(module): path for path, module in model.named_modules()}
    for patch in find_patches(model):
        if patch.slot != "site":
            continue
        parents = parents_of(paths[id(patch.module)])
        stacks = [parent for parent in parents if isinstance(model.get_submodule(parent), STACKS)]
        items = [parent for parent in parents if parent.rpartition(".")[0] in stacks and parent]
        if items:
            yield stacks[0], items[-1]
