"""Subclasses of timm's attention modules that call `attend` in training."""

from __future__ import annotations

from math import ceil
from typing import Any, cast

import torch
from timm.layers.attention import Attention, AttentionRope
from timm.layers.pos_embed_sincos import apply_rot_embed_cat
from timm.models import swin_transformer, volo
from timm.models.eva import EvaAttention
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional as F

from dropbench.harness.models.adapter import patched_class, site_of
from dropbench.harness.models.attention import attend, attend_logits
from dropbench.harness.models.head_skipping import JointProjections, may_leave_out_queries, split_heads
from dropbench.harness.regularizers.base import Site


@patched_class(Attention, bypass=True)
class RegularizedAttention(Attention):
    """Plain self-attention, as in ViT and DeiT."""

    site: Site

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Attend within tokens (B, N, C) → (B, N, C_out)."""
        needs_all = not isinstance(self.norm, nn.Identity) or getattr(self, "gate", None) is not None
        heads = JointProjections(self.site, self.qkv, self.proj, training=self.training and not needs_all)
        q, k, v = heads.split(x)
        q, k = self.q_norm(q), self.k_norm(k)
        out = attend(q, k, v, self.site, training=self.training, mask=attn_mask, causal=is_causal)
        if needs_all:
            return _project(self, x, self.norm(_join(out)))
        return cast(Tensor, self.proj_drop(heads.merge(out)))


class ClassTokenBlock(Block):
    """The last block of a ViT whose head reads the class token: in training, only that token is computed.

    Evaluation computes all tokens, and so does training if anything reads them (`may_leave_out_queries`).
    """

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Map tokens (B, N, C) → (B, N, C), or the class token (B, 1, C)."""
        attention: Any = self.attn
        site = site_of(attention) or Site("", "encoder-self", 0, 1, attention.num_heads)
        masked = attn_mask is not None or is_causal or attention.attn_drop.p > 0.0
        if not self.training or masked or not may_leave_out_queries(site, self, attention.qkv):
            return super().forward(x, attn_mask, is_causal)
        heads = JointProjections(site, attention.qkv, attention.proj, training=True)
        q, k, v = heads.split_first(self.norm1(x))
        out = heads.merge(attend(attention.q_norm(q), attention.k_norm(k), v, site, training=True))
        first = x[:, :1] + self.drop_path1(self.ls1(attention.proj_drop(out)))
        return cast(Tensor, first + self.drop_path2(self.ls2(self.mlp(self.norm2(first)))))


class RotaryAttention(nn.Module):
    """Self-attention with rotary positions, and optionally grouped queries; a base of patched classes."""

    def forward(
        self: Any, x: Tensor, rope: Tensor | None = None, attn_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """Attend within tokens (B, N, C) → (B, N, C_out)."""
        if self.qkv is not None:
            q, k, v = split_heads(self.joint_projection(x), 3, self.num_heads)
        else:
            q = self.q_proj(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            # With grouped queries there are fewer heads of keys and values.
            k, v = (
                projection(x).unflatten(-1, (-1, q.shape[-1])).transpose(1, 2)
                for projection in (self.k_proj, self.v_proj)
            )
        q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = (self.rotate(part, rope).to(v.dtype) for part in (q, k))
        groups = q.shape[1] // k.shape[1]
        if groups > 1:
            k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
        out = attend(q, k, v, self.site, training=self.training, mask=attn_mask, causal=is_causal)
        return _project(self, x, self.norm(_join(out)))

    def joint_projection(self: Any, x: Tensor) -> Tensor:
        """Project tokens to queries, keys and values together: (B, N, C) → (B, N, 3·heads·d)."""
        return cast(Tensor, self.qkv(x))

    def rotate(self: Any, part: Tensor, rope: Tensor) -> Tensor:
        """Rotate queries or keys (B, heads, N, d) by their positions, except those of prefix tokens."""
        prefix, image = part.split((self.num_prefix_tokens, part.shape[2] - self.num_prefix_tokens), dim=2)
        return torch.cat([prefix, apply_rot_embed_cat(image, rope, half=self.rotate_half)], dim=2)


@patched_class(AttentionRope, bypass=True)
class RegularizedAttentionRope(RotaryAttention, AttentionRope):
    """timm's attention with rotary positions."""


@patched_class(EvaAttention, bypass=True)
class RegularizedEvaAttention(RotaryAttention, EvaAttention):
    """EVA's attention without a bias of keys."""

    def joint_projection(self, x: Tensor) -> Tensor:
        biases: list[Tensor] = [bias for bias in (self.q_bias, self.k_bias, self.v_bias) if bias is not None]
        return F.linear(x, self.qkv.weight, torch.cat(biases) if biases else None)


@patched_class(swin_transformer.WindowAttention, bypass=True)
class RegularizedWindowAttention(swin_transformer.WindowAttention):
    """Swin's attention within windows: a sample of `attend` is one window, and its keys are the window's tokens."""

    site: Site

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend within windows (B·windows, N, C); the mask (windows, N, N) is -100 for pairs apart in the image."""
        q, k, v = split_heads(self.qkv(x), 3, self.num_heads)
        bias = self._get_rel_pos_bias()
        if mask is not None:
            bias = bias + mask.repeat(x.shape[0] // mask.shape[0], 1, 1)[:, None]
        out = attend(q, k, v, self.site, training=self.training, mask=bias.to(q.dtype))
        return _project(self, x, _join(out))


@patched_class(volo.Attention, bypass=True)
class RegularizedVoloAttention(volo.Attention):
    """VOLO's self-attention over a feature map."""

    site: Site

    def forward(self, x: Tensor) -> Tensor:
        """Attend within (B, rows, columns, C) → (B, rows, columns, C)."""
        tokens = x.flatten(1, 2)
        q, k, v = split_heads(self.qkv(tokens), 3, self.num_heads)
        out = attend(q, k, v, self.site, training=self.training)
        return _project(self, tokens, _join(out)).view_as(x)


@patched_class(volo.ClassAttention, bypass=True)
class RegularizedClassAttention(volo.ClassAttention):
    """VOLO's class attention: the class token attends to itself and to the patches."""

    site: Site

    def forward(self, x: Tensor) -> Tensor:
        """Attend from the class token: tokens (B, 1 + N, C) → class token (B, 1, C)."""
        k, v = split_heads(self.kv(x), 2, self.num_heads)
        q = self.q(x[:, :1]).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        out = attend(q, k, v, self.site, training=self.training)
        return _project(self, x, _join(out))


@patched_class(volo.OutlookAttention, bypass=True)
class RegularizedOutlookAttention(volo.OutlookAttention):
    """VOLO's outlook attention: a linear layer computes the weights within the k × k neighborhood of each position.

    A sample of `attend` is one position; both its queries and its keys are the k² tokens around it.
    """

    site: Site

    def forward(self, x: Tensor) -> Tensor:
        """Attend within (B, rows, columns, C) → (B, rows, columns, C)."""
        batch, rows, columns, width = x.shape
        keys, positions = self.kernel_size**2, ceil(rows / self.stride) * ceil(columns / self.stride)
        # unfold orders channels before the neighborhood: (B, heads · d · keys, positions).
        v = self.unfold(self.v(x).permute(0, 3, 1, 2)).view(batch, self.num_heads, -1, keys, positions)
        pooled = self.pool(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        logits = self.attn(pooled).view(batch * positions, self.num_heads, keys, keys) * self.scale
        v = v.permute(0, 4, 1, 3, 2).flatten(0, 1)
        out = attend_logits(logits, v, self.site, training=self.training)
        out = out.unflatten(0, (batch, positions)).permute(0, 2, 4, 3, 1).reshape(batch, width * keys, positions)
        out = F.fold(out, (rows, columns), self.kernel_size, padding=self.padding, stride=self.stride)
        return cast(Tensor, self.proj_drop(self.proj(out.permute(0, 2, 3, 1))))


_CLASSES: tuple[Any, ...] = (
    RegularizedAttention, RegularizedAttentionRope, RegularizedEvaAttention, RegularizedWindowAttention,
    RegularizedVoloAttention, RegularizedClassAttention, RegularizedOutlookAttention,
)  # fmt: skip
PATCHED: dict[type[nn.Module], type[nn.Module]] = {patched.unpatched: patched for patched in _CLASSES}
"""timm's class → the subclass that calls `attend`."""


def _join(out: Tensor) -> Tensor:
    """Join heads: (B, heads, N, d) → (B, N, heads·d)."""
    return out.transpose(1, 2).flatten(2)


def _project(module: Any, x: Tensor, out: Tensor) -> Tensor:
    """Apply the output layer, and before it the gate of variants that have one."""
    if getattr(module, "gate", None) is not None:
        out = out * module.gate(x).sigmoid()
    return cast(Tensor, module.proj_drop(module.proj(out)))
