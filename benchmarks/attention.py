"""A regularised attention layer, forward and backward, against plain SDPA and the usual ways to drop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.measure import Measurement, compare
from harness.attention import attend
from harness.backends import backend, used
from harness.regularizers.spec import build_regularizer
from harness.site import Site

Call = Callable[[Tensor, Tensor, Tensor], Tensor]
Grid = tuple[tuple[int, int], int]
Shape = tuple[int, int, int, int]

SHAPES: dict[Shape, Grid] = {
    (16, 6, 197, 64): ((14, 14), 1),
    (8, 8, 512, 64): ((16, 32), 0),
}
"""Batch, heads, tokens and size of a head; rows and columns of a grid of the tokens, and those before it."""
LONG = (1024, 2048, 4096, 16384)
"""Tokens of two heads of one sample."""
RATIO = 0.3
GPU_LIMIT, MEMORY_LIMIT = 1.15, 1.05

WAYS: dict[str, tuple[str, dict[str, object], float]] = {
    "dropkey": ("dropkey", {}, 1.15),
    "dropattention-c": ("dropattention-c", {"window": 1}, 1.03),
    "dropattention-e, w=2": ("dropattention-e", {"window": 2}, 1.3),
    "dropkey-block, w=3": ("dropkey-block", {}, 1.3),
    "dropkey-cross, w=1": ("dropkey-cross", {}, 1.3),
    "dropout": ("dropout", {}, 1.6),
}
"""Name → regularizer, parameters, and the ratio over plain SDPA that it is judged by."""


def attention() -> list[Measurement]:
    """Each regularizer; DropKey without our kernels and as its Algorithm 1 has it; SDPA's own dropout."""
    torch.manual_seed(0)
    return [*over_units(), *over_lengths(), *(on_a_gpu() if torch.cuda.is_available() else ())]


def over_units() -> Iterator[Measurement]:
    """Every unit at the lengths of two kinds of model."""
    for shape, grid in SHAPES.items():
        for name, (regularizer, params, limit) in WAYS.items():
            yield over_sdpa(name, ours(regularizer, grid, params), shape, limit, 30)
        for name, way in peers().items():
            yield over_sdpa(name, way, shape)


def over_lengths() -> Iterator[Measurement]:
    """What grows with the square of the length, and what does not."""
    for length in LONG:
        shape, rounds = (1, 2, length, 64), 3 if length > 8000 else 10
        yield over_sdpa("dropkey", ours("dropkey"), shape, 1.3, rounds)
        yield over_sdpa("dropout", ours("dropout"), shape, 1.6, rounds)
        if length <= 4096:  # beyond it each of these takes gigabytes
            for name, way in peers().items():
                yield over_sdpa(name, way, shape, None, rounds)


def on_a_gpu() -> Iterator[Measurement]:
    """In bfloat16, over SDPA, which is FlashAttention there: time, and the memory that is taken at most."""
    for length, side in ((1024, 32), (4096, 64), (16384, 128)):
        shape = 8, 16, length, 64
        for name, (regularizer, params, _) in WAYS.items():
            if regularizer != "dropkey-cross":  # whose mask is stored
                way = ours(regularizer, ((side, side), 0), params)
                yield over_sdpa(name, way, shape, GPU_LIMIT, 30, device="cuda", dtype=torch.bfloat16)
                yield memory_over_sdpa(name, way, shape)


def over_sdpa(
    name: str, way: Call, shape: Shape, limit: float | None = None, rounds: int = 10, *, device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Measurement:  # fmt: skip
    """Forward and backward over plain SDPA's, in turns."""
    step = stepper(shape, device, dtype)
    with backend("auto"):
        step(way)
        kernels = "+".join(used())
    named = str(dtype).removeprefix("torch.")
    detail = {"threads": torch.get_num_threads(), "dtype": named, "device": device, "backend": kernels}
    where = "" if device == "cpu" else f", {named} on {torch.cuda.get_device_name()}"
    return compare(
        f"{name}, {'×'.join(map(str, shape))}{where}",
        lambda: step(way),
        "SDPA, nothing dropped",
        lambda: step(scaled_dot_product_attention),
        limit=limit,
        rounds=rounds,
        detail=detail,
    )


def memory_over_sdpa(name: str, way: Call, shape: Shape) -> Measurement:
    """The most memory of a GPU that forward and backward take, over plain SDPA's."""
    step = stepper(shape, "cuda", torch.bfloat16)
    taken = []
    for call in (way, scaled_dot_product_attention):
        step(call)
        torch.cuda.reset_peak_memory_stats()
        step(call)
        taken.append(torch.cuda.max_memory_allocated())
    what = f"peak memory, {name}, {'×'.join(map(str, shape))}, bfloat16 on {torch.cuda.get_device_name()}"
    ratio = round(taken[0] / taken[1], 3)
    return Measurement(what, "SDPA, nothing dropped", ratio, MEMORY_LIMIT, taken[0] >> 20, taken[1] >> 20, "MiB")


def stepper(shape: Shape, device: str, dtype: torch.dtype) -> Callable[[Call], None]:
    """Forward and backward of a call on tensors of that shape, waited for."""
    q, k, v = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3))

    def step(call: Call) -> None:
        call(q, k, v).sum().backward()
        for tensor in (q, k, v):
            tensor.grad = None
        if device != "cpu":
            torch.cuda.synchronize()

    return step


def ours(name: str, grid: Grid | None = None, params: dict[str, object] | None = None) -> Call:
    """Attention as models call it."""
    site = Site("benchmark", "encoder-self", 0, 1, 1)
    if grid is not None:
        site.grid, site.prefix = grid
    site.regularizer, site.ratio = build_regularizer(name, ratio=RATIO, **(params or {})), RATIO
    return lambda q, k, v: attend(q, k, v, site, training=True)


def peers() -> dict[str, Call]:
    """What people use: the same without our kernels, torch's own, and the paper's."""
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
    """Attention of x-transformers with its dropout, where that is installed."""
    try:
        from x_transformers.attend import Attend
    except ImportError:
        print("x-transformers is not installed, and is left out", file=sys.stderr)
        return {}

    def way(flash: bool) -> Call:
        theirs = Attend(dropout=RATIO, flash=flash).train()

        def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            out: Tensor = theirs(q, k, v)[0]
            return out

        return call

    return {"x-transformers with dropout": way(False), "x-transformers with dropout, flash": way(True)}


def algorithm_1(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """DropKey's Algorithm 1, with a large number where its print has a tiny one."""
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    logits = logits + torch.bernoulli(torch.full_like(logits, RATIO)) * -1e12
    out: Tensor = logits.softmax(dim=-1) @ v
    return out
