"""Calls of torch in a plug-in that no run reports: axes that broadcast, attention of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from dropbench.harness.errors import InputError

PAIRED = {"sub", "__sub__", "rsub", "__rsub__", "eq", "__eq__", "ne", "__ne__"}
PAIRED |= {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "poisson_nll_loss"}
"""Names of functions that compare each prediction with its own target."""


class OwnCalls(TorchFunctionMode):
    """Notes attention that a plug-in computes where nothing regularizes it.

    A call that a site regularizes does not arrive here: it is replaced before.

    Attributes:
        unregularized: lines of the plug-in that call `scaled_dot_product_attention`.
    """

    def __init__(self, is_own: Callable[[str], bool]) -> None:
        super().__init__()
        self.is_own = is_own
        self.unregularized: dict[str, None] = {}
        self.in_model = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            caller = sys._getframe(1)
            if self.is_own(str(caller.f_globals.get("__name__"))):
                self.unregularized[f"{caller.f_code.co_filename}:{caller.f_lineno}"] = None
        elif not self.in_model and getattr(func, "__name__", "") in PAIRED:
            require_equal_axes(*args[:2])
        return func(*args, **(kwargs or {}))

    @contextmanager
    def outside(self, model: nn.Module) -> Iterator[None]:
        """Look at what is computed while the context is open; pairs of tensors only outside of `model`."""

        def enter(*_: Any) -> None:
            self.in_model = True

        def leave(*_: Any) -> None:
            self.in_model = False

        hooks = [model.register_forward_pre_hook(enter), model.register_forward_hook(leave)]
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()


def require_equal_axes(first: Any = None, second: Any = None, *_: Any) -> None:
    """Raise InputError if a tensor (n, 1) meets another one (n,): the result would be (n, n), of all pairs."""
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)) or first.data_ptr() == second.data_ptr():
        return
    shapes = sorted((tuple(first.shape), tuple(second.shape)), key=len)
    n = first.shape[0] if first.ndim else 0
    if n > 1 and shapes == [(n,), (n, 1)]:
        raise InputError(
            f"tensors ({n}, 1) and ({n},) broadcast to all {n} × {n} pairs: give both the same, as by `.squeeze(1)`"
        )
