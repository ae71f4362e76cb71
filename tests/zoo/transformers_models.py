"""A tiny model of each of transformers' types that one rule can build and run: options made smaller by name."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tests.zoo.counting import tensors

MAX_PARAMETERS = 40_000_000
SIZES = {
    "num_key_value_heads|num_kv_heads|multi_query_group_num|n_head_kv": 2,
    r"(\w+_)?(num_attention_heads|n_heads?|num_heads|attention_heads|nhead|num_attn_heads|n_attention_heads)": 4,
    r"(\w+_)?(num_hidden_layers|n_layers?|num_layers|layers|num_encoder_layers|num_decoder_layers|depth|num_blocks)": 2,
    r"(\w+_)?(intermediate_size|ffn_dim|d_ff|d_inner|n_inner|dim_feedforward|feedforward_dim|mlp_dim|ffn_size)": 64,
    r"ffn_hidden_size|(\w+_)?(head_dim|d_kv|attention_head_size|kv_channels|d_head|head_size)": 8,
    "q_lora_rank|kv_lora_rank|patch_size": 16,
    "hidden_size|d_model|n_embd|dim|embed_dim|hidden_dim|embedding_size|projection_(dim|size)|encoder_hidden_size": 32,
    "decoder_hidden_size|emb_dim|word_embed_proj_dim|output_dim|out_hidden_size|text_embed_dim|model_dim|n_hidden": 32,
    "decoder_hidden|cross_attention_dim|vision_hidden_size|embedding_dim|width|mm_hidden_size|hidden_channels": 32,
    "vocab_size|text_vocab_size|n_vocab|max_position_embeddings|n_positions|max_source_positions": 128,
    "max_target_positions|n_ctx|max_seq_len|max_sequence_length|seq_length": 128,
    "image_size|img_size|input_size": 64,
    "num_local_experts|num_experts|n_routed_experts|moe_num_experts": 4,
    "num_experts_per_tok|moe_topk|top_k|num_selected_experts|type_vocab_size": 2,
    "n_group|topk_group|attn_layer_offset": 1,
    "attn_layer_period": 2,
    "rotary_dim": 8,
    "num_queries": 8,
}
"""Patterns of whole option names, and their largest value."""
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "decoder_start_token_id": 1, "cls_token_id": 1, "eos_token_id": 2}
"""Values of special tokens beyond the small vocabulary."""
DEPTHS = "depths|layers|num_layers|num_encoder_blocks"
LAYER_TYPES = "layer_types|mlp_layer_types|attention_types|layers_block_type|block_types"


def types() -> list[str]:
    """Return the names of all types of configuration."""
    return sorted(CONFIG_MAPPING.keys())


def build(name: str) -> tuple[nn.Module, Callable[[nn.Module], Any]]:
    """Return a tiny model of a type with random weights, and what calls it.

    Raises:
        Exception: the rule does not fit: whatever the library raises.
    """
    config = _shrunk(CONFIG_MAPPING[name]())
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in _model(copy.deepcopy(config)).parameters())
    if size > MAX_PARAMETERS:
        raise ValueError(f"{size / 1e6:.0f} million parameters")
    torch.manual_seed(0)
    model = _model(config).eval()
    inputs = _inputs(model, config)

    def run(model: nn.Module) -> Any:
        return model(**copy.deepcopy(inputs))

    with torch.no_grad():
        if not tensors(dict(run(model))):
            raise ValueError("the model returns no tensor")
    return model, run


def _model(config: Any) -> Any:
    """Return a model of a configuration: the one of AutoModel, or the class that has it as its part of another."""
    if type(config) in AutoModel._model_mapping:
        return AutoModel.from_config(config)
    module = importlib.import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
    kinds: list[Any] = [
        kind for kind in vars(module).values()
        if inspect.isclass(kind) and issubclass(kind, PreTrainedModel)
        and getattr(kind, "config_class", None) is type(config)
        and not kind.__name__.endswith("PreTrainedModel")
    ]  # fmt: skip
    return min(kinds, key=lambda kind: len(kind.__name__))(config)


def _shrunk(config: Any) -> Any:
    config.use_cache = False
    for key, value in list(vars(config).items()):
        with contextlib.suppress(Exception):  # an option that the configuration computes from others
            if isinstance(value, PreTrainedConfig):
                _shrunk(value)
            elif isinstance(value, int) and not isinstance(value, bool):
                limits = [limit for pattern, limit in SIZES.items() if re.fullmatch(pattern, key)]
                setattr(config, key, min([value, *limits[:1]]))
            elif isinstance(value, list | tuple) and re.fullmatch(DEPTHS, key):
                setattr(config, key, type(value)(min(depth, 1) for depth in value))
    for key, value in SPECIAL.items():
        if isinstance(getattr(config, key, None), int) and getattr(config, key) >= 100:
            setattr(config, key, value)
    for key, value in list(vars(config).items()):
        if re.fullmatch(LAYER_TYPES, key) and isinstance(value, list):
            setattr(config, key, [value[0], value[-1]][: config.num_hidden_layers])
    if hasattr(config, "kv_lora_rank"):  # latent keys have no groups of heads
        config.num_key_value_heads = config.num_attention_heads
    if isinstance(getattr(config, "rope_parameters", None), dict):
        config.rope_parameters["mrope_section"] = [2, 1, 1]
    return config


def _inputs(model: Any, config: Any) -> dict[str, Tensor]:
    taken, main = inspect.signature(model.forward).parameters, model.main_input_name
    images = getattr(config, "vision_config", config)
    side = getattr(images, "image_size", None) or 64
    sides = side if isinstance(side, list | tuple) else (side, side)
    channels = getattr(images, "num_channels", 3)
    audio = getattr(config, "audio_config", config)
    names = ("num_mel_bins", "feature_size", "input_dim")
    of_encoder = getattr(config, "encoder_config", config)
    bands = next((getattr(each, name) for each in (audio, of_encoder) for name in names if hasattr(each, name)), 80)
    frames = 2 * getattr(config, "max_source_positions", 50)
    features: tuple[int, ...] = (2, min(frames, 100), bands)
    if "whisper" in config.model_type:
        features = (2, bands, frames)
    elif hasattr(audio, "spec_size"):
        features = (2, 1, 1001, bands)
    waves = (2, 4000) if hasattr(config, "conv_dim") else (2, 1024, 128)
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(3, 100, (2, 16), generator=draw)
    made: dict[str, Callable[[], Tensor]] = {
        "input_ids": lambda: tokens,
        "decoder_input_ids": lambda: tokens[:, :8],
        "bbox": lambda: torch.zeros(2, 16, 4, dtype=torch.long),
        "pixel_values": lambda: torch.randn(2, channels, *sides, generator=draw),
        "pixel_values_videos": lambda: torch.randn(2, config.num_frames, channels, *sides, generator=draw),
        "input_values": lambda: torch.randn(*waves, generator=draw),
        "input_features": lambda: torch.randn(*features, generator=draw),
        "inputs_embeds": lambda: torch.randn(2, 16, 32, generator=draw),
    }
    only_main = {"pixel_values", "pixel_values_videos", "input_values", "inputs_embeds"}
    wanted = {name for name in made if name in taken and (name == main or name not in only_main)}
    has_towers = hasattr(config, "text_config") and hasattr(config, "vision_config")
    if has_towers and not hasattr(config, "image_token_id") and "pixel_values" in taken:
        wanted.add("pixel_values")
    return {name: made[name]() for name in made if name in wanted}
