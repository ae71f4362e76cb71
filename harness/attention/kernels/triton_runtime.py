"""Launches of Triton kernels that cost little time on the CPU, and streams for kernels that may overlap."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from types import TracebackType
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


class Lanes:
    """Context in which work may be distributed over streams; it starts after, and ends before, that of the current one.

    ``streams[i]`` is the context of stream i; on a CPU, or for one lane, that of the current stream. Tensors that
    several streams use must live outside.
    """

    def __init__(self, device: torch.device, count: int) -> None:
        self.streams = _side_streams(device.index, count) if device.type == "cuda" and count > 1 else []

    def __enter__(self) -> Lanes:
        for stream in self.streams:
            stream.wait_stream(torch.cuda.current_stream(stream.device))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self.streams:
            torch.cuda.current_stream(stream.device).wait_stream(stream)

    def __getitem__(self, lane: int) -> AbstractContextManager[Any]:
        return torch.cuda.stream(self.streams[lane]) if self.streams else nullcontext()


@cache
def _side_streams(device: int, count: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(count)]
