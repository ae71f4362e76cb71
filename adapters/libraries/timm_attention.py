"""Subclasses of timm's attention modules that call `attend` in training."""

from __future__ import annotations

from math import ceil
from typing import Any, cast

from timm.layers.attention import Attention
from timm.models import volo
from timm.models.vision_transformer import Block
from torch import Tensor, nn
from torch.nn import functional as F

from dropbench.harness.models.adapter import patched_class, site_of
from dropbench.harness.models.attention import attend, attend_logits
from dropbench.harness.models.head_skipping import JointProjections, may_leave_out_queries
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
        options: Any = {"mask": attn_mask, "causal": is_causal, "dropout": self.attn_drop.p}
        out = attend(q, k, v, self.site, training=self.training, **options)
        if needs_all:
            joined = self.norm(out.transpose(1, 2).flatten(2))
            gate: Any = getattr(self, "gate", None)
            if gate is not None:  # of some variants, before the output layer
                joined = joined * gate(x).sigmoid()
            return cast(Tensor, self.proj_drop(self.proj(joined)))
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
        out = attend_logits(logits, v, self.site, training=self.training, dropout=self.attn_drop.p)
        out = out.unflatten(0, (batch, positions)).permute(0, 2, 4, 3, 1).reshape(batch, width * keys, positions)
        out = F.fold(out, (rows, columns), self.kernel_size, padding=self.padding, stride=self.stride)
        return cast(Tensor, self.proj_drop(self.proj(out.permute(0, 2, 3, 1))))


PATCHED: dict[Any, type[nn.Module]] = {
    Attention: RegularizedAttention,
    volo.OutlookAttention: RegularizedOutlookAttention,
}
"""timm's class → the subclass that calls `attend`."""
