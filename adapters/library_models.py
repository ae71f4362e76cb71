"""Models of libraries by name, with a batch of random input, for `dropbench doctor --model`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from dropbench.harness.errors import InputError, unknown_name

SAMPLES, TOKENS, DECODER_TOKENS, SAMPLING_RATE, FRAMES = 2, 16, 8, 16_000, 100
"""The sizes of a random batch; sound lasts a second."""


def timm_model(name: str) -> tuple[nn.Module, Tensor]:
    """Return a model of timm with random weights, and images of its size.

    Raises:
        InputError: timm has no model of that name.
    """
    import timm

    if not timm.is_model(name):
        raise unknown_name("timm model", name, timm.list_models())
    size = timm.get_pretrained_cfg(name).input_size  # type: ignore[union-attr]
    return timm.create_model(name), torch.randn(SAMPLES, *size)


def timm_repository(name: str) -> str:
    """Return the repository on the hub of timm's weights, such as ``vit_small_patch16_224.augreg_in21k``.

    Without the tag after the point, it is that of timm's default for the model.

    Raises:
        InputError: timm has no weights of that name, or none on the hub.
    """
    import timm

    if name not in (known := timm.list_pretrained()) and name not in timm.list_models():
        raise unknown_name("timm weights", name, known)
    config: Any = timm.get_pretrained_cfg(name)
    if not config.hf_hub_id:
        source = f"fetch {config.url}, and pass the file" if config.url else "timm has none for this model"
        raise InputError(f"weights timm:{name}: not on the hub: {source}")
    return str(config.hf_hub_id)


def transformers_model(folder: str) -> tuple[nn.Module, dict[str, Tensor]]:
    """Return the model of a local folder, and random input; its weights are random if the folder has none.

    Raises:
        InputError: the folder has no readable configuration, or the model takes another kind of input.
    """
    path = Path(folder)
    if not (path / "config.json").is_file():
        raise InputError(f"hf:{folder}: expected a local folder with config.json; nothing is downloaded")
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        if any(path.glob("*.safetensors")) or any(path.glob("pytorch_model*.bin")):
            load = transformers.AutoModel.from_pretrained
            model = load(path, config=config, local_files_only=True, trust_remote_code=False)
        else:
            model = transformers.AutoModel.from_config(config, trust_remote_code=False)
    except (OSError, ValueError, KeyError, ImportError) as error:
        raise InputError(f"hf:{folder}: {(str(error).strip() or type(error).__name__).splitlines()[0]}") from error
    return model, _inputs(model, config, folder)


def _inputs(model: Any, config: Any, folder: str) -> dict[str, Tensor]:
    """Return random tensors for a model's main input, and tokens for its decoder."""
    made: dict[str, Callable[[], Tensor]] = {
        "input_ids": lambda: _tokens(config, TOKENS),
        "pixel_values": lambda: _images(config),
        "input_values": lambda: torch.randn(SAMPLES, *_sound(config)),
        "input_features": lambda: _features(config),
    }
    main, taken = model.main_input_name, inspect.signature(model.forward).parameters
    if main not in made:
        raise InputError(
            f"hf:{folder}: its main input is '{main}': expected {', '.join(made)}; in Python, `dropbench.check(model,"
            " batch)` takes a batch of your own"
        )
    inputs = {main: made[main]()}
    if main == "input_ids" and "pixel_values" in taken and hasattr(config, "projection_dim"):  # two towers, as in CLIP
        inputs["pixel_values"] = _images(config)
    if "decoder_input_ids" in taken and getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = _tokens(config, DECODER_TOKENS)
    return inputs


def _tokens(config: Any, number: int) -> Tensor:
    """Return token ids; the first ones, which are often special, are left out."""
    size = config.get_text_config().vocab_size
    return torch.randint(min(5, size - 1), size, (SAMPLES, number))


def _images(config: Any) -> Tensor:
    vision = getattr(config, "vision_config", config)
    side: Any = getattr(vision, "image_size", None) or 224
    sides = tuple(side) if isinstance(side, list | tuple) else (side, side)
    return torch.randn(SAMPLES, getattr(vision, "num_channels", 3), *sides)


def _sound(config: Any) -> tuple[int, ...]:
    """Return the shape of a sample of sound: a wave, or a spectrogram (AST)."""
    return (config.max_length, config.num_mel_bins) if hasattr(config, "num_mel_bins") else (SAMPLING_RATE,)


def _features(config: Any) -> Tensor:
    """Return spectrograms: (B, bands, T) for Whisper, whose T is fixed, and (B, T, bands) for others."""
    bands: Any = getattr(config, "num_mel_bins", None) or getattr(config, "feature_size", 80)
    if config.model_type == "whisper":
        return torch.randn(SAMPLES, bands, 2 * config.max_source_positions)
    return torch.randn(SAMPLES, FRAMES, bands)
