"""fairseq's Transformers for translation, without their untrained copies of weights."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from fairseq import models
from fairseq.data import Dictionary
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import nn

from dropbench.adapters.libraries.options import TranslationOptions
from dropbench.harness.errors import InputError
from dropbench.harness.validation import model_options

ARCHITECTURES = {
    "transformer-wmt-en-de": "transformer_wmt_en_de",
    "transformer-wmt-en-de-big": "transformer_vaswani_wmt_en_de_big",
}
DUPLICATES = tuple(f"{name}_{part}" for name in ("in_proj", "out_proj", "fc1", "fc2") for part in ("weight", "bias"))
"""Copies of an encoder layer's weights for a native call in evaluation. They are parameters without gradients: 18.9 of
the 79.8 million of `transformer_wmt_en_de` with 32,768 symbols."""


def build_translation_model(
    name: str, options: Mapping[str, Any], *, source: int, target: int, joined: bool
) -> nn.Module:
    """Build a model with random weights equal to those of fairseq's registry for the same seed.

    `source` and `target` are the sizes of the dictionaries, including special symbols, and `joined` is whether they are
    one dictionary. The result is a fairseq TransformerModel. It can load checkpoints of the original model, and vice
    versa.
    """
    checked = model_options(TranslationOptions, name, options)
    if checked.share == "all" and not joined:
        raise InputError(
            f"model {name}: share=all needs a joint dictionary of both languages: expected decoder or none"
        )
    arguments = Namespace(arch=ARCHITECTURES[name], **checked.arguments())
    models.ARCH_CONFIG_REGISTRY[arguments.arch](arguments)
    for side in ("encoder", "decoder"):
        dim, heads = getattr(arguments, f"{side}_embed_dim"), getattr(arguments, f"{side}_attention_heads")
        if dim % heads:
            raise InputError(f"model {name}: heads={heads} does not divide dim={dim}")
    source_symbols = symbols(source)
    task = Namespace(source_dictionary=source_symbols, target_dictionary=source_symbols if joined else symbols(target))
    model = without_duplicates(models.build_model(arguments, task))
    for module in model.modules():
        if isinstance(module, SinusoidalPositionalEmbedding):
            clear_placeholder(module)
            module.register_load_state_dict_post_hook(clear_placeholder)
    return model


def clear_placeholder(module: SinusoidalPositionalEmbedding, keys: object = None) -> None:
    """Zero the buffer of which fairseq uses type and device alone.

    Its value is that of free memory, after each loading of a state, too. If it is NaN, a checkpoint is refused.
    """
    module._float_tensor.zero_()


def symbols(size: int) -> Dictionary:
    """Return a dictionary of the given size; models use only its size and special symbols."""
    dictionary = Dictionary()
    for number in range(size - dictionary.nspecial):
        dictionary.add_symbol(f"symbol{number}")
    return dictionary


class PlainEncoderLayer(TransformerEncoderLayerBase):  # type: ignore[misc]
    """An encoder layer without `DUPLICATES` and without the native call; see `without_duplicates`."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for duplicate in DUPLICATES:
            state_dict.pop(prefix + duplicate, None)
        nn.Module._load_from_state_dict(self, state_dict, prefix, *rest)


def without_duplicates(model: nn.Module) -> nn.Module:
    """Remove the untrained copies of weights from a fairseq model, in place; outputs are unchanged."""
    for layer in model.modules():
        if isinstance(layer, TransformerEncoderLayerBase):
            layer.__class__ = PlainEncoderLayer
            layer.can_use_fastpath = False
            for duplicate in DUPLICATES:
                delattr(layer, duplicate)
    return model
