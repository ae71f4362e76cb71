"""timm's Vision Transformers: ViT and DeiT, and the small ones that DropBench names itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

import timm
from timm.layers.attention import Attention
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from harness.adapter import Adapter, Patch
from harness.attention import attend
from harness.binding import patched_class
from harness.errors import InputError, unknown_name
from harness.site import Site

if TYPE_CHECKING:
    from collections.abc import Mapping


@patched_class(Attention)
class RegularizedAttention(Attention):
    """timm's attention with its one call to SDPA made through `attend`."""

    site: Site

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Attention over tokens: (B, N, C) → (B, N, C_out)."""
        batch, tokens, _ = x.shape
        gate = self.gate(x).sigmoid() if self.gate is not None else None
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        out = attend(
            self.q_norm(q), self.k_norm(k), v, self.site, training=self.training, mask=attn_mask, causal=is_causal
        )
        out = self.norm(out.transpose(1, 2).reshape(batch, tokens, self.attn_dim))
        if gate is not None:
            out = out * gate
        return cast(Tensor, self.proj_drop(self.proj(out)))


class TimmModels(Adapter):
    """Self-attention of timm's VisionTransformer family (ViT, DeiT and their variants)."""

    name = "timm"

    def patches(self, model: nn.Module) -> Iterator[Patch]:
        """Every plain `Attention` inside a VisionTransformer, block by block."""
        for path, transformer in model.named_modules():
            if not isinstance(transformer, VisionTransformer):
                continue
            found = [
                (f"{path}.{name}".lstrip("."), module)
                for name, module in transformer.named_modules()
                if type(module) in (Attention, RegularizedAttention)
            ]
            grid = tuple(transformer.patch_embed.grid_size) if not transformer.dynamic_img_size else None
            for layer, (name, module) in enumerate(found):
                site = getattr(module, "site", None) or Site(
                    name=name,
                    kind="encoder-self",
                    layer=layer,
                    depth=len(found),
                    heads=module.num_heads,
                    grid=cast("tuple[int, int] | None", grid),
                    prefix=transformer.num_prefix_tokens,
                )
                yield Patch(module, site, RegularizedAttention)


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
}
OPTIONS = ("patch_size", "embed_dim", "depth", "num_heads", "mlp_ratio", "drop_rate", "proj_drop_rate",
           "drop_path_rate", "class_token", "global_pool", "qkv_bias")  # fmt: skip


def build_vit(
    name: str, options: Mapping[str, Any], *, image_size: tuple[int, int], channels: int, classes: int
) -> nn.Module:
    """A Vision Transformer with random weights.

    Args:
        name: as registered in MODELS.
        options: what differs from the named model, by timm's names.
        image_size: rows and columns of the input, in pixels.
        channels: colour channels of the input.
        classes: number of outputs.

    Returns:
        (B, channels, rows, columns) → logits (B, classes).

    Raises:
        InputError: an unknown option, or one that does not fit the others.
    """
    for key in options:
        if key not in OPTIONS:
            raise unknown_name(f"option of model {name}", key, OPTIONS)
    common = {"img_size": image_size, "in_chans": channels, "num_classes": classes}
    try:
        if name in SMALL:
            return VisionTransformer(**{**common, **SMALL[name], **options})
        return cast(nn.Module, timm.create_model(TIMM_NAMES[name], pretrained=False, **{**common, **options}))
    except (AssertionError, ValueError, TypeError) as error:
        raise InputError(
            f"model {name} with {dict(options)} on {image_size[0]}×{image_size[1]} images: {error}"
        ) from None
