"""Reusable buffers for masks and weights."""

from __future__ import annotations

from harness.attention.kernels.cpu_masks import BufferPool
from tests.harness.attention.attention_case import needs_compiler


@needs_compiler
def test_buffers_are_reused() -> None:
    pool = BufferPool()
    first = pool.take(pool.MIN_NUMEL)
    address = first.data_ptr()
    second = pool.take(pool.MIN_NUMEL)
    assert second.data_ptr() != address
    view = first[10:]
    del first
    assert pool.take(pool.MIN_NUMEL).data_ptr() != address, "a view keeps its buffer"
    del view
    assert pool.take(pool.MIN_NUMEL).data_ptr() == address
