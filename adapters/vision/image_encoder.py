"""Pre-trained image models of transformers and timm, for images of another size than that of their checkpoint."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import timm
import torch
from timm.layers.pos_embed import resample_abs_pos_embed
from torch import Tensor, nn

from dropbench.adapters.vision.image_weights import timm_config
from dropbench.adapters.vision.options import ImageEncoderOptions
from dropbench.harness.errors import InputError
from dropbench.harness.validation import model_options


class LibraryClassifier(nn.Module):
    """An image classifier of transformers, which returns logits alone.

    Attributes:
        model: the model of the library.
        new: names of the parameters that its checkpoint does not have, which begin with random weights.
    """

    def __init__(self, model: nn.Module, new: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.new = model, new

    def forward(self, images: Tensor) -> Tensor:
        """Classify images (B, channels, rows, columns) → logits (B, classes)."""
        return cast(Tensor, self.model(pixel_values=images).logits)


def build_image_encoder(
    name: str,
    options: Mapping[str, Any],
    *,
    image_size: tuple[int, int],
    channels: int,
    classes: int,
    weights: Path | None = None,
) -> nn.Module:
    """Build a model with the weights of a folder, its classifier included if that is for as many classes.

    The folder is one of timm if its ``config.json`` names an architecture of timm, and else one of transformers.
    Positions are resampled to the grid of `image_size`, in both cases by timm's `resample_abs_pos_embed`.

    Args:
        name: the registered name.
        options: fields of `ImageEncoderOptions`.
        image_size: rows and columns of the input, in pixels.
        channels: of the input.
        classes: number of logits.
        weights: the folder.

    Raises:
        InputError: the folder is missing or does not fit, or the model cannot take images of this size.
    """
    checked = model_options(ImageEncoderOptions, name, options)
    if weights is None or not weights.is_dir():
        raise InputError(f"model {name}: expected `--weights` with a folder, `timm:NAME` or `hf:ORGANISATION/NAME`")
    shape: Any = {"image_size": image_size, "channels": channels, "classes": classes}
    build = _timm_model if timm_config(weights) is not None else _transformers_model
    return build(weights, checked, **shape)


def _timm_model(
    folder: Path, options: ImageEncoderOptions, *, image_size: tuple[int, int], channels: int, classes: int
) -> nn.Module:
    config = timm_config(folder) or {}
    sizes: dict[str, Any] = {"in_chans": channels, "num_classes": classes, "img_size": image_size}
    sizes |= options.model_dump(exclude_none=True)
    on_meta = torch.get_default_device().type == "meta"
    try:
        try:
            model = timm.create_model(f"local-dir:{folder}", pretrained=not on_meta, **sizes)
        except TypeError as error:  # a model for images of any size
            if "img_size" not in str(error):
                raise
            del sizes["img_size"]
            model = timm.create_model(f"local-dir:{folder}", pretrained=not on_meta, **sizes)
    except (AssertionError, RuntimeError, OSError, ValueError, TypeError, KeyError) as error:
        size = "×".join(map(str, image_size))
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise InputError(f"weights {folder} on images of {size} pixels: {reason}") from None
    _check_patches(folder, getattr(getattr(model, "patch_embed", None), "patch_size", None), image_size)
    trained_classes = config.get("num_classes", config["pretrained_cfg"].get("num_classes"))
    names = (
        [key for key, _ in cast(Any, model).get_classifier().named_parameters()] if trained_classes != classes else []
    )
    cast(Any, model).new = tuple(f"classifier.{key}" for key in names)
    return model


def _transformers_model(
    folder: Path, options: ImageEncoderOptions, *, image_size: tuple[int, int], channels: int, classes: int
) -> nn.Module:
    import transformers

    from dropbench.adapters.transformers_loading import LOADING_ERRORS, load_model, loading_error, read_config

    config = read_config(folder)
    vision = getattr(config, "vision_config", config)
    if type(config) not in transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING:
        raise InputError(f"weights {folder}: {config.model_type} classifies no images: expected a model of images")
    if channels != (own := getattr(vision, "num_channels", 3)):
        raise InputError(f"weights {folder}: images have {own} channels: pass `--set channels={own}`")
    _check_patches(folder, getattr(vision, "patch_size", None), image_size)
    for key, value in options.model_dump(exclude_none=True).items():
        if not hasattr(vision, key):
            raise InputError(f"weights {folder}: {config.model_type} has no {key}: remove it")
        setattr(vision, key, value)
    config.num_labels = classes
    try:
        model, new = load_model(folder, config, transformers.AutoModelForImageClassification)
        resized = _resized(model, config, image_size)
    except LOADING_ERRORS as error:
        raise loading_error(folder, error) from None
    return LibraryClassifier(resized, tuple(new))


def _check_patches(folder: Path, patch: Any, image_size: tuple[int, int]) -> None:
    """Raise InputError if patches of this size, in pixels, would leave out a border of the images."""
    sides = tuple(patch if isinstance(patch, list | tuple) else (patch, patch))
    if all(isinstance(side, int) for side in sides) and any(
        length % side for length, side in zip(image_size, sides, strict=True)
    ):
        patches, size = ("×".join(map(str, each)) for each in (sides, image_size))
        raise InputError(f"weights {folder}: patches of {patches} pixels do not divide images of {size} pixels")


def _resized(model: Any, config: Any, image_size: tuple[int, int]) -> Any:
    """Return a model for images of another size, with the same weights but its positions, which are resampled.

    Raises ValueError if other weights depend on the size.
    """
    own: Any = getattr(getattr(config, "vision_config", config), "image_size", None)
    if own is None or tuple(own if isinstance(own, list | tuple) else (own, own)) == image_size:
        return model
    config = copy.deepcopy(config)
    side = image_size[0] if image_size[0] == image_size[1] else list(image_size)
    getattr(config, "vision_config", config).image_size = side
    resized = type(model)._from_config(config)
    if torch.get_default_device().type == "meta":
        return resized
    state, target = model.state_dict(), resized.state_dict()
    for key in [key for key, value in state.items() if value.shape != target[key].shape]:
        if "position_embedding" not in key:
            raise ValueError(f"{key} depends on the size of the images: pass `--set image_size={own}`")
        state[key] = _resampled(state[key], target[key].shape)
    resized.load_state_dict(state)
    return resized


def _resampled(positions: Tensor, shape: torch.Size) -> Tensor:
    """Return positions (…, N, D) of a square grid, after those of class tokens, for another square grid."""
    old, new = positions.shape[-2], shape[-2]
    prefix = next((number for number in range(3) if _is_square(old - number) and _is_square(new - number)), None)
    if prefix is None:
        raise ValueError(f"{old} positions cannot be resampled to {new}: their grids are not square")
    grids = [[math.isqrt(number - prefix)] * 2 for number in (new, old)]
    tokens = positions.reshape(1, old, positions.shape[-1])
    return cast(Tensor, resample_abs_pos_embed(tokens, grids[0], grids[1], num_prefix_tokens=prefix).view(shape))


def _is_square(number: int) -> bool:
    return number > 0 and math.isqrt(number) ** 2 == number
