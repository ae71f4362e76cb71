"""Counting the instructions of Triton kernels."""

from __future__ import annotations

import pytest

from benchmarks.gpu import instructions
from tests.harness.attention.attention_case import needs_triton


def test_a_loop_goes_from_a_label_to_the_jump_back_to_it() -> None:
    code = [".L_x_0:", "first", ".L_x_1:", "second", "@P0 BRA `(.L_x_1)", "BRA `(.L_x_2)", "BRA `(.L_x_0)", ".L_x_2:"]
    assert instructions.loops(code) == [code[2:5], code[:7]]


@pytest.mark.slow
@needs_triton
def test_the_kernels_keep_their_budgets_of_instructions() -> None:
    rows = instructions.gpu_instructions()
    assert [row.name for row in rows] == [*instructions.PASSES, "training step"]
    *passes, training_step = rows
    assert training_step.ours > sum(row.ours for row in passes), "it also makes the bits"
    for row in rows:
        assert 0 < row.ratio == pytest.approx(row.ours / row.peer, abs=0.01)
        assert row.ratio <= 1
    classes = training_step.detail["classes"]
    assert all(classes[kernel]["matrix"] > 0 and classes[kernel]["MUFU"] >= 1 for kernel in instructions.PASSES)
