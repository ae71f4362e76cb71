"""Routes the attention calls in a module's forward through `attend`: SDPA, and the softmax of logits over keys.

A module that computes attention gets a class of its own, whose forward runs the original one under a torch function
mode. The mode sees every torch function that the forward calls, by whatever name it imported it. Nothing else of the
module, its model or its library changes.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import FunctionType
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from dropbench.harness.attention.reference.sdpa import allowed_keys
from dropbench.harness.errors import InputError
from dropbench.harness.interception.layout import Layout
from dropbench.harness.models.adapter import can_use_original_forward
from dropbench.harness.models.attention import attend, attend_weights
from dropbench.harness.regularizers.around import replaces_dropout
from dropbench.harness.regularizers.auxiliary_loss import recomputing
from dropbench.harness.regularizers.base import Site

SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax)
DROPOUT = (F.dropout, torch.dropout)
PRODUCTS = (torch.matmul, torch.bmm, torch.einsum, Tensor.matmul, Tensor.bmm, Tensor.__matmul__, Tensor.__rmatmul__)
MULTI_HEAD = FunctionType(
    F.multi_head_attention_forward.__code__,
    {**F.__dict__, "has_torch_function": lambda _: False},
    argdefs=F.multi_head_attention_forward.__defaults__,
)
"""torch's function, without its question whether a mode replaces it as a whole: the calls in it are replaced."""


class Interception(TorchFunctionMode):
    """Replaces the attention calls of one forward pass of one module.

    SDPA becomes `attend`. A softmax over the last of three or more axes becomes `attend_weights`, and the model's own
    dropout of these weights is left out if the regularizer replaces it.
    """

    def __init__(self, site: Site, sizes: tuple[int, ...], *, training: bool, sinks: int = 0) -> None:
        super().__init__()
        self.site, self.sizes, self.training, self.sinks = site, sizes, training, sinks
        self.weights: torch.Size | None = None
        """The shape of the weights until they multiply values: dropout in between is that of the weights."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            with _without_other_modes():
                return self.attend(*args, **kwargs)
        if func in SOFTMAX and _is_over_keys(*args, **kwargs):
            with _without_other_modes():
                return self.softmax(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            with self:
                return MULTI_HEAD(*args, **kwargs)
        if func in DROPOUT and self.weights is not None and args[0].shape == self.weights:
            return args[0] if replaces_dropout(self.site) else func(*args, **kwargs)
        if func in PRODUCTS:
            self.weights = None
        # torch's compiler (2.13) cannot trace the method under a mode, but the function that it calls.
        return (torch.unflatten if func is Tensor.unflatten else func)(*args, **kwargs)

    def attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Replace SDPA; arguments and result are torch's."""
        if enable_gqa and key.shape[-3] != query.shape[-3]:
            key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], dim=-3) for each in (key, value))
        lead = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
        layout = self.layout(lead, width=self.site.width, size=query.shape[-1])
        q, k, v = (layout.fold(each.expand(*lead, *each.shape[-2:])) for each in (query, key, value))
        mask = None if attn_mask is None else layout.fold_mask(attn_mask)
        options: dict[str, Any] = {"causal": is_causal, "scale": scale, "dropout": dropout_p}
        out = attend(q, k, v, self.site, training=self.training, mask=mask, **options)
        return layout.unfold(out)

    def layout(self, lead: tuple[int, ...], **sizes: int | None) -> Layout:
        """Return how the axes of a call are folded.

        Raises:
            InputError: a regularizer of heads acts on a call whose heads are unknown.
        """
        site, layout = self.site, Layout(lead, self.site.heads, self.sizes, **sizes)
        regularizer = site.regularizer
        if site.heads > 1 and layout.heads != site.heads and regularizer is not None and regularizer.needs_heads:
            raise InputError(
                f"{site.name} has {site.heads} heads, which its call of attention does not show: before queries and"
                f" keys, its axes are {tuple(lead)}: exclude the site from {type(regularizer).__name__}"
            )
        return layout

    def softmax(self, input: Tensor, dim: int = -1, *third: Any, dtype: torch.dtype | None = None, **_: Any) -> Tensor:
        """Replace the softmax of logits (…, T, S); logits far below the maximum of their row are masked keys.

        The third argument is the dtype, but another one in `torch.nn.functional.softmax`.
        """
        dtype = next((each for each in third if isinstance(each, torch.dtype)), dtype)
        logits = input if dtype is None else input.to(dtype)
        if logits.dim() == 4 and logits.shape[1] != self.site.heads == logits.shape[2]:
            weights = self.softmax(logits.transpose(1, 2)).transpose(1, 2).contiguous()  # Longformer: (B, T, H, S)
            self.weights = weights.shape
            return weights
        layout = self.layout(logits.shape[:-2])
        keys = layout.fold(logits[..., : logits.shape[-1] - self.sinks])
        allowed = allowed_keys(keys) | keys.isnan()  # NaN stays NaN
        weights = layout.unfold(attend_weights(keys, allowed, self.site, training=self.training))
        if self.sinks:  # they keep their share of the row
            share = logits.softmax(dim=-1)[..., -self.sinks :]
            weights = torch.cat([weights * (1.0 - share.sum(dim=-1, keepdim=True)), share], dim=-1)
        weights = weights.contiguous()
        self.weights = weights.shape
        return weights


def _without_other_modes() -> AbstractContextManager[Any]:
    """Hide our own calls of attention from the modes of modules around this one."""
    return torch._C.DisableTorchFunction() if torch._C._len_torch_function_stack() else nullcontext()


def _is_over_keys(input: Tensor, dim: int | None = None, *_: Any, **__: Any) -> bool:
    return input.dim() >= 3 and dim in (-1, input.dim() - 1)


class Intercepted(nn.Module):
    """The base of the classes that modules with intercepted attention have; see `intercepted_class`."""

    unpatched: type[nn.Module]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the original forward, with its attention calls replaced while the site needs it."""
        if can_use_original_forward(self):
            return super().forward(*args, **kwargs)
        sinks = sum("sink" in name for name in self._parameters)
        site = cast(Site, self.site)
        given = next((each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)), None)
        sizes = () if given is None else tuple(given.shape[:2])
        with Interception(site, sizes, training=self.training, sinks=sinks):
            result = super().forward(*args, **kwargs)
        if self.training and site.reach is not None and not torch.compiler.is_compiling() and not recomputing():
            site.reach.note_pass(site.name)
        return result

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _empty, (self.unpatched,), cast(Any, self).__getstate__()


@cache
def intercepted_class(original: Any) -> Any:
    """Return the subclass of a module's class, with the same name, whose attention calls are intercepted."""
    names = {name: getattr(original, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(original.__name__, (Intercepted, original), {**names, "unpatched": original})


def _empty(original: Any) -> nn.Module:
    """Return a module without state, for copies and unpickled modules."""
    kind: type[nn.Module] = intercepted_class(original)
    return kind.__new__(kind)
