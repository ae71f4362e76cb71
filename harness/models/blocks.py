"""The sites besides attention of any supported model: its layers, their outputs and weights, embeddings and tokens.

They follow from the model's attention modules. A layer is the innermost item of a stack that contains attention and a
linear map besides it. The last linear map of a layer is the output of its feed-forward network.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from torch import nn

from harness.models.adapter import Patch, parents_of
from harness.models.forward_patch import ForwardPatch, WeightPatch
from harness.regularizers.base import AttentionKind, Site, SiteKind

STACKS = (nn.ModuleList, nn.Sequential)
PROJECTED = ("q", "k", "v", "query", "key", "value", "qkv")
"""The beginnings of names of linear maps before attention."""


@dataclass
class Block:
    """A layer of a model: its path, and its attention patches in order."""

    path: str
    attention: list[Patch] = field(default_factory=list)


def block_patches(model: nn.Module, patches: Sequence[Patch]) -> Iterator[Patch]:
    """Yield the patches of all sites that follow from the attention patches of a model.

    Sites that the model itself has are not repeated.
    """
    kinds = set(get_args(AttentionKind)) - {"token", "class"}
    attention = [patch for patch in patches if patch.site.kind in kinds]
    names = {id(module): path for path, module in model.named_modules()}
    present = {(patch.site.kind, _layer_path(model, names[id(patch.module)])) for patch in patches}
    blocks: dict[str, Block] = {}
    for patch in attention:
        path = _block_path(model, names[id(patch.module)], [names[id(other.module)] for other in attention])
        if path is not None:
            blocks.setdefault(path, Block(path)).attention.append(patch)
    stacks = [_outermost(model, path) for path in blocks]
    for number, block in enumerate(blocks.values()):
        stack = stacks[number]
        layer, depth = stacks[:number].count(stack), stacks.count(stack)
        yield from _patches_of(model, block, names, layer, depth, present)
    yield from _inputs(model, list(blocks), attention, present)


def _patches_of(
    model: nn.Module, block: Block, names: dict[int, str], layer: int, depth: int, present: set[Any]
) -> Iterator[Patch]:
    first = block.attention[0].site
    module = model.get_submodule(block.path)

    def site(name: str, kind: SiteKind, width: int | None = None, parameter: str = "weight") -> Site:
        return Site(
            name, kind, layer, depth, first.heads, first.grid, first.num_prefix_tokens, width=width,
            batch_axis=batch_axis, parameter=parameter,
        )  # fmt: skip

    batch_axis = 0 if _batch_first(block.attention[0].module) else 1
    yield ForwardPatch(module, site(block.path, "layer"))
    linear = {f"{block.path}.{path}": child for path, child in module.named_modules() if _is_linear(child)}
    inside = [names[id(patch.module)] for patch in block.attention]
    outside = {path: child for path, child in linear.items() if not _below(path, inside)}
    for patch in block.attention:
        projection = _projection(names[id(patch.module)], patch.module, list(outside.items()))
        if projection is not None and ("attention-output", block.path) not in present:
            path, owner, width = projection
            outside.pop(path, None)
            yield ForwardPatch(owner, site(path, "attention-output", width))
    if outside and ("feed-forward", block.path) not in present:
        path, child = list(outside.items())[-1]
        yield ForwardPatch(child, site(path, "feed-forward", _out_features(child)))
    for path, child in linear.items():
        yield WeightPatch(child, site(path, "weight"))
    for path, child in module.named_modules():
        if isinstance(child, nn.MultiheadAttention) and child.in_proj_weight is not None:
            yield WeightPatch(child, site(f"{block.path}.{path}", "weight", parameter="in_proj_weight"))


def _inputs(model: nn.Module, blocks: list[str], attention: Sequence[Patch], present: set[Any]) -> Iterator[Patch]:
    """Yield the patches of what enters the first layer: in a network of images, its tokens; else its embeddings."""
    for owner_path, owner in model.named_modules():
        stack = [path for path in blocks if _network_of(model, path) == owner_path]
        if not stack:
            continue
        first = next(patch.site for patch in attention if patch.site.name.startswith(stack[0] + "."))
        for name in ("norm_pre", "pos_drop", "embeddings", "dropout_module", "dropout"):
            child = getattr(owner, name, None)
            if not isinstance(child, nn.Module):
                continue
            path = f"{owner_path}.{name}".lstrip(".")
            kind: SiteKind = "tokens" if first.grid is not None else "embedding"
            if (kind, "") not in present and not any(site.startswith(path + ".") for site in stack):
                yield ForwardPatch(child, Site(path, kind, 0, 1, first.heads, first.grid, first.num_prefix_tokens))
                break


def _is_linear(module: nn.Module) -> bool:
    """Return whether a module is a linear map: torch's, or the transposed one of GPT-2 in transformers."""
    return isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"


def _out_features(module: Any) -> int | None:
    features = getattr(module, "out_features", getattr(module, "nf", None))
    return None if features is None else int(features)


def _below(path: str, parents: Sequence[str]) -> bool:
    return any(path == parent or path.startswith(parent + ".") for parent in parents)


def _batch_first(module: Any) -> bool:
    """Return whether samples are the first axis: not in fairseq, nor by default in torch."""
    own = type(module).__mro__
    if any(cls.__module__.startswith("fairseq.") for cls in own):
        return False
    return not isinstance(module, nn.MultiheadAttention) or bool(module.batch_first)


def _block_path(model: nn.Module, path: str, attention: Sequence[str]) -> str | None:
    """Return the path of the layer that contains an attention module, or None."""
    for parent in reversed(parents_of(path)[1:]):
        stack = parent.rpartition(".")[0]
        module = model.get_submodule(parent)
        if isinstance(module, STACKS) or not isinstance(model.get_submodule(stack), STACKS):
            continue
        linear = [f"{parent}.{name}" for name, child in module.named_modules() if _is_linear(child)]
        if any(not _below(name, attention) for name in linear):
            return parent
    return None


def _layer_path(model: nn.Module, path: str) -> str:
    """Return the item of a stack that contains a module, as a key for what the model itself has; "" for none."""
    for parent in reversed([*parents_of(path), path]):
        if parent and isinstance(model.get_submodule(parent.rpartition(".")[0]), nn.ModuleList):
            return parent
    return ""


def _outermost(model: nn.Module, path: str) -> str:
    """Return the outermost stack above a layer."""
    return next((p for p in parents_of(path) if isinstance(model.get_submodule(p), STACKS)), "")


def _network_of(model: nn.Module, path: str) -> str:
    """Return the module that holds the outermost stack of a layer."""
    return _outermost(model, path).rpartition(".")[0]


def _projection(
    path: str, module: nn.Module, outside: Sequence[tuple[str, nn.Module]]
) -> tuple[str, nn.Module, int | None] | None:
    """Return where the projected output of an attention module is: path, module and width; None: unknown.

    It is the output of the module itself if its last linear map projects it, else that of the next linear map.
    """
    own = [(name, child) for name, child in module.named_children() if _is_linear(child)]
    if own and own[-1][0].split("_")[0] not in PROJECTED:
        return path, module, _out_features(own[-1][1])
    following = [item for item in outside if item[0].rpartition(".")[0].startswith(path.rpartition(".")[0])]
    if following:
        return following[0][0], following[0][1], _out_features(following[0][1])
    return None
