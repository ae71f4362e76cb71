"""The count of instructions, and the designs that it compares."""

from __future__ import annotations

import subprocess
from collections.abc import Generator

import pytest
import torch
from torch import Tensor

from benchmarks.gpu import instructions
from harness.attention.kernels.triton_launch import TritonAttention
from harness.attention.reference.drop_masks import sample_spec
from tests.harness.attention.attention_case import needs_triton
from tests.paths import ROOT


def test_a_loop_goes_from_a_label_to_the_jump_back_to_it() -> None:
    code = [".L_x_0:", "first", ".L_x_1:", "second", "@P0 BRA `(.L_x_1)", "BRA `(.L_x_2)", "BRA `(.L_x_0)", ".L_x_2:"]
    assert instructions.loops(code) == [code[2:5], code[:7]]


@needs_triton
@pytest.mark.parametrize("design", ["eight_bits", "bit_planes"])
def test_designs_drop_each_key_by_itself_at_the_ratio(design: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.gpu import designs
    from harness.attention.kernels import triton_kernels

    monkeypatch.setattr(triton_kernels, "load_words", designs.counters)
    monkeypatch.setattr(triton_kernels, "unpack_words", getattr(designs, design))
    q, v = torch.zeros(1, 2, 64, 16), torch.eye(64).expand(1, 2, 64, 64)
    spec = sample_spec("element", 0.3, 1, 64)
    attention = TritonAttention(q, q, v, None, spec, None, causal=False, scale=1.0)
    monkeypatch.setattr(attention, "drop_bits", _no_bits)
    dropped = (attention.forward()[0] == 0).float().flatten(0, 2)
    assert dropped.mean().item() == pytest.approx(77 / 256, abs=0.02)
    assert torch.corrcoef(dropped.T).fill_diagonal_(0).abs().max() < 0.5
    assert torch.corrcoef(dropped).fill_diagonal_(0).abs().max() < 0.7


def _no_bits(saved: Tensor) -> Generator[tuple[int, Tensor]]:
    yield 0, saved


@pytest.mark.slow
@needs_triton
def test_stored_bits_need_half_the_instructions_of_bits_drawn_in_each_pass() -> None:
    commit = f"{instructions.PEER_COMMIT}^{{commit}}"
    if subprocess.run(["git", "cat-file", "-e", commit], cwd=ROOT, check=False, capture_output=True).returncode:
        pytest.skip("the peer's commit is not in this clone")
    found = {one.name: one for one in instructions.gpu_instructions()}
    assert len(found) == 4 * len(instructions.DESIGNS)
    for name in (*instructions.PASSES, "training step"):
        none, stored, planes = (found[f"{instructions.DESIGNS[design]}, {name}"] for design in
                                ("no_bits", "stored_bits", "bit_planes"))  # fmt: skip
        assert 0 < none.ours < stored.ours < planes.ours < stored.peer
        assert stored.ratio == pytest.approx(stored.ours / stored.peer, abs=0.01)
        assert stored.ratio <= instructions.LIMIT
    for one in found.values():
        passes = {kernel: counts for kernel, counts in one.detail["ours"].items() if kernel in instructions.PASSES}
        assert passes
        assert all(counts["matrix"] > 0 and counts["MUFU"] >= 1 for counts in passes.values())
