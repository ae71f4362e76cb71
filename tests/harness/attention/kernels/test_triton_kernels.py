"""The Triton kernels compute the same function of the same random bits as torch operations, and compile for GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from dropbench.harness.attention.kernels import triton_launch, triton_layout
from dropbench.harness.attention.kernels.triton_launch import TritonAttention
from dropbench.harness.attention.kernels.triton_runtime import Launch
from tests.harness.attention.attention_case import Case, Drop, needs_triton
from tests.paths import ROOT

KERNELS = "fwd_kernel", "bwd_dq_kernel", "bwd_dkdv_kernel"

CASES: list[Callable[[], Case]] = [
    lambda: Case(Drop("element"), "renormalize", ratio=0.9, batch_heads=(1, 2)),
    lambda: Case(Drop("element", 3), "renormalize", "padding", batch_heads=(2, 1)),
    lambda: Case(Drop("element", 33, seqlen_k=130), "inverse", "additive", batch_heads=(1, 1)),
    lambda: Case(Drop("column", 2), "renormalize", "rows", causal=True, batch_heads=(1, 2)),
    lambda: Case(Drop("column"), "inverse", "padding", batch_heads=(1, 2)),
    lambda: Case(Drop("block", 3, (7, 9), 2), "renormalize", "rows", causal=True, batch_heads=(1, 1)),
    lambda: Case(Drop("block", 4, (5, 40), 1, 201), "inverse", ratio=0.2, batch_heads=(1, 1)),
    lambda: Case(Drop("element"), "inverse", causal=True, head_dim=24, batch_heads=(1, 1)),
    lambda: Case(Drop("block", 3, (5, 40), 1, 201), "renormalize", causal=True, seqlen_q=201, batch_heads=(1, 1)),
    lambda: Case(Drop("column", seqlen_k=201), "inverse", causal=True, seqlen_q=201, batch_heads=(1, 1)),
    lambda: Case(Drop("element", seqlen_k=201), "inverse", causal=True, seqlen_q=201, batch_heads=(1, 1)),
]
"""Each mask type, unit and rescaling mode once, as the interpreter takes seconds per case; 130 keys are two blocks."""


@needs_triton
@pytest.mark.parametrize("number", [*range(6), pytest.param(6, marks=pytest.mark.slow), *range(7, 11)])
def test_triton_matches_eager(number: int) -> None:
    CASES[number]().assert_matches_eager("triton")


@needs_triton
def test_triton_matches_eager_in_half_precision() -> None:
    Case(Drop("element"), "renormalize", "additive", dtype=torch.float16, batch_heads=(1, 1)).assert_matches_eager(
        "triton", 1e-2
    )


@needs_triton
@pytest.mark.parametrize("max_bits", [1, 2**27])
def test_the_backward_pass_makes_bits_again_only_if_they_are_not_saved(
    max_bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton_layout, "_max_bits", lambda q: max_bits)
    calls: list[str] = []
    drop_bits = TritonAttention.drop_bits

    def counted(self: TritonAttention, saved: Tensor, *, made: bool = False) -> Generator[tuple[int, Tensor]]:
        calls.append("found" if made else "made")
        return drop_bits(self, saved, made=made)

    monkeypatch.setattr(TritonAttention, "drop_bits", counted)
    Case(Drop("element", 3), "renormalize", "padding", batch_heads=(2, 1)).assert_matches_eager("triton")
    assert calls == ["made", "made" if max_bits == 1 else "found"]


@needs_triton
@pytest.mark.parametrize("max_bits", [1, 2**27])
@pytest.mark.parametrize("drop", [Drop("element"), Drop("column")], ids=str)
def test_fake_tensors_match_real_ones(drop: Drop, max_bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers rely on the shapes, strides and dtypes of both passes' results."""
    monkeypatch.setattr(triton_layout, "_max_bits", lambda q: max_bits)
    case = Case(drop, "renormalize", batch_heads=(1, 2))
    q, k, v = (tensor.detach() for tensor in (case.q, case.k, case.v))
    inputs: Any = q, k, v, None, None, *case.spec.flatten(), "triton", False, 0.25, False, 0
    check: Any = torch.library.opcheck
    check(torch.ops.dropbench.drop_attention.default, inputs, test_utils="test_faketensor")
    outputs = torch.ops.dropbench.drop_attention(*inputs)
    check(
        torch.ops.dropbench.drop_attention_backward.default, (case.d_out, *outputs, *inputs),
        test_utils="test_faketensor",
    )  # fmt: skip


@needs_triton
def test_blocks_shrink_until_they_fit_in_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.runtime.errors import OutOfResources

    from dropbench.harness.attention.kernels import triton_kernels

    block_sizes: list[tuple[int, int]] = []

    class SmallSharedMemory:
        def __init__(self, kernel: Any) -> None:
            self.kernel = kernel

        def __getitem__(self, grid: tuple[int, int]) -> Callable[..., None]:
            def launch(*args: Any, **constants: Any) -> None:
                block_sizes.append((constants["BLOCK_M"], constants["BLOCK_N"]))
                if max(block_sizes[-1]) > 32:
                    raise OutOfResources(10**6, 10**5, "shared memory")
                self.kernel[grid](*args, **constants)

            return launch

    for name in KERNELS:
        monkeypatch.setattr(triton_kernels, name, SmallSharedMemory(getattr(triton_kernels, name)))
    Case(Drop("element"), "renormalize", batch_heads=(1, 1)).assert_matches_eager("triton")
    assert block_sizes == [(64, 64), (64, 32), (32, 32)] * 2 + [(32, 64), (32, 32)]


@needs_triton
@pytest.mark.parametrize("mask_type", ["rows", "additive"])
def test_rows_of_a_mask_may_lie_more_than_two_gigabytes_apart(mask_type: str) -> None:
    case = Case(Drop("element", seqlen_k=4), "renormalize", mask_type, seqlen_q=3, batch_heads=(1, 1))
    assert case.mask is not None
    # Memory that is not written takes no place.
    far = torch.empty(2**31 + 64, dtype=case.mask.dtype).as_strided((3, 4), (2**30, 1))
    case.mask = far.copy_(case.mask.view(3, 4))
    case.assert_matches_eager("triton")


@needs_triton
def test_masked_keys_are_found_by_the_maximum_of_their_own_row() -> None:
    case = Case(Drop("element", seqlen_k=4), "renormalize", "additive", seqlen_q=40, batch_heads=(2, 2))
    assert case.mask is not None
    case.mask = case.mask.expand(2, 1, 40, 4) - 100.0 * (torch.arange(80) % 2).view(2, 1, 40, 1)
    case.assert_matches_eager("triton")


def test_tensors_are_copied_if_offsets_in_a_head_take_more_than_32_bits() -> None:
    def strided(*strides: int) -> Tensor:
        return torch.empty_strided((1, 2, 3, 16), strides, dtype=torch.float16, device="meta")

    for near in (strided(0, 2**40, 32, 1), strided(2**40, 1, 2**30 - 8, 1)):
        assert triton_launch._near(near) is near
    for far in (strided(0, 0, 2**30, 1), strided(0, 0, 0, 0), strided(1, 1, 1, 2**20)):
        assert triton_launch._near(far).is_contiguous()


@needs_triton
@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(64, 128), (128, 192), (192, 128), (128, 65)])
@pytest.mark.parametrize("head_dim", [24, 64, 128])
def test_loads_are_unchecked_only_where_all_tiles_are_within_bounds(
    seqlen_q: int, seqlen_k: int, head_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches: list[dict[str, Any]] = []
    monkeypatch.setattr(Launch, "__call__", lambda self, tensors, numbers: launches.append(self.constants))
    q, k = (torch.zeros(1, 1, size, head_dim, dtype=torch.float16) for size in (seqlen_q, seqlen_k))
    spec = Case(Drop("element", seqlen_k=seqlen_k), "renormalize").spec
    attention = TritonAttention(q, k, k, None, spec, None, causal=False, scale=1.0)
    out, *rest = attention.forward()
    attention.backward(out, out, *rest)
    passes = [constants for constants in launches if "EVEN" in constants]
    assert len(passes) == 3
    for constants in passes:
        fits = seqlen_q % constants["BLOCK_M"] == seqlen_k % constants["BLOCK_N"] == 0 and head_dim in (64, 128)
        assert constants["EVEN"] == fits
        assert max(constants["BLOCK_M"], constants["BLOCK_N"]) == (128 if head_dim == 128 else 64)


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
