"""A regularized attention layer, forward and backward, against plain SDPA and common dropout implementations."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.measure import Measurement, compare
from harness.attention.backends import backend, used_backends
from harness.models.attention import attend
from harness.regularizers.base import Site
from harness.regularizers.spec import build_regularizer

Call = Callable[[Tensor, Tensor, Tensor], Tensor]
Grid = tuple[tuple[int, int], int]
Shape = tuple[int, int, int, int]

SHAPES: dict[Shape, Grid] = {
    (16, 6, 197, 64): ((14, 14), 1),
    (8, 8, 512, 64): ((16, 32), 0),
}
"""(batch, heads, tokens, head dimension) → the tokens' grid, and the number of prefix tokens."""
LONG = (1024, 2048, 4096, 16384)
"""Sequence lengths, for a batch of one sample and two heads."""
RATIO = 0.3
GPU_LIMIT, MEMORY_LIMIT = 1.15, 1.05

VARIANTS: dict[str, tuple[str, dict[str, object], float]] = {
    "dropkey": ("dropkey", {}, 1.15),
    "dropattention-c": ("dropattention-c", {"window": 1}, 1.03),
    "dropattention-e, w=2": ("dropattention-e", {"window": 2}, 1.3),
    "dropkey-block, w=3": ("dropkey-block", {}, 1.3),
    "dropkey-cross, w=1": ("dropkey-cross", {}, 1.3),
    "dropout": ("dropout", {}, 1.6),
}
"""Name → regularizer, parameters, and the limit of its time over plain SDPA's."""


def attention() -> list[Measurement]:
    """Measure each regularizer, DropKey in torch operations and as in its Algorithm 1, and SDPA's own dropout."""
    torch.manual_seed(0)
    return [*over_units(), *over_lengths(), *(on_a_gpu() if torch.cuda.is_available() else ())]


def over_units() -> Iterator[Measurement]:
    """Measure every unit at the sequence lengths of two kinds of model."""
    for shape, grid in SHAPES.items():
        for name, (regularizer, params, limit) in VARIANTS.items():
            yield over_sdpa(name, ours(regularizer, grid, params), shape, limit, 30)
        for name, call in peers().items():
            yield over_sdpa(name, call, shape)


def over_lengths() -> Iterator[Measurement]:
    """Measure how time grows with the sequence length."""
    for length in LONG:
        shape, rounds = (1, 2, length, 64), 3 if length > 8000 else 10
        yield over_sdpa("dropkey", ours("dropkey"), shape, 1.3, rounds)
        yield over_sdpa("dropout", ours("dropout"), shape, 1.6, rounds)
        if length <= 4096:  # beyond it each takes gigabytes
            for name, call in peers().items():
                yield over_sdpa(name, call, shape, None, rounds)


def on_a_gpu() -> Iterator[Measurement]:
    """Measure time and peak memory on a GPU in bfloat16, over SDPA (FlashAttention)."""
    for length, side in ((1024, 32), (4096, 64), (16384, 128)):
        shape = 8, 16, length, 64
        for name, (regularizer, params, _) in VARIANTS.items():
            if regularizer != "dropkey-cross":  # it stores its mask
                call = ours(regularizer, ((side, side), 0), params)
                yield over_sdpa(name, call, shape, GPU_LIMIT, 30, device="cuda", dtype=torch.bfloat16)
                yield memory_over_sdpa(name, call, shape)


def over_sdpa(
    name: str, call: Call, shape: Shape, limit: float | None = None, rounds: int = 10, *, device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Measurement:  # fmt: skip
    """Measure forward and backward time over plain SDPA's, alternating."""
    step = stepper(shape, device, dtype)
    with backend("auto"):
        step(call)
        kernels = "+".join(used_backends())
    dtype_name = str(dtype).removeprefix("torch.")
    detail = {"threads": torch.get_num_threads(), "dtype": dtype_name, "device": device, "backend": kernels}
    device_name = "" if device == "cpu" else f", {dtype_name} on {torch.cuda.get_device_name()}"
    return compare(
        f"{name}, {'×'.join(map(str, shape))}{device_name}",
        lambda: step(call),
        "SDPA, nothing dropped",
        lambda: step(scaled_dot_product_attention),
        limit=limit,
        rounds=rounds,
        detail=detail,
    )


def memory_over_sdpa(name: str, call: Call, shape: Shape) -> Measurement:
    """Measure the peak GPU memory of forward and backward over plain SDPA's."""
    step = stepper(shape, "cuda", torch.bfloat16)
    peaks = []
    for measured in (call, scaled_dot_product_attention):
        step(measured)
        torch.cuda.reset_peak_memory_stats()
        step(measured)
        peaks.append(torch.cuda.max_memory_allocated())
    name = f"peak memory, {name}, {'×'.join(map(str, shape))}, bfloat16 on {torch.cuda.get_device_name()}"
    ratio = round(peaks[0] / peaks[1], 3)
    return Measurement(name, "SDPA, nothing dropped", ratio, MEMORY_LIMIT, peaks[0] >> 20, peaks[1] >> 20, "MiB")


def stepper(shape: Shape, device: str, dtype: torch.dtype) -> Callable[[Call], None]:
    """Return a function that runs forward and backward on tensors of this shape, and waits for the device."""
    q, k, v = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3))

    def step(call: Call) -> None:
        call(q, k, v).sum().backward()
        for tensor in (q, k, v):
            tensor.grad = None
        if device != "cpu":
            torch.cuda.synchronize()

    return step


def ours(name: str, grid: Grid | None = None, params: dict[str, object] | None = None) -> Call:
    """Return attention as models call it."""
    site = Site("benchmark", "encoder-self", 0, 1, 1)
    if grid is not None:
        site.grid, site.num_prefix_tokens = grid
    site.regularizer, site.ratio = build_regularizer(name, ratio=RATIO, **(params or {})), RATIO
    return lambda q, k, v: attend(q, k, v, site, training=True)


def peers() -> dict[str, Call]:
    """Return the alternatives: DropKey in torch operations, torch's dropout, the paper's algorithm, and libraries."""
    plain = ours("dropkey")

    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with backend("eager"):
            return plain(q, k, v)

    return {
        "dropkey by torch's operations": eager,
        "SDPA with dropout_p": lambda q, k, v: scaled_dot_product_attention(q, k, v, dropout_p=RATIO),
        "DropKey, Algorithm 1": algorithm_1,
        **x_transformers(),
    }


def x_transformers() -> dict[str, Call]:
    """Return x-transformers' attention with its dropout, if installed."""
    try:
        from x_transformers.attend import Attend
    except ImportError:
        print("Skipped x-transformers: not installed. Run `pip install x-transformers`.", file=sys.stderr)
        return {}

    def variant(flash: bool) -> Call:
        attend_module = Attend(dropout=RATIO, flash=flash).train()

        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out: Tensor = attend_module(q, k, v)[0]
            return out

        return call

    return {"x-transformers with dropout": variant(False), "x-transformers with dropout, flash": variant(True)}


def algorithm_1(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Compute DropKey's Algorithm 1, with −1e12 in place of the printed −1e-12."""
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    logits = logits + torch.bernoulli(torch.full_like(logits, RATIO)) * -1e12
    out: Tensor = logits.softmax(dim=-1) @ v
    return out
