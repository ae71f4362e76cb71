"""transformers' models on its AttentionInterface: encoders, decoders and encoder-decoders, for text and images."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel

from dropbench.adapters.libraries.transformers_attention import (
    PREFIX,
    SUPPORTED,
    InterfaceSite,
    checks_name,
    matches_reference,
    original_function,
    uses_interface,
)
from dropbench.harness.models.adapter import Adapter, Patch, number_layers, parents_of, site_of
from dropbench.harness.regularizers.base import Site, SiteKind


@dataclass(frozen=True)
class InterfacePatch(Patch):
    """An attention module of a transformers model.

    The module's class is unchanged. The model's configs, which name the attention function, are replaced by copies,
    because other models may share them. They keep the new name until no module of the model has a site.
    """

    owner: PreTrainedModel | None = None

    def attach(self) -> None:
        """Bind the site, and route the model's attention to `dropbench.adapters.libraries.transformers_attention`."""
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
        """Remove the site; with the last one, restore the model's own attention function."""
        if isinstance(site_of(self.module), InterfaceSite):
            del self.module.site
        owner = cast(PreTrainedModel, self.owner)
        if not any(isinstance(site_of(module), InterfaceSite) for module in owner.modules()):
            for config in _configs(owner):
                _set_implementation(config, _implementation(config).removeprefix(PREFIX))


class TransformersModels(Adapter):
    """An adapter of every transformers model that computes attention through the AttentionInterface.

    Cross attention is recognized by the class or name of its module, a decoder's self attention by being causal or part
    of a decoder; all other attention is an encoder's. Layers are numbered for each stack (nn.ModuleList) and kind. A
    module that runs as several layers (Albert) is one site.
    """

    name = "transformers"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Yield each module; modules that bypass the interface or extend its computation are refused with a reason."""
        owners: dict[str, PreTrainedModel] = {}
        for path, module in model.named_modules():
            if isinstance(module, PreTrainedModel) and not owners.keys() & parents_of(path):
                owners[path] = module
        for path, owner in owners.items():
            yield from _patches(owner, path)


def _patches(owner: PreTrainedModel, prefix: str) -> Iterator[Patch]:
    modules = {path: module for path, module in owner.named_modules() if uses_interface(module)}
    bypassed = not modules
    if bypassed:
        modules = {path: module for path, module in owner.named_modules() if _is_attention(module)}
    for path, module, kind, layer, depth in number_layers(owner, modules, _kind):
        grid, num_prefix_tokens = _key_grid(owner, path)
        fields = (f"{prefix}.{path}".strip("."), kind, layer, depth, _heads(module), grid, num_prefix_tokens)
        reason = f"{type(owner).__name__} bypasses transformers' AttentionInterface" if bypassed else _refusal(module)
        site = Site(*fields) if reason else InterfaceSite(*fields, original=original_function(module))
        yield InterfacePatch(module, site, None, reason, owner)


def _refusal(module: nn.Module) -> str | None:
    implementation = _implementation(getattr(module, "config", None)).removeprefix(PREFIX)
    name = type(module).__name__
    if implementation not in SUPPORTED:
        return (
            f"{name} uses the attention implementation '{implementation}': expected {' or '.join(SUPPORTED)}"
            " (`model.set_attn_implementation`)"
        )
    if checks_name(module):
        return f"{name} compares the implementation's name with 'sdpa', and regularization changes that name"
    if not matches_reference(module):
        return f"{name} computes more than softmax(q·k + bias)·v (such as an attention sink)"
    return None


def _kind(path: str, module: Any) -> SiteKind:
    leaf = ".".join(path.split(".")[-2:])
    is_cross = getattr(module, "is_cross_attention", False) is True or "Cross" in type(module).__name__
    if is_cross or re.search("cross|encoder_attn|EncDec", leaf):
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


def _key_grid(owner: nn.Module, path: str) -> tuple[tuple[int, int] | None, int]:
    """Return grid and prefix tokens of the keys: of a window, or of the Vision Transformer of fixed size above."""
    window = getattr(getattr(owner.get_submodule(path), "relative_position_bias", None), "window_size", None)
    if "Swin" in type(owner.get_submodule(path)).__name__ and window is not None:
        return tuple(window), 0
    ancestor: Any
    for ancestor in map(owner.get_submodule, parents_of(path)):
        embeddings: Any = getattr(ancestor, "embeddings", None)
        patches: Any = getattr(embeddings, "patch_embeddings", None)
        positions = getattr(embeddings, "position_embeddings", None)
        if isinstance(positions, nn.Parameter) and hasattr(patches, "image_size") and hasattr(patches, "patch_size"):
            rows, columns = (side // size for side, size in zip(patches.image_size, patches.patch_size, strict=True))
            registers = getattr(ancestor.config, "num_register_tokens", 0)
            num_prefix_tokens = positions.shape[1] - rows * columns + registers
            masked = getattr(ancestor.config, "mask_ratio", 0)  # a masked autoencoder drops most tokens
            return ((rows, columns), num_prefix_tokens) if num_prefix_tokens >= 0 and not masked else (None, 0)
    return None, 0


def _is_attention(module: nn.Module) -> bool:
    return "Attention" in type(module).__name__ and not any(map(_is_attention, module.children()))


def _configs(owner: PreTrainedModel) -> list[PreTrainedConfig]:
    """Return the configs of all modules of a model and their sub-configs, each once."""
    queue = [value for module in owner.modules() for value in vars(module).values()]
    configs: dict[int, PreTrainedConfig] = {}
    while queue:
        config = queue.pop()
        if isinstance(config, PreTrainedConfig) and id(config) not in configs:
            configs[id(config)] = config
            queue += [getattr(config, key, None) for key in config.sub_configs]
    return list(configs.values())


def _implementation(config: Any) -> str:
    return str(getattr(config, "_attn_implementation", None))


def _set_implementation(config: Any, name: str) -> None:
    # A mapping with the key "" sets this config without its sub-configs.
    config._attn_implementation = {"": name}
