"""Measure regularized attention, forward and backward, against plain SDPA and common dropout implementations.

``python -m benchmarks.attention`` prints our rows on this CPU as JSON.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.measure import Measurement, compare
from dropbench.harness.attention.backends import backend, used_backends
from dropbench.harness.models.attention import attend
from dropbench.harness.regularizers.base import Site
from dropbench.harness.regularizers.spec import build_regularizer

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
LONG_LIMITS = {"dropkey": 1.3, "dropout": 1.4}
MAX_LOADED_LENGTH = 4096
LOAD_LIMIT = 1.2
"""Of a ratio with one busy process per core, over the same ratio on an idle machine."""
BUSY = """
import os, torch
parent = os.getppid()
torch.set_num_threads(1)
a = torch.randn(512, 512)
print(flush=True)
while os.getppid() == parent:  # until the benchmark ends, however it does
    a @ a
"""
RATIO = 0.3

VARIANTS: dict[str, tuple[str, dict[str, object], float]] = {
    "dropkey": ("dropkey", {}, 1.15),
    "dropattention-c": ("dropattention-c", {"window": 1}, 1.03),
    "dropattention-e, w=2": ("dropattention-e", {"window": 2}, 1.3),
    "dropkey-block, w=3": ("dropkey-block", {}, 1.3),
    "dropkey-cross, w=1": ("dropkey-cross", {}, 1.3),
    "dropout": ("dropout", {}, 1.4),
}
"""Name → regularizer, parameters, and the limit of its time over plain SDPA's."""


def attention() -> list[Measurement]:
    """Measure each regularizer, DropKey in torch operations and as in its Algorithm 1, and SDPA's own dropout."""
    torch.manual_seed(0)
    return [*on_this_cpu(), *on_avx2(), *over_peers()]


def on_this_cpu() -> list[Measurement]:
    """Measure every unit at the sequence lengths of two kinds of model, and how time grows with the length.

    Once as the machine is, and once with one busy process per core.
    """
    idle = [over_sdpa(name, call, shape, limit, rounds) for name, call, shape, limit, rounds in rows()]
    loaded = []
    with busy_cores():
        for before, (name, call, shape, _, rounds) in zip(idle, rows(), strict=True):
            if shape[2] <= MAX_LOADED_LENGTH:
                limit = round(LOAD_LIMIT * before.ratio, 3)
                loaded.append(over_sdpa(f"{name}, busy cores", call, shape, limit, rounds))
    return [*idle, *loaded]


def on_avx2() -> list[Measurement]:
    """Measure the same in a process that is held at AVX2: torch, its BLAS, and our kernels."""
    if platform.machine() != "x86_64":
        return []
    with TemporaryDirectory() as folder:
        compiler = Path(folder, "cc")
        compiler.write_text('#!/bin/sh\nexec cc "$@" -march=haswell\n', encoding="utf-8")
        compiler.chmod(0o755)
        avx2 = {
            "CC": str(compiler), "XDG_CACHE_HOME": folder, "ATEN_CPU_CAPABILITY": "avx2",
            "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        }  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.attention"]
        done = subprocess.run(command, env=os.environ | avx2, stdout=subprocess.PIPE, check=True)
    measured = [Measurement(**fields) for fields in json.loads(done.stdout)]
    return [replace(row, name=f"{row.name}, AVX2") for row in measured]


def over_peers() -> Iterator[Measurement]:
    """Measure the alternatives at the same sequence lengths."""
    # Beyond these lengths each takes gigabytes.
    for shape in (*SHAPES, *((1, 2, length, 64) for length in LONG if length <= MAX_LOADED_LENGTH)):
        for name, call in peers().items():
            yield over_sdpa(name, call, shape)


def rows() -> Iterator[tuple[str, Call, Shape, float, int]]:
    """Yield name, call, shape, limit and rounds of our measurements on a CPU."""
    for shape, grid in SHAPES.items():
        for name, (regularizer, params, limit) in VARIANTS.items():
            yield name, ours(regularizer, grid, params), shape, limit, 30
    for length in LONG:
        for name, limit in LONG_LIMITS.items():
            yield name, ours(name), (1, 2, length, 64), limit, 3 if length > MAX_LOADED_LENGTH else 30


@contextmanager
def busy_cores() -> Iterator[None]:
    """Keep each core busy with a process of its own."""
    command = [sys.executable, "-c", BUSY]
    cores = os.sched_getaffinity(0)
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in cores]
    try:
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def over_sdpa(name: str, call: Call, shape: Shape, limit: float | None = None, rounds: int = 10) -> Measurement:
    """Measure forward and backward time over plain SDPA's, alternating."""
    step = stepper(shape)
    with backend("auto"):
        step(call)
        kernels = "+".join(used_backends())
    detail = {"threads": torch.get_num_threads(), "backend": kernels}
    return compare(
        f"{name}, {'×'.join(map(str, shape))}",
        lambda: step(call),
        "SDPA, nothing dropped",
        lambda: step(scaled_dot_product_attention),
        limit=limit,
        rounds=rounds,
        detail=detail,
    )


def stepper(shape: Shape, **options: Any) -> Callable[[Call], None]:
    """Return a function that runs forward and backward on tensors of this shape, made with `options` of torch.

    The gradient of the output has the layout that it has in models, which merge the heads.
    """
    q, k, v = (torch.randn(shape, requires_grad=True, **options) for _ in range(3))
    batch, heads, length, head_dim = shape
    d_out = torch.randn((batch, length, heads, head_dim), **options).transpose(1, 2)

    def step(call: Call) -> None:
        call(q, k, v).backward(d_out)
        for tensor in (q, k, v):
            tensor.grad = None

    return step


def ours(name: str, grid: Grid | None = None, params: dict[str, object] | None = None, *, causal: bool = False) -> Call:
    """Return attention as models call it."""
    site = Site("benchmark", "encoder-self", 0, 1, 1)
    if grid is not None:
        site.grid, site.num_prefix_tokens = grid
    site.regularizer, site.ratio = build_regularizer(name, ratio=RATIO, **(params or {})), RATIO
    return lambda q, k, v: attend(q, k, v, site, training=True, causal=causal)


def peers() -> dict[str, Call]:
    """Return the alternatives: DropKey in torch operations, torch's dropout, and the paper's algorithm."""
    plain = ours("dropkey")

    def eager(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with backend("eager"):
            return plain(q, k, v)

    return {
        "dropkey by torch's operations": eager,
        "SDPA with dropout_p": lambda q, k, v: scaled_dot_product_attention(q, k, v, dropout_p=RATIO),
        "DropKey, Algorithm 1": algorithm_1,
    }


def algorithm_1(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute DropKey's Algorithm 1, with −1e12 in place of the printed −1e-12; `mask` is added to the logits."""
    logits = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    if mask is not None:
        logits = logits + mask
    logits = logits + torch.bernoulli(torch.full_like(logits, RATIO)) * -1e12
    out: Tensor = logits.softmax(dim=-1) @ v
    return out


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps([asdict(measured) for measured in on_this_cpu()]))
