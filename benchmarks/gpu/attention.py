"""Measure regularized attention on a GPU, forward and backward in bfloat16, against SDPA's kernels.

``python -m benchmarks.gpu.attention`` prints the rows as JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.attention import RATIO, VARIANTS, Call, ours, stepper
from benchmarks.measure import Measurement, compare
from dropbench.harness.attention.backends import backend, used_backends

LENGTHS = {1024: 32, 4096: 64, 16384: 128}
"""Tokens → rows of their grid."""
BATCH, HEADS, HEAD_DIM = 8, 16, 64
LIMIT, MEMORY_LIMIT = 1.15, 1.05
FLASH = "FlashAttention-2, nothing dropped"
NOTE = """\
Time on the GPU, from CUDA graphs, except "one call at a time", which includes the launches from Python and a wait
after each step. FlashAttention-2 is the one in torch; torch itself chooses cuDNN for these shapes on an H100."""


def gpu_attention() -> list[Measurement]:
    """Measure time on the GPU and peak memory; none without a GPU."""
    if not torch.cuda.is_available():
        print("gpu-attention: skipped: torch finds no GPU", file=sys.stderr)
        return []
    torch.manual_seed(0)
    return [one for length, side in LENGTHS.items() for one in of_length(length, side)]


def of_length(length: int, side: int) -> Iterator[Measurement]:
    """Measure each regularizer whose mask is not stored, and FlashAttention's own dropout, at one length."""
    shape = BATCH, HEADS, length, HEAD_DIM
    step = stepper(shape, device="cuda", dtype=torch.bfloat16)
    title = f"{'×'.join(map(str, shape))}, bfloat16 on {torch.cuda.get_device_name()}"
    calls = {
        name: ours(regularizer, ((side, side), 0), params)
        for name, (regularizer, params, _) in VARIANTS.items()
        if regularizer != "dropkey-cross"
    }
    flash = graph_of(step, of_backend(SDPBackend.FLASH_ATTENTION))
    rounds = 20 if length < max(LENGTHS) else 8
    with backend("auto"):
        for call in calls.values():
            step(call)
        assert used_backends() == ["triton"], used_backends()
    for name, call in calls.items():
        yield compare(f"{name}, {title}", graph_of(step, call), FLASH, flash, limit=LIMIT, rounds=rounds)
    for name, other in {
        "SDPA by the kernel that torch chooses": scaled_dot_product_attention,
        "FlashAttention-2 with its dropout": of_backend(SDPBackend.FLASH_ATTENTION, dropout_p=RATIO),
    }.items():
        yield compare(f"{name}, {title}", graph_of(step, other), FLASH, flash, limit=None, rounds=rounds)
    del flash
    torch.cuda.empty_cache()

    def eager(call: Call) -> Callable[[], None]:
        def call_and_wait() -> None:
            step(call)
            torch.cuda.synchronize()

        return call_and_wait

    yield compare(
        f"dropkey, one call at a time, {title}", eager(calls["dropkey"]), FLASH,
        eager(of_backend(SDPBackend.FLASH_ATTENTION)), limit=None, rounds=rounds,
    )  # fmt: skip
    mine, theirs = (peak_memory(step, call) for call in (calls["dropkey"], of_backend(SDPBackend.FLASH_ATTENTION)))
    yield Measurement(
        f"peak memory, dropkey, {title}", FLASH, round(mine / theirs, 3), MEMORY_LIMIT, mine >> 20, theirs >> 20, "MiB"
    )


def of_backend(kernel: SDPBackend, dropout_p: float = 0.0) -> Call:
    """Return SDPA by one of its kernels."""

    def call(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        with sdpa_kernel(kernel):
            return scaled_dot_product_attention(q, k, v, dropout_p=dropout_p)

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

    def replay() -> None:
        graph.replay()
        torch.cuda.synchronize()

    return replay


def peak_memory(step: Callable[[Call], None], call: Call) -> int:
    """Return the peak bytes of forward and backward."""
    step(call)
    torch.cuda.reset_peak_memory_stats()
    step(call)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


if __name__ == "__main__":
    print(json.dumps([asdict(measured) for measured in gpu_attention()]))
