"""Which GPUs run the Triton kernels, launches that cost little time on the CPU, and streams that overlap."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

MIN_CAPABILITY = 8, 0
"""On older GPUs, Triton multiplies without tensor cores."""
WIDE_FLOAT32_BYTES = 139_776
"""Shared memory that the smallest blocks need in float32 for head dimensions above 128."""


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def gpu_reason(index: int, *, wide_float32: bool) -> str | None:
    """Return why the kernels cannot run on a GPU, or None if they can; warn if Triton cannot compile there.

    `wide_float32` is whether tensors are float32 with head dimensions above 128.
    """
    return _gpu_reason(index, wide_float32)


@cache  # inside of what torch.compile takes for a constant, as it would trace a cached function itself
def _gpu_reason(index: int, wide_float32: bool) -> str | None:
    gpu: Any = torch.cuda.get_device_properties(index)
    if torch.version.hip is not None:
        return "its kernels have instructions of NVIDIA's GPUs"
    if (gpu.major, gpu.minor) < MIN_CAPABILITY:
        return f"{gpu.name} has no tensor cores that Triton uses"
    if wide_float32 and gpu.shared_memory_per_block_optin < WIDE_FLOAT32_BYTES:
        return f"float32 with head dimensions above 128 needs more shared memory than {gpu.name} has"
    return _compile_error(index)


@cache
def _compile_error(index: int) -> str | None:
    """Return why Triton cannot compile and load a small kernel on a GPU, for example without a C compiler, or None."""
    try:
        from dropbench.harness.attention.kernels.triton_drop_mask import transposed_bits_kernel

        with torch.cuda.device(index):
            sizes = 128, 1, 128, 2
            compiled = transposed_bits_kernel.warmup(torch.int64, torch.int64, *sizes, BLOCK_WORDS=2, grid=(1, 1, 1))
            compiled[1, 1, 1]  # loads it
    except Exception as error:
        reason = f"Triton cannot compile its kernels: {' '.join(str(error).split())[:200] or type(error).__name__}"
        warnings.warn(f"Torch's operations compute attention on GPU {index}: {reason}", RuntimeWarning, stacklevel=2)
        return reason
    return None


def warn_if_captured(device: torch.device) -> None:
    """Warn if the current stream is captured by a CUDA graph, whose replays repeat the decisions of the capture."""
    if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        warnings.warn("All replays of this CUDA graph drop the same attention weights", RuntimeWarning, stacklevel=2)


class Launch:
    """A kernel with its grid and what it is specialized for: sizes, constants, options. A call launches it for tensors.

    To find what it compiled, Triton looks at each argument, and asks the driver about each tensor, which takes longer
    than a small kernel. Here a compiled kernel is kept, which holds for tensors that are aligned to 16 bytes, as those
    of torch are unless they start within others. Calls must agree in the tensors' dtypes and devices.
    """

    def __init__(
        self, kernel: Any, grid: tuple[int, int, int], sizes: tuple[float, ...], constants: dict[str, Any],
        **options: int,
    ) -> None:  # fmt: skip
        self.kernel, self.grid, self.sizes, self.constants, self.options = kernel, grid, sizes, constants, options
        self.run: Any = None
        self.values: tuple[Any, ...] = ()

    def __call__(self, tensors: tuple[Tensor, ...], numbers: tuple[int, ...]) -> None:
        """Launch the kernel with these arguments, in order; it is not specialized for `numbers`."""
        addresses = [tensor.data_ptr() for tensor in tensors]
        is_aligned = not any(address % 16 for address in addresses)
        if is_aligned and self.run is not None:
            self.run(*addresses, *self.sizes, *numbers, *self.values)
            return
        compiled = self.kernel[self.grid](*tensors, *self.sizes, *numbers, **self.constants, **self.options)
        if is_aligned and compiled is not None:  # the interpreter compiles nothing
            self.run = compiled[self.grid]
            self.values = tuple(self.constants[name] for name in self.kernel.arg_names if name in self.constants)


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
    try:
        with torch.cuda.stream(stream):
            yield
    finally:
        current.wait_stream(stream)


@cache
def _side_streams(device: int, count: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(count)]


@cache
def _urgent_stream(stream: torch.cuda.Stream) -> torch.cuda.Stream:
    return torch.cuda.Stream(stream.device, priority=-1)
