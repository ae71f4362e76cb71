"""Finds modules whose own code computes attention: it calls SDPA, or a softmax and a product.

The code of a class is what its forward reaches: its own methods and the functions that these call, but not torch's, and
of its child modules those without parameters, such as nn.Softmax.
"""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any, Literal

from torch import nn

Calls = Literal["sdpa", "softmax"]
"""Calls of attention: SDPA (or a table of functions that call it), or a softmax whose result a product may use."""

SDPA = {"scaled_dot_product_attention", "multi_head_attention_forward", "ALL_ATTENTION_FUNCTIONS"}
SOFTMAX = {"softmax", "Softmax"}
PRODUCTS = {"@", "matmul", "bmm", "einsum", "baddbmm"}


def attention_calls(module: nn.Module) -> Calls | None:
    """Return what a module calls to attend, or None if its own code computes no attention."""
    names = _names(original_class(module))
    if not names & SDPA:
        parts = (child for name, child in module.named_children() if name in names and _is_function(child))
        names = names.union(*(_names(original_class(each)) for part in parts for each in part.modules()))
    if names & SDPA:
        return "sdpa"
    return "softmax" if names & SOFTMAX and names & PRODUCTS else None


def computes_softmax(module: nn.Module) -> bool:
    """Return whether a module that attends calls a softmax: nothing else, or by its options instead of SDPA.

    These are transformers' implementation `eager`, and flags such as timm's `fused_attn`, if they are off.
    """
    names = _names(original_class(module))
    if "scaled_dot_product_attention" in names:
        flags = [name for name in vars(module) if name in names and re.search("fused|flash|sdpa", name)]
        return bool(flags) and all(getattr(module, name) is False for name in flags)
    if "ALL_ATTENTION_FUNCTIONS" in names:
        return getattr(getattr(module, "config", None), "_attn_implementation", None) in ("eager", None)
    return attention_calls(module) == "softmax"


def original_class(module: nn.Module) -> Any:
    """Return the class of a module before it was patched."""
    return getattr(type(module), "unpatched", type(module))


def _is_function(module: nn.Module) -> bool:
    """Return whether a module has no parameters and is no attention: nn.Softmax, dropout, a product."""
    return next(module.parameters(), None) is None and attention_calls(module) is None


@cache
def _names(kind: Any) -> set[str]:
    """Return the names that the code of a class of modules uses, and `@` if it multiplies so."""
    names: set[str] = set()
    for code in _reachable(kind):
        names |= {*code.co_names, *code.co_freevars}
        if any(step.opname == "BINARY_OP" and step.argrepr == "@" for step in dis.get_instructions(code)):
            names.add("@")
    return names


def _reachable(kind: type[nn.Module]) -> Iterator[CodeType]:
    """Yield the code of a class's forward and of all functions that it reaches, each once."""
    queue: list[Any] = [getattr(kind, "forward", None)]
    seen: set[CodeType] = set()
    while queue:
        function = inspect.unwrap(queue.pop())
        if not isinstance(function, FunctionType) or function.__code__ in seen:
            continue
        seen.add(function.__code__)
        for code in _nested(function.__code__):
            yield code
            for name in code.co_names:
                method = inspect.getattr_static(kind, name, None)
                if getattr(nn.Module, name, None) is method:
                    method = None
                queue += [
                    found for found in (getattr(method, "__func__", method), function.__globals__.get(name))
                    if isinstance(found, FunctionType) and not found.__module__.startswith("torch.")
                ]  # fmt: skip


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _nested(constant)
