"""Counts attention in any model, independently of how the product reaches it.

An attention call is SDPA, or a softmax over the last of at least three axes whose result multiplies values. It belongs
to the innermost module that makes both softmax and product, itself or by children without parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

PRODUCTS = {
    torch.matmul, torch.bmm, torch.einsum, torch.baddbmm, Tensor.matmul, Tensor.bmm, Tensor.baddbmm,
    Tensor.__matmul__, Tensor.__rmatmul__,
}  # fmt: skip
ROUNDING = 1e-5
SOFTMAXES = {F.softmax, torch.softmax, Tensor.softmax}


class Count(TorchFunctionMode):
    """Follows weights through the functions that a model calls.

    Attributes:
        parametrized: the path of the innermost module with parameters at or around each path.
        found: the paths of modules that attend.
        called: the paths of modules that ran.
        indifferent: the paths of those whose values are the same for all keys, so that no weight has an effect.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.parametrized = {"": ""}
        for path, module in model.named_modules(remove_duplicate=False):
            has_parameters = next(module.parameters(), None) is not None
            self.parametrized[path] = path if has_parameters else self.parametrized[path.rpartition(".")[0]]
        self.found: set[str] = set()
        self.called: set[str] = set()
        self.indifferent: set[str] = set()
        self.stack: list[str] = []
        self.weights: dict[int, str] = {}
        self.alive: list[Tensor] = []  # ids are of living tensors

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.multi_head_attention_forward:
            self.note(self.stack[-1], args[2].movedim(0, -2))
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            self.note(self.stack[-1], tensors([args, kwargs])[2])
        inputs, out = tensors([args, kwargs]), func(*args, **kwargs)
        results = tensors(out)
        owners = [self.weights[id(each)] for each in inputs if id(each) in self.weights]
        if func in PRODUCTS:
            values = next((each for each in inputs if id(each) not in self.weights), inputs[0])
            for owner in owners:
                if self.parametrized[owner] == self.parametrized[self.stack[-1]]:
                    is_first = values is inputs[0] and values.dim() >= 2  # v @ weights.T, with keys as the last axis
                    self.note(_common(owner, self.stack[-1]), values.mT if is_first else values)
        elif func in SOFTMAXES:
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if inputs[0].dim() >= 3 and dim in (-1, inputs[0].dim() - 1):
                self.mark(results, self.stack[-1])
        elif owners:
            self.mark([each for each in results if each.dim() >= 3], owners[0])
        return out

    def mark(self, results: list[Tensor], owner: str) -> None:
        """Remember whose weights some tensors are."""
        self.alive += results
        self.weights.update({id(each): owner for each in results if each.is_floating_point()})

    def note(self, owner: str, values: Tensor) -> None:
        """Note a call of attention."""
        self.found.add(owner)
        if values.dim() >= 2 and float((values - values[..., :1, :]).norm()) <= ROUNDING * float(values.norm()):
            self.indifferent.add(owner)


def _common(first: str, second: str) -> str:
    """Return the path of the innermost module that contains two others."""
    both = zip(first.split("."), second.split("."), strict=False)
    return ".".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], both))


def count(model: nn.Module, run: Callable[[nn.Module], Any]) -> Count:
    """Return what attends when `run` calls a model."""
    mode = Count(model)
    handles = []
    for path, module in model.named_modules():

        def enter(module: nn.Module, inputs: Any, path: str = path) -> None:
            mode.stack.append(path)
            mode.called.add(path)

        def leave(*_: Any) -> None:
            mode.stack.pop()

        handles.append(module.register_forward_pre_hook(enter))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        with mode, torch.no_grad():
            run(model)
    finally:
        for handle in handles:
            handle.remove()
    return mode


def tensors(values: Any) -> list[Tensor]:
    """Return all tensors in a nested result or in arguments."""
    return list(_tensors(values))


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, dict):
        for value in values.values():
            yield from _tensors(value)
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
