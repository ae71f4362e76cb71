"""`Layout`: how the axes of an attention call of any library are folded to batch and heads, and back."""

from __future__ import annotations

from math import prod

from torch import Tensor


class Layout:
    """How the axes before (T, d) are folded to batch and heads, and back.

    Args:
        lead: the sizes of these axes.
        heads: the heads of the module by its attributes; the call may have another number.
        sizes: the first sizes of the module's input, among them that of the batch.
        width: the channels of all heads together, if `lead` is one axis that may contain the heads.
        size: the channels of one head.
    """

    def __init__(
        self,
        lead: tuple[int, ...],
        heads: int,
        sizes: tuple[int, ...] = (),
        *,
        width: int | None = None,
        size: int | None = None,
    ) -> None:
        self.lead, self.axis = lead, len(lead) - 1
        self.heads = 1
        if len(lead) == 1:  # heads are folded into the batch, or there is one head
            joined = heads > 1 and lead[0] % heads == 0 and (width is None or size is None or heads * size == width)
            alone = lead[0] in sizes and lead[0] not in [each * heads for each in sizes]  # the batch: a call per head
            self.heads, self.axis = heads if joined and not alone else 1, 0
        elif len(lead) > 1:
            matching = [axis for axis in range(len(lead) - 1, 0, -1) if lead[axis] == heads]
            self.axis = matching[0] if matching else len(lead) - 1
            self.heads = lead[self.axis]

    def fold(self, x: Tensor) -> Tensor:
        """Fold (…, T, d) to (B, H, T, d)."""
        if len(self.lead) == 2 and self.axis == 1:
            return x
        if len(self.lead) < 2:
            return x.reshape(-1, self.heads, *x.shape[-2:])
        return x.movedim(self.axis, -3).flatten(0, -4)

    def unfold(self, x: Tensor) -> Tensor:
        """Undo `fold` for the result of attention (B, H, T, e)."""
        if len(self.lead) == 2 and self.axis == 1:
            return x
        if len(self.lead) < 2:
            return x.reshape(*self.lead, *x.shape[-2:])
        others = [size for axis, size in enumerate(self.lead) if axis != self.axis]
        unfolded: Tensor = x.unflatten(0, others).movedim(-3, self.axis)
        return unfolded

    def fold_mask(self, mask: Tensor) -> Tensor:
        """Fold a mask broadcastable to (…, T, S)."""
        if mask.dim() < 2:
            mask = mask.expand(1, *mask.shape)
        lead = (1,) * (len(self.lead) + 2 - mask.dim()) + tuple(mask.shape[:-2])
        if len(self.lead) == 2 and self.axis == 1:
            return mask.view(*lead, *mask.shape[-2:])
        if prod(lead) == 1:
            return mask.reshape(1, 1, *mask.shape[-2:])
        return self.fold(mask.expand(*self.lead, *mask.shape[-2:]))
