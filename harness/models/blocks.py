"""The sites besides attention of any supported model: its layers, their outputs and weights, embeddings and tokens.

They follow from the model's attention modules. A layer is the innermost item of a stack that contains attention and
weight matrices besides it; a model without a stack may be a layer itself. The last linear map of a layer is the output
of its feed-forward network; a mixture of experts has none and is a feed-forward network as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from torch import nn

from dropbench.harness.models.adapter import Patch, attention_width, parents_of
from dropbench.harness.models.forward_patch import ForwardPatch, WeightPatch, bases_of
from dropbench.harness.regularizers.base import AttentionKind, Site, SiteKind

NEED_ALL_TOKENS = "ConVit|DPT|Sam3"
"""Networks of images, by name, that need the tokens of the whole image."""
STACKS = (nn.ModuleList, nn.Sequential)
PROJECTED = ("q", "k", "v", "query", "key", "value", "qkv")
"""The beginnings of names of linear maps before attention."""
STACKED = ("qkv", "Wqkv", "qkv_proj", "c_attn")
"""The names of linear maps whose rows are those of the queries, then of the keys, then of the values."""
INPUTS = (
    "norm_pre", "pos_drop", "embeddings", "dropout_module", "drop", "dropout", "layernorm_embedding", "embed_tokens"
)  # fmt: skip
"""The names of modules whose output enters the first layer, the last before it first."""


def block_patches(model: nn.Module, patches: Sequence[Patch]) -> Iterator[Patch]:
    """Yield the patches of all sites that follow from the attention patches of a model.

    Sites that the model itself has are not repeated.
    """
    kinds = set(get_args(AttentionKind)) - {"token", "class"}
    attention = [patch for patch in patches if patch.site.kind in kinds]
    names = {id(module): path for path, module in model.named_modules()}
    present = {(patch.site.kind, _layer_path(model, names[id(patch.module)])) for patch in patches}
    blocks: dict[str, list[Patch]] = {}  # the attention patches of each layer, by its path
    paths = [names[id(patch.module)] for patch in attention]
    for patch, own in zip(attention, paths, strict=True):
        path = _block_path(model, own, paths)
        if path is not None:
            blocks.setdefault(path, []).append(patch)
    stacks = [_outermost(model, path) for path in blocks]
    for number, ((path, inside), stack) in enumerate(zip(blocks.items(), stacks, strict=True)):
        layer, depth = stacks[:number].count(stack), stacks.count(stack)
        yield from _patches_of(model, path, inside, names, layer, depth, present)
    yield from _inputs(model, [path for path in blocks if path], attention, present)


def _patches_of(
    model: nn.Module, block: str, attention: Sequence[Patch], names: dict[int, str], layer: int, depth: int,
    present: set[Any],
) -> Iterator[Patch]:  # fmt: skip
    first = attention[0].site
    module = model.get_submodule(block)

    def site(name: str, kind: SiteKind, width: int | None = None, **options: Any) -> Site:
        prefix = first.num_prefix_tokens
        return Site(name, kind, layer, depth, first.heads, first.grid, prefix, width=width, **options)

    axis = _batch_axis(model, block, names[id(attention[0].module)])
    yield ForwardPatch(module, site(block, "layer", batch_axis=axis))
    inside = [names[id(patch.module)] for patch in attention]
    maps = _outermost_maps(block, module)
    outside = {path: child for path, child in maps.items() if not _below(path, inside)}
    for patch in attention:
        projection = _projection(names[id(patch.module)], patch.module, list(outside.items()))
        if projection is not None and ("attention-output", block) not in present:
            path, owner, width = projection
            outside.pop(path, None)
            output = site(path, "attention-output", width, batch_axis=0 if _batch_first(patch.module) else 1)
            windows = "its windows are not samples" if _has_windows(patch.module) else None
            yield ForwardPatch(owner, output, refusal=windows)
    following = list(outside.items()) or _with_weights(block, module, inside)
    if ("feed-forward", block) not in present and following:
        path, child = following[-1]
        yield ForwardPatch(child, site(path, "feed-forward", _out_features(child), batch_axis=axis))
    for path, child in maps.items():
        options = {
            "input_axis": 1 if isinstance(child, nn.Linear) else 0,
            "projections": _projections(path, child, inside),
        }
        matrix = site(path, "weight", **options)
        yield WeightPatch(child, matrix, refusal=_weight_refusal(child, path, "weight"))
    for path, child in module.named_modules(prefix=block):
        if isinstance(child, nn.MultiheadAttention) and child.in_proj_weight is not None:
            matrix = site(path, "weight", parameter="in_proj_weight", projections=3)
            yield WeightPatch(child, matrix, refusal=_weight_refusal(child, path, "in_proj_weight"))


def _projections(path: str, module: Any, attention: Sequence[str]) -> int:
    """Return `Site.projections` of a linear map of a layer, by its name and shape."""
    name, shape = path.rpartition(".")[2], getattr(getattr(module, "weight", None), "shape", ())
    if not _below(path, attention):
        return 0
    if name in STACKED:
        return 3 if len(shape) == 2 and max(shape) == 3 * min(shape) else 0
    return int(name.split("_")[0] in PROJECTED)


def _weight_refusal(module: nn.Module, path: str, name: str) -> str | None:
    """Refuse a matrix that an adapter adds to, that is sharded, or that is no parameter, but computed from others."""
    if path.endswith(".base_layer") or any(bases_of(module)):
        return "an adapter adds to its weight, which is frozen"
    if hasattr(module._parameters.get(name), "device_mesh"):  # a DTensor, whose import takes a second
        return f"its {name} is sharded: call `regularize` before FSDP"
    return None if name in module._parameters else f"its {name} is computed, as by weight_norm or pruning"


def _inputs(model: nn.Module, blocks: list[str], attention: Sequence[Patch], present: set[Any]) -> Iterator[Patch]:
    """Yield the patches of what enters the first layer of each network: tokens of images, else embeddings.

    Tokens may be left out only if all layers attend to the whole sequence, as in a ViT.
    """
    networks: dict[str, list[str]] = {}
    for path in blocks:
        networks.setdefault(_network_of(model, path), []).append(path)
    for network, own in networks.items():
        inside = [patch.site for patch in attention if _below(patch.site.name, own)]
        first = inside[0]
        windows = any(_has_windows(model.get_submodule(site.name)) for site in inside)
        if first.grid is not None and (windows or any(site.kind != "encoder-self" for site in inside)):
            continue
        entry = _entry(model, network, blocks)
        kind: SiteKind = "tokens" if first.grid is not None else "embedding"
        if entry is None or (kind, "") in present:
            continue
        path, child = entry
        owner = model.get_submodule(network)
        fixed = getattr(owner, "rope", None) is not None or re.match(NEED_ALL_TOKENS, type(owner).__name__)
        refusal = "its layers use every position: none may be left out" if kind == "tokens" and fixed else None
        yield ForwardPatch(
            child, Site(path, kind, 0, 1, first.heads, first.grid, first.num_prefix_tokens), refusal=refusal
        )


def _entry(model: nn.Module, network: str, blocks: Sequence[str]) -> tuple[str, nn.Module] | None:
    """Return the path and module whose output enters the first layer, in a network or the modules around it.

    T5's dropout also follows the last layer, so that its embeddings themselves are the entry.
    """
    for owner_path in reversed([*parents_of(network), network]) if network else [""]:
        owner = model.get_submodule(owner_path)
        for name in INPUTS:
            path, child = f"{owner_path}.{name}".lstrip("."), getattr(owner, name, None)
            repeated = name == "dropout" and hasattr(owner, "final_layer_norm")
            if isinstance(child, nn.Module) and not repeated and not any(_below(block, [path]) for block in blocks):
                return path, child
    return None


def _with_weights(path: str, layer: nn.Module, attention: Sequence[str]) -> list[tuple[str, nn.Module]]:
    """Return the modules directly below a layer that have weight matrices and no attention."""
    named = [(f"{path}.{name}".lstrip("."), child) for name, child in layer.named_children()]
    with_weights = [(name, child) for name, child in named if any(each.dim() > 1 for each in child.parameters())]
    return [(name, child) for name, child in with_weights if not any(_below(inner, [name]) for inner in attention)]


def _has_windows(module: nn.Module) -> bool:
    """Return whether attention is computed in windows, as in Swin, which folds them into the batch."""
    return any(hasattr(child, "window_size") for child in module.modules())


def _outermost_maps(block: str, module: nn.Module) -> dict[str, nn.Module]:
    """Return the linear maps of a layer by path; of one that an adapter such as LoRA wraps, the wrapper alone."""
    maps: dict[str, nn.Module] = {}
    adapters: list[str] = []
    for path, child in module.named_modules(prefix=block):
        if any(bases_of(child)):
            adapters.append(path)
        own = any(path.startswith(f"{each}.") and not _below(path, [f"{each}.base_layer"]) for each in adapters)
        if (_is_linear(child) or wraps_linear(child)) and not own and not _below(path, list(maps)):
            maps[path] = child
    return maps


def wraps_linear(module: nn.Module) -> bool:
    """Return whether a module adds to the output of a linear map, as those of peft do."""
    return any(map(_is_linear, bases_of(module)))


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


def _batch_axis(model: nn.Module, layer: str, attention: str) -> int:
    """Return the axis of the samples in a layer's hidden states, as its outermost module with that option says."""
    for path in [*parents_of(attention), attention]:
        if _below(path, [layer]) and hasattr(model.get_submodule(path), "batch_first"):
            return 0 if model.get_submodule(path).batch_first else 1
    return 0 if _batch_first(model.get_submodule(attention)) else 1


def _block_path(model: nn.Module, path: str, attention: Sequence[str]) -> str | None:
    """Return the path of the layer that contains an attention module, or None."""
    for parent in reversed(parents_of(path)[1:]):
        stack = parent.rpartition(".")[0]
        module = model.get_submodule(parent)
        if isinstance(module, STACKS) or not isinstance(model.get_submodule(stack), STACKS):
            continue
        matrices = [f"{parent}.{name}" for name, parameter in module.named_parameters() if parameter.dim() > 1]
        if any(not _below(name, attention) for name in matrices):
            return parent
    return "" if _is_layer(model, attention) else None


def _is_layer(model: nn.Module, attention: Sequence[str]) -> bool:
    """Return whether a model is one layer: outside stacks, its last linear map returns what attention takes."""
    stacks = [path for path, module in model.named_modules() if isinstance(module, STACKS)]
    if "" in attention or any(_below(path, stacks) for path in attention):
        return False
    outside = [module for path, module in model.named_modules() if not _below(path, attention)]
    maps = [module for path, module in _outermost_maps("", model).items() if not _below(path, attention)]
    widths = {attention_width(model.get_submodule(path)) for path in attention} - {None}
    embeds = any(isinstance(module, nn.Embedding) for module in outside)
    return bool(maps) and _out_features(maps[-1]) in widths and not embeds


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
    own = [(name, child) for name, child in module.named_children() if _is_linear(child) or wraps_linear(child)]
    if own and own[-1][0].split("_")[0] not in PROJECTED:
        return path, module, _out_features(own[-1][1])
    following = [item for item in outside if item[0].rpartition(".")[0].startswith(path.rpartition(".")[0])]
    if following:
        return following[0][0], following[0][1], _out_features(following[0][1])
    return None
