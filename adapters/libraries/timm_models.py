"""timm's models: the sites of their attention, and builders of the named models."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

import timm
from timm.models import group_parameters, volo
from timm.models.vision_transformer import VisionTransformer
from timm.optim._optim_factory import create_optimizer_v2, get_optimizer_info
from torch import nn
from torch.optim import Optimizer

from dropbench.adapters.libraries.options import VitOptions
from dropbench.adapters.libraries.timm_attention import PATCHED, ClassTokenBlock
from dropbench.adapters.vision.convolutional_stem import ConvolutionalStem
from dropbench.harness.errors import InputError
from dropbench.harness.interception.calls import original_class
from dropbench.harness.interception.grids import Grid
from dropbench.harness.interception.models import AnyModel, attention_modules
from dropbench.harness.models.adapter import Patch, parents_of
from dropbench.harness.regularizers.base import Site, SiteKind
from dropbench.harness.validation import model_options


class TimmModels(AnyModel):
    """An adapter of timm's models that counts layers as their papers do.

    Layers are numbered over the whole network in order of execution: over all stages of Swin, and over outlook and self
    attention of VOLO. Class attention is numbered separately. The token grid of outlook attention is its kernel.

    ViT's attention projects the heads that are kept, and outlook attention has no tokens of its own: these two have
    patched classes; all other attention is intercepted.
    """

    name = "timm"

    def stacks(self, model: nn.Module) -> Callable[[nn.Module, str], str]:
        networks = _networks(model, attention_modules(model))
        return lambda _, path: networks[path]

    def kind(self, path: str, module: Any) -> SiteKind:
        return "outlook" if isinstance(module, volo.OutlookAttention) else super().kind(path, module)

    def grid(self, model: nn.Module, path: str) -> Grid:
        module: Any = model.get_submodule(path)
        if isinstance(module, volo.OutlookAttention):
            return (module.kernel_size, module.kernel_size), 0
        network: Any = next(
            (each for each in map(model.get_submodule, parents_of(path)) if isinstance(each, volo.VOLO)), None
        )
        if network is not None:
            rows, columns = network.pos_embed.shape[1:3]
            return (rows, columns), int(isinstance(module, volo.ClassAttention))
        return super().grid(model, path)

    def patch(self, module: nn.Module, site: Site) -> Patch:
        patched = PATCHED.get(original_class(module))
        return super().patch(module, site) if patched is None else Patch(module, site, patched)


def _networks(model: nn.Module, paths: Iterable[str]) -> dict[str, str]:
    """Return the path of the network of each attention module: the outermost timm model with several of them above it.

    For a block that a model of another library takes from timm, the network is the whole model.
    """
    count = Counter(parent for path in paths for parent in parents_of(path))
    networks = {parent for parent in count if count[parent] > 1 and _of_timm(model.get_submodule(parent))}
    return {path: next((parent for parent in parents_of(path) if parent in networks), "") for path in paths}


def _of_timm(module: nn.Module) -> bool:
    return any(cls.__module__.startswith("timm.models.") for cls in type(module).__mro__)


SMALL = {
    "vit-digits": {"patch_size": 2, "embed_dim": 64, "depth": 4, "num_heads": 4, "mlp_ratio": 2.0},
    "vit-cifar": {"patch_size": 4, "embed_dim": 192, "depth": 6, "num_heads": 6, "mlp_ratio": 2.0},
}
TIMM_NAMES = {
    "vit-tiny": "vit_tiny_patch16_224",
    "vit-small": "vit_small_patch16_224",
    "vit-base": "vit_base_patch16_224",
    "deit-tiny": "deit_tiny_patch16_224",
    "deit-small": "deit_small_patch16_224",
    "deit-base": "deit_base_patch16_224",
    "swin-tiny": "swin_tiny_patch4_window7_224",
}
STEMS: dict[str, dict[str, Any]] = {"patches": {}, "convolutional": {"embed_layer": ConvolutionalStem}}


def build_vit(
    name: str, options: Mapping[str, Any], *, image_size: tuple[int, int], channels: int, classes: int
) -> nn.Module:
    """Build a Vision Transformer with random weights: (B, channels, rows, columns) → logits (B, classes).

    Options have timm's names. `image_size` is rows and columns of the input, in pixels. If the logits follow from the
    class token, the last block of a ViT computes only that token in training.
    """
    checked = model_options(VitOptions, name, options)
    patch = checked.patch_size or SMALL.get(name, {}).get("patch_size", 16)
    size = "×".join(map(str, image_size))
    if image_size[0] % patch or image_size[1] % patch:
        raise InputError(f"model {name}: patch_size={patch} does not divide images of {size} pixels")
    given = checked.model_dump(exclude={"stem"}, exclude_none=True)
    common = {**STEMS[checked.stem], "img_size": image_size, "in_chans": channels, "num_classes": classes}
    try:
        if name in SMALL:
            model: nn.Module = VisionTransformer(**{**common, **SMALL[name], **given})
        else:
            model = timm.create_model(TIMM_NAMES[name], pretrained=False, **{**common, **given})
    except (AssertionError, ValueError, TypeError) as error:
        raise InputError(f"model {name} with {given} on {size} images: {error}") from None
    reads_class_token = isinstance(model, VisionTransformer) and model.global_pool == "token"
    if reads_class_token:
        cast(nn.Sequential, model.blocks)[-1].__class__ = ClassTokenBlock
    return model


def parameter_layers(model: nn.Module) -> dict[str, int]:
    """Return the layer of each parameter by name, from 0, as timm's `param_groups_layer_decay` counts them."""
    matcher = cast(Any, model).group_matcher(coarse=False)
    return cast("dict[str, int]", group_parameters(model, matcher, reverse=True))


def build_optimizer(groups: list[dict[str, Any]], recipe: Any) -> Optimizer:
    """Return an optimizer of timm by its name, with the betas and the momentum of the recipe if it has such."""
    info = get_optimizer_info(recipe.optimizer)
    betas: dict[str, Any] = {"betas": (recipe.beta1, recipe.beta2)} if info.has_betas and info.num_betas == 2 else {}
    return create_optimizer_v2(groups, recipe.optimizer, lr=recipe.lr, momentum=recipe.momentum, **betas)
