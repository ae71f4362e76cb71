"""transformers models on its AttentionInterface: encoders, decoders, both, for text and for images."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from adapters.transformers_attention import (
    PREFIX,
    SUPPORTED,
    InterfaceSite,
    asks_for_name,
    follows,
    on_interface,
    original_function,
)
from harness.adapter import Adapter, Patch, place, site_of, stack_of
from harness.site import Site, SiteKind


@dataclass(frozen=True)
class InterfacePatch(Patch):
    """An attention module of a transformers model.

    Its class stays. The model's configs, which name the function that computes attention, are replaced by copies: a
    config may belong to other models too. They keep their new name until no module of the model has a site.
    """

    owner: PreTrainedModel | None = None

    def attach(self) -> None:
        """Bind the site, and lead the model's attention to `adapters.transformers_attention`."""
        self.module.site = self.site  # type: ignore[assignment]
        if _implementation(self.module.config).startswith(PREFIX):
            return
        owner = cast(PreTrainedModel, self.owner)
        memo: dict[int, Any] = {}
        for module in owner.modules():
            for key, value in list(vars(module).items()):
                if isinstance(value, PreTrainedConfig):
                    vars(module)[key] = copy.deepcopy(value, memo)
        for config in _configs(owner):
            if _implementation(config) in SUPPORTED:
                _set_implementation(config, PREFIX + _implementation(config))

    def detach(self) -> None:
        """Take the site away; the last one gives the model its own attention function back."""
        if isinstance(site_of(self.module), InterfaceSite):
            del self.module.site
        owner = cast(PreTrainedModel, self.owner)
        if not any(isinstance(site_of(module), InterfaceSite) for module in owner.modules()):
            for config in _configs(owner):
                _set_implementation(config, _implementation(config).removeprefix(PREFIX))


class TransformersModels(Adapter):
    """The attention of every transformers model that computes it through the AttentionInterface.

    Cross attention is known by its module's class or name, a decoder's self attention by being causal or by lying in a
    decoder; all else is an encoder's. Layers are counted for each stack (nn.ModuleList) and kind. A module that runs
    as several layers (Albert) is one site.
    """

    name = "transformers"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Module by module; what does not use the interface, or not in its plain form, is refused with the reason."""
        owners: dict[str, PreTrainedModel] = {}
        for path, module in model.named_modules():
            if isinstance(module, PreTrainedModel) and not any(_below(path, owner) for owner in owners):
                owners[path] = module
        for path, owner in owners.items():
            yield from _patches(owner, path)


def _patches(owner: PreTrainedModel, prefix: str) -> Iterator[Patch]:
    found = [(path, module) for path, module in owner.named_modules() if on_interface(module)]
    past = not found
    if past:
        found = [(path, module) for path, module in owner.named_modules() if _is_attention(module)]
    kinds = [_kind(path, module) for path, module in found]
    places = place(zip((stack_of(owner, path) for path, _ in found), kinds, strict=True))
    for (path, module), kind, (layer, depth) in zip(found, kinds, places, strict=True):
        grid, before = _keys(owner, path)
        facts = (f"{prefix}.{path}".strip("."), kind, layer, depth, _heads(module), grid, before)
        reason = f"{type(owner).__name__} computes attention past transformers' AttentionInterface"
        if not past:
            reason = _refusal(module) or ""
        if reason:
            yield InterfacePatch(module, Site(*facts), None, reason, owner)
        else:
            site = InterfaceSite(*facts, original=original_function(module))
            yield InterfacePatch(module, site, owner=owner)


def _refusal(module: nn.Module) -> str | None:
    implementation = _implementation(getattr(module, "config", None)).removeprefix(PREFIX)
    name = type(module).__name__
    if implementation not in SUPPORTED:
        return (
            f"{name} uses the attention implementation '{implementation}': expected {' or '.join(SUPPORTED)}"
            " (model.set_attn_implementation)"
        )
    if asks_for_name(module):
        return f"{name} decides by the name 'sdpa' what it computes, which regularising changes"
    if not follows(module):
        return f"{name} computes more than softmax(q·k + bias)·v (an attention sink, say)"
    return None


def _kind(path: str, module: Any) -> SiteKind:
    leaf = ".".join(path.split(".")[-2:])
    if getattr(module, "is_cross_attention", False) is True or "Cross" in type(module).__name__:
        return "cross"
    if re.search("cross|encoder_attn|EncDec", leaf):
        return "cross"
    return "decoder-self" if getattr(module, "is_causal", False) is True or "decoder" in path else "encoder-self"


def _heads(module: Any) -> int:
    for name in ("num_attention_heads", "num_heads", "n_heads"):
        if isinstance(getattr(module, name, None), int):
            return int(getattr(module, name))
    width, size = getattr(getattr(module, "q_proj", None), "out_features", None), getattr(module, "head_dim", None)
    if width and size:
        return int(width // size)
    return int(getattr(getattr(module, "config", None), "num_attention_heads", 1))


def _keys(owner: nn.Module, path: str) -> tuple[tuple[int, int] | None, int]:
    """Grid and prefix of the keys: of a window, or of the Vision Transformer of fixed image size above the module."""
    window = getattr(getattr(owner.get_submodule(path), "relative_position_bias", None), "window_size", None)
    if "Swin" in type(owner.get_submodule(path)).__name__ and window is not None:
        return tuple(window), 0
    at: Any = owner
    for step in path.split("."):
        embeddings: Any = getattr(at, "embeddings", None)
        patches: Any = getattr(embeddings, "patch_embeddings", None)
        positions = getattr(embeddings, "position_embeddings", None)
        if isinstance(positions, nn.Parameter) and hasattr(patches, "image_size") and hasattr(patches, "patch_size"):
            rows, columns = (side // size for side, size in zip(patches.image_size, patches.patch_size, strict=True))
            registers = getattr(at.config, "num_register_tokens", 0)
            before = positions.shape[1] - rows * columns + registers
            masked = getattr(at.config, "mask_ratio", 0)  # a masked autoencoder leaves most tokens out
            return ((rows, columns), before) if before >= 0 and not masked else (None, 0)
        at = getattr(at, step)
    return None, 0


def _is_attention(module: nn.Module) -> bool:
    return "Attention" in type(module).__name__ and not any(map(_is_attention, module.children()))


def _below(path: str, owner: str) -> bool:
    return owner == "" or path.startswith(f"{owner}.")


def _configs(owner: PreTrainedModel) -> list[PreTrainedConfig]:
    """Every config that a module of the model holds, once, and those within them."""
    held = [value for module in owner.modules() for value in vars(module).values()]
    waiting = [value for value in held if isinstance(value, PreTrainedConfig)]
    found: dict[int, PreTrainedConfig] = {}
    while waiting:
        config = waiting.pop()
        if id(config) not in found:
            found[id(config)] = config
            inner = (getattr(config, key, None) for key in config.sub_configs)
            waiting += [value for value in inner if isinstance(value, PreTrainedConfig)]
    return list(found.values())


def _implementation(config: Any) -> str:
    return str(getattr(config, "_attn_implementation", None))


def _set_implementation(config: Any, name: str) -> None:
    # As a mapping, it reaches this config alone and none of those within it.
    config._attn_implementation = {"": name}
