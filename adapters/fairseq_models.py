"""fairseq's Transformers for translation, by the names of its registry, without the weights that nobody trains."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from typing import Any, Literal

from fairseq import models
from fairseq.data import Dictionary
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from harness.errors import InputError
from harness.validation import model_options

ARCHITECTURES = {
    "transformer-wmt-en-de": "transformer_wmt_en_de",
    "transformer-wmt-en-de-big": "transformer_vaswani_wmt_en_de_big",
}
DUPLICATES = tuple(f"{name}_{part}" for name in ("in_proj", "out_proj", "fc1", "fc2") for part in ("weight", "bias"))
"""Copies of an encoder layer's weights for a native call in evaluation. They are parameters, but no loss reaches them:
18.9 of the 79.8 million of `transformer_wmt_en_de` with 32,768 symbols."""


class TranslationOptions(BaseModel):
    """What of an architecture is changed; None: as fairseq has it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    encoder_layers: int | None = Field(default=None, ge=1)
    decoder_layers: int | None = Field(default=None, ge=1)
    dim: int | None = Field(default=None, ge=2, description="channels, of encoder and decoder")
    feedforward: int | None = Field(default=None, ge=1)
    heads: int | None = Field(default=None, ge=1)
    dropout: float | None = Field(default=None, ge=0, lt=1, description="on embeddings and sublayer outputs")
    activation_dropout: float | None = Field(default=None, ge=0, lt=1, description="inside feed-forward blocks")
    normalize_before: bool | None = Field(default=None, description="pre-norm instead of post-norm")
    share: Literal["all", "decoder", "none"] = Field(
        default="all", description="embeddings that are one: source, target and output; target and output; none"
    )
    positions: int = Field(default=1024, ge=2, description="longest source and target, in tokens")

    def arguments(self) -> dict[str, Any]:
        """The same in fairseq's names."""
        both = {
            "embed_dim": self.dim,
            "ffn_embed_dim": self.feedforward,
            "attention_heads": self.heads,
            "normalize_before": self.normalize_before,
        }
        given = {f"{side}_{name}": value for name, value in both.items() for side in ("encoder", "decoder")}
        more = {
            name: getattr(self, name) for name in ("encoder_layers", "decoder_layers", "dropout", "activation_dropout")
        }
        return {
            **{name: value for name, value in {**given, **more}.items() if value is not None},
            "share_all_embeddings": self.share == "all",
            "share_decoder_input_output_embed": self.share == "decoder",
            "max_source_positions": self.positions,
            "max_target_positions": self.positions,
        }


def build_translation_model(
    name: str, options: Mapping[str, Any], *, source: int, target: int, joined: bool
) -> nn.Module:
    """The model with fairseq's random weights, equal to those that its registry draws from the same seed.

    Args:
        name: of `ARCHITECTURES`.
        options: fields of `TranslationOptions`.
        source: size of the source dictionary, its special symbols included.
        target: size of the target dictionary.
        joined: whether these are one.

    Returns:
        A fairseq TransformerModel; checkpoints of the stock model load into it, and its weights into the stock model.

    Raises:
        InputError: an unknown or impossible option.
    """
    checked = model_options(TranslationOptions, name, options)
    if checked.share == "all" and not joined:
        raise InputError(f"model {name}: share=all needs one dictionary for both languages: expected decoder or none")
    arguments = Namespace(arch=ARCHITECTURES[name], **checked.arguments())
    models.ARCH_CONFIG_REGISTRY[arguments.arch](arguments)
    for side in ("encoder", "decoder"):
        dim, heads = getattr(arguments, f"{side}_embed_dim"), getattr(arguments, f"{side}_attention_heads")
        if dim % heads:
            raise InputError(f"model {name}: heads={heads} does not divide dim={dim}")
    source_symbols = symbols(source)
    task = Namespace(source_dictionary=source_symbols, target_dictionary=source_symbols if joined else symbols(target))
    return without_duplicates(models.build_model(arguments, task))


def symbols(size: int) -> Dictionary:
    """A dictionary of that size, of which a model takes no more than its size and special symbols."""
    dictionary = Dictionary()
    for number in range(size - dictionary.nspecial):
        dictionary.add_symbol(f"symbol{number}")
    return dictionary


class PlainEncoderLayer(TransformerEncoderLayerBase):  # type: ignore[misc]
    """An encoder layer without `DUPLICATES`, which never takes the native call; see `without_duplicates`."""

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        for duplicate in DUPLICATES:
            state_dict.pop(prefix + duplicate, None)
        nn.Module._load_from_state_dict(self, state_dict, prefix, *rest)


def without_duplicates(model: nn.Module) -> nn.Module:
    """Take the never-trained copies out of a fairseq model, in place; what it computes is unchanged."""
    for layer in model.modules():
        if isinstance(layer, TransformerEncoderLayerBase):
            layer.__class__ = PlainEncoderLayer
            layer.can_use_fastpath = False
            for duplicate in DUPLICATES:
                delattr(layer, duplicate)
    return model
