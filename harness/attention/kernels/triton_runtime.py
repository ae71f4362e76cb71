"""Launches of Triton kernels that cost little time on the CPU, and streams for kernels that may overlap."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

MAX_COMPILED = 4096
"""Combinations of sizes for which `launch` remembers the compiled kernel."""

_compiled: dict[tuple[Any, ...], tuple[Any, tuple[Any, ...]]] = {}


def launch(
    kernel: Any, grid: tuple[int, int, int], tensors: tuple[Tensor, ...], sizes: tuple[float, ...],
    numbers: tuple[int, ...], constants: dict[str, Any], **options: int,
) -> None:  # fmt: skip
    """Launch a kernel with these arguments, in order; `numbers` are those that it is not specialized for.

    To find what it compiled, Triton looks at each argument, which takes longer than a small kernel. For equal `sizes`
    and constants, it is found at once here.
    """
    key = (
        kernel, sizes, *constants.values(), *options.values(),
        *((tensor.device, tensor.dtype, tensor.data_ptr() % 16) for tensor in tensors),
    )  # fmt: skip
    if (known := _compiled.get(key)) is not None:
        compiled, values = known
        compiled[grid](*tensors, *sizes, *numbers, *values)
        return
    compiled = kernel[grid](*tensors, *sizes, *numbers, **constants, **options)
    if compiled is not None:  # the interpreter compiles nothing
        if len(_compiled) >= MAX_COMPILED:
            _compiled.clear()
        _compiled[key] = compiled, tuple(constants[name] for name in kernel.arg_names if name in constants)


@contextmanager
def lanes(device: torch.device, count: int) -> Iterator[list[AbstractContextManager[Any]]]:
    """Yield a context per lane: a stream whose work starts after, and ends before, that of the current stream.

    On a CPU, or for one lane, it is the current stream. Tensors that several lanes use must live outside.
    """
    streams = _side_streams(device.index, count) if device.type == "cuda" and count > 1 else []
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream(device))
    try:
        yield [torch.cuda.stream(stream) for stream in streams] or [nullcontext()] * count
    finally:
        for stream in streams:
            torch.cuda.current_stream(device).wait_stream(stream)


@contextmanager
def urgent(device: torch.device) -> Iterator[None]:
    """Let blocks of kernels start before those of other streams that wait for room, in the current stream's order."""
    if device.type != "cuda":
        yield
        return
    current = torch.cuda.current_stream(device)
    stream = _urgent_stream(current)
    stream.wait_stream(current)
    with torch.cuda.stream(stream):
        yield
    current.wait_stream(stream)


@cache
def _side_streams(device: int, count: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(count)]


@cache
def _urgent_stream(stream: torch.cuda.Stream) -> torch.cuda.Stream:
    return torch.cuda.Stream(stream.device, priority=-1)
