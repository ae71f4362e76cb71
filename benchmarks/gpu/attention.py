"""Measure regularized attention on a GPU, forward and backward in bfloat16, against SDPA's kernels."""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from multiprocessing import get_context

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention import RATIO, VARIANTS, Call, ours, stepper
from benchmarks.measure import Measurement, compare, interleave, measurement
from dropbench.harness.attention.backends import backend, used_backends

GRIDS = {512: (16, 32), 1024: (32, 32), 2048: (32, 64), 4096: (64, 64), 8192: (64, 128), 16384: (128, 128)}
"""Tokens → their grid."""
BATCH, HEADS, HEAD_DIMS = 8, 16, (64, 128)
LIMIT, MEMORY_LIMIT = 1.15, 1.05
FLASH = "FlashAttention-2, nothing dropped"
CHOICE = "SDPA by the kernel that torch chooses, nothing dropped"
NOTE = """\
8 × 16 heads, bfloat16, forward and backward. Time on the GPU, from CUDA graphs, except "one call at a time", which
includes the launches from Python and a wait after each step. FlashAttention-2 is the one in torch; torch itself chooses
cuDNN for these shapes on an H100 and an H200."""


def gpu_attention() -> list[Measurement]:
    """Measure time on the GPU and peak memory, the most usual lengths first; none without a GPU."""
    if not torch.cuda.is_available():
        print("gpu-attention: skipped: torch finds no GPU", file=sys.stderr)
        return []
    cases = list(product(GRIDS, HEAD_DIMS, (False, True)))
    compile_all(sorted({case[1:] for case in cases}))
    torch.manual_seed(0)
    return [row for case in cases for row in of_shape(*case)] + one_at_a_time()


def compile_all(kinds: list[tuple[int, bool]]) -> None:
    """Compile the kernels in parallel; Triton keeps them on the disk."""
    jobs = [(name, *kind) for name in VARIANTS for kind in kinds]
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("spawn")) as pool:
        list(pool.map(compile_one, jobs))


def compile_one(job: tuple[str, int, bool]) -> None:
    """Compile the kernels of a variant, for a head dimension, causal or not."""
    name, head_dim, causal = job
    step = stepper((1, HEADS, 512, head_dim), device="cuda", dtype=torch.bfloat16)
    if (call := variants(512, causal=causal).get(name)) is not None:
        step(call)


def variants(length: int, *, causal: bool) -> dict[str, Call]:
    """Return each regularizer whose mask is not stored."""
    return {
        name: ours(regularizer, (GRIDS[length], 0), params, causal=causal)
        for name, (regularizer, params, _) in VARIANTS.items()
        if regularizer != "dropkey-cross"
    }


def of_shape(length: int, head_dim: int, causal: bool) -> Iterator[Measurement]:
    """Measure each regularizer, FlashAttention's own dropout and torch's choice at one shape."""
    step = stepper((BATCH, HEADS, length, head_dim), device="cuda", dtype=torch.bfloat16)
    title = f"{length} tokens of {head_dim}{', causal' if causal else ''}"
    calls = variants(length, causal=causal)
    with backend("auto"):
        for call in calls.values():
            step(call)
        assert used_backends() == ["triton"], used_backends()
    peers = {
        FLASH: of_backend(SDPBackend.FLASH_ATTENTION, causal=causal),
        CHOICE: lambda q, k, v: scaled_dot_product_attention(q, k, v, is_causal=causal),
        "FlashAttention-2 with its dropout": of_backend(SDPBackend.FLASH_ATTENTION, dropout_p=RATIO, causal=causal),
    }
    graphs = [graph_of(step, call) for call in (*peers.values(), *calls.values())]
    flash, choice, dropping, *regularized = interleave(graphs, max(3, min(20, 2**15 // length)))
    for name, seconds in zip(calls, regularized, strict=True):
        yield measurement(f"{name}, {title}", seconds, FLASH, flash, limit=LIMIT)
    yield measurement(f"dropkey, {title}", regularized[0], CHOICE, choice, limit=None)
    yield measurement(f"FlashAttention-2 with its dropout, {title}", dropping, FLASH, flash, limit=None)
    del graphs
    gc.collect()  # what earlier benchmarks left would count as memory
    torch.cuda.empty_cache()
    if head_dim == min(HEAD_DIMS) and not causal:
        mine, theirs = (peak_memory(step, call) for call in (calls["dropkey"], peers[FLASH]))
        sides = round(mine / theirs, 3), MEMORY_LIMIT, mine >> 20, theirs >> 20, "MiB"
        yield Measurement(f"peak memory, dropkey, {title}", FLASH, *sides)


def one_at_a_time() -> list[Measurement]:
    """Measure calls of which each waits for the GPU."""
    step = stepper((BATCH, HEADS, 1024, 64), device="cuda", dtype=torch.bfloat16)
    calls = variants(1024, causal=False)["dropkey"], of_backend(SDPBackend.FLASH_ATTENTION)
    mine, flash = (waiting(partial(step, call)) for call in calls)
    return [compare("dropkey, one call at a time, 1024 tokens of 64", mine, FLASH, flash, limit=None, rounds=20)]


def waiting(call: Callable[[], object]) -> Callable[[], None]:
    """Return a function that calls another and waits for the GPU."""

    def call_and_wait() -> None:
        call()
        torch.cuda.synchronize()

    return call_and_wait


def of_backend(kernel: SDPBackend, dropout_p: float = 0.0, *, causal: bool = False) -> Call:
    """Return SDPA by one of its kernels."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(kernel):
            return scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=causal)

    return call


def graph_of(step: Callable[[Call], None], call: Call) -> Callable[[], None]:
    """Return a function that repeats a step on the GPU and waits for it, without the time of its launches."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):  # compiles kernels
            step(call)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with warnings.catch_warnings(), torch.cuda.graph(graph):
        warnings.simplefilter("ignore")  # that all replays drop the same
        step(call)

    return waiting(graph.replay)


def peak_memory(step: Callable[[Call], None], call: Call) -> int:
    """Return the peak bytes of forward and backward."""
    step(call)
    torch.cuda.reset_peak_memory_stats()
    step(call)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
