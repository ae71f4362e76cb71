"""The Triton kernels compute the same function of the same random bits as torch operations, and compile for GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.attention.kernels.cpu_masks import MaskFiller
from harness.attention.kernels.triton_launch import TritonAttention
from harness.attention.reference.drop_masks import sample_spec
from tests.harness.attention.attention_case import Case, Drop, needs_compiler, needs_triton
from tests.paths import ROOT

KERNELS = "fwd_kernel", "bwd_dq_kernel", "bwd_dkdv_kernel"

CASES: list[Callable[[], Case]] = [
    lambda: Case(Drop("element"), "renormalize", ratio=0.9, batch_heads=(1, 2)),
    lambda: Case(Drop("element", 3), "renormalize", "padding", batch_heads=(2, 1)),
    lambda: Case(Drop("element", 33, seqlen_k=130), "inverse", "additive", batch_heads=(1, 1)),
    lambda: Case(Drop("column", 2), "renormalize", "rows", causal=True, batch_heads=(1, 2)),
    lambda: Case(Drop("column"), "inverse", "padding", batch_heads=(1, 2)),
    lambda: Case(Drop("block", 3, (7, 9), 2), "renormalize", batch_heads=(1, 1)),
    lambda: Case(Drop("block", 4, (5, 40), 1, 201), "inverse", ratio=0.2, batch_heads=(1, 1)),
    lambda: Case(Drop("element"), "inverse", causal=True, head_dim=24, batch_heads=(1, 1)),
]
"""Each mask type, unit and rescaling mode once, as the interpreter takes seconds per case; 130 keys are two blocks."""


@needs_triton
@pytest.mark.parametrize("number", [*range(6), pytest.param(6, marks=pytest.mark.slow), 7])
def test_triton_matches_eager(number: int) -> None:
    CASES[number]().assert_matches_eager("triton")


@needs_triton
def test_triton_matches_eager_in_half_precision() -> None:
    Case(Drop("element"), "renormalize", "additive", dtype=torch.float16, batch_heads=(1, 1)).assert_matches_eager(
        "triton", 1e-2
    )


@needs_triton
@needs_compiler
@pytest.mark.parametrize(
    "drop",
    [Drop("element", seqlen_k=67), Drop("element", 33, seqlen_k=130), Drop("column", 2), Drop("block", 3, (7, 9), 2)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("ratio", [0.0, 0.4, 1.0])
def test_stored_bits_equal_those_of_the_cpu_kernel(drop: Drop, ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits of one head at a time, of rows that keep all keys if they would lose them all."""
    shape = batch, heads, rows, seqlen_k = 1, 2, 37, drop.seqlen_k
    spec = sample_spec(drop.unit, ratio, drop.window, seqlen_k, drop.grid, drop.num_prefix_tokens, stream=3)
    q, k = torch.zeros(batch, heads, rows, 16), torch.zeros(batch, heads, seqlen_k, 16)
    expected = torch.empty(heads, rows, seqlen_k)
    MaskFiller(spec, shape).fill(expected, 0, 0)
    monkeypatch.setattr("harness.attention.kernels.triton_launch.MAX_BITS", 1)
    attention = TritonAttention(q, k, k, None, spec, None, causal=False, scale=1.0)
    for number, (first_bh, bits) in enumerate(attention.drop_bits()):
        assert (first_bh, len(bits)) == (number, 1)
        unpacked = (bits[0, :, :, None] >> torch.arange(32)) & 1
        unpacked = unpacked.flatten(1).expand(rows, -1).bool()
        assert torch.equal(unpacked[:, :seqlen_k], expected[number] == float("-inf"))
        assert unpacked[:, seqlen_k:].all()


@needs_triton
def test_blocks_shrink_until_they_fit_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.errors import OutOfResources

    from harness.attention.kernels import triton_kernels

    block_sizes: list[int] = []

    class SmallSharedMemory:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
            def launch(*args: Any, **constants: Any) -> None:
                block_sizes.append(max(constants["BLOCK_M"], constants["BLOCK_N"]))
                if block_sizes[-1] > 32:
                    raise OutOfResources(10**6, 10**5, "shared memory")
                self.kernel[grid](*args, **constants)

            return launch

    for name in KERNELS:
        monkeypatch.setattr(triton_kernels, name, SmallSharedMemory(getattr(triton_kernels, name)))
    Case(Drop("element"), "renormalize", batch_heads=(1, 1)).assert_matches_eager("triton")
    assert block_sizes == [64, 32] * 3


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "capability", "max_kib"),
    [
        (("bfloat16", "64", "element", "renormalize"), 86, 99),
        (("float32", "64", "element", "inverse"), 86, 99),
        (("float16", "128", "column", "renormalize"), 80, 163),
    ],
    ids=str,
)
def test_kernels_compile_for_gpus(
    variant: tuple[str, ...], capability: int, max_kib: int, tmp_path: Path
) -> None:  # fmt: skip
    """Compile for GPUs with `max_kib` KiB of shared memory per block; no GPU is needed."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.harness.attention.kernels.compile_kernels", *variant, str(capability)]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**env, "TRITON_CACHE_DIR": str(tmp_path)}, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    shared_memory = json.loads(done.stdout)
    assert set(KERNELS) <= set(shared_memory)
    assert 0 < max(shared_memory.values()) <= max_kib * 1024
