"""Test the replacements of missing compiled code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dropbench.adapters.compat import fairseq_batches, install
from dropbench.adapters.compat.torchvision import nms

install()


def reference_nms(boxes: list[list[float]], scores: list[float], threshold: float) -> list[int]:
    kept: list[int] = []
    for index in sorted(range(len(boxes)), key=lambda index: -scores[index]):
        x1, y1, x2, y2 = boxes[index]
        for index_kept in kept:
            u1, v1, u2, v2 = boxes[index_kept]
            intersection = max(0.0, min(x2, u2) - max(x1, u1)) * max(0.0, min(y2, v2) - max(y1, v1))
            union = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - intersection
            if union > 0 and intersection / union > threshold:
                break
        else:
            kept.append(index)
    return kept


# Coordinates on a small grid: many boxes touch, are equal or empty, or have exactly the threshold as IoU.
GRID_BOXES = st.lists(st.tuples(*[st.integers(0, 4)] * 4, st.integers(0, 3)), max_size=30)


@given(rows=GRID_BOXES, threshold=st.sampled_from([0.0, 0.25, 0.5, 1.0]))
@settings(max_examples=100, deadline=None)
def test_nms_equals_the_definition(rows: list[tuple[int, ...]], threshold: float) -> None:
    boxes = [[float(min(a, c)), float(min(b, d)), float(max(a, c)), float(max(b, d))] for a, b, c, d, _ in rows]
    scores = [float(row[4]) for row in rows]
    kept = nms(torch.tensor(boxes).reshape(-1, 4), torch.tensor(scores), threshold)
    assert kept.dtype == torch.int64
    assert kept.tolist() == reference_nms(boxes, scores, threshold)


def test_nms_equals_the_operator_that_torchvision_calls() -> None:
    from torchvision.ops import batched_nms
    from torchvision.ops import nms as operator

    generator = torch.Generator().manual_seed(0)
    corners = torch.rand(400, 2, generator=generator) * 50
    boxes = torch.cat([corners, corners + torch.rand(400, 2, generator=generator) * 20], dim=1)
    scores = torch.rand(400, generator=generator)
    kept = operator(boxes, scores, 0.4)
    assert kept.tolist() == nms(boxes, scores, 0.4).tolist()
    assert 0 < len(kept) < 400
    separate = batched_nms(boxes, scores, torch.arange(400), 0.4)
    assert len(separate) == 400, "boxes of different classes do not suppress each other"


@pytest.mark.parametrize(("boxes", "scores"), [((3, 5), (3,)), ((3, 4), (2,))])
def test_nms_refuses_other_shapes(boxes: tuple[int, ...], scores: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="boxes"):
        nms(torch.zeros(boxes), torch.zeros(scores), 0.5)


BATCH_LIMITS = {
    "sizes": st.lists(st.integers(1, 20), max_size=60),
    "max_tokens": st.sampled_from([-1, 20, 31, 100]),
    "max_sentences": st.sampled_from([-1, 1, 3, 8]),
    "multiple": st.sampled_from([1, 2, 7, 8]),
}


@given(**BATCH_LIMITS)
@settings(max_examples=200, deadline=None)
def test_batches_keep_order_and_limits(sizes: list[int], max_tokens: int, max_sentences: int, multiple: int) -> None:
    indices = np.arange(len(sizes), dtype=np.int64)[::-1].copy()
    batches = fairseq_batches.batch_by_size_vec(indices, np.array(sizes, np.int64), max_tokens, max_sentences, multiple)
    assert [index for batch in batches for index in batch] == indices.tolist()
    start = 0
    for batch in batches:
        assert 0 < len(batch) <= (max_sentences if max_sentences > 0 else len(sizes))
        longest = max(sizes[start : start + len(batch)])
        assert max_tokens <= 0 or len(batch) * longest <= max_tokens
        start += len(batch)


@pytest.mark.parametrize(
    ("sizes", "max_tokens", "max_sentences", "multiple", "expected"),
    [
        # 3 × 4 tokens fit into 12, 4 × 5 do not.
        ([2, 3, 4, 5, 6, 7], 12, -1, 1, [3, 2, 1]),
        # At most 5 sentences, but 4 is the largest multiple of 4.
        ([1] * 10, -1, 5, 4, [4, 4, 2]),
        # Below the multiple, any size is allowed.
        ([5, 5, 5], 10, -1, 8, [2, 1]),
        ([3, 3], -1, -1, 1, [2]),
        ([], 10, 10, 1, []),
    ],
)
def test_batches_of_known_sizes(
    sizes: list[int], max_tokens: int, max_sentences: int, multiple: int, expected: list[int]
) -> None:
    indices = np.arange(len(sizes), dtype=np.int64)
    limits = (max_tokens, max_sentences, multiple)
    by_vector = fairseq_batches.batch_by_size_vec(indices, np.array(sizes, np.int64), *limits)
    by_function = fairseq_batches.batch_by_size_fn(indices, sizes.__getitem__, *limits)
    assert [len(batch) for batch in by_vector] == [len(batch) for batch in by_function] == expected
    with pytest.raises(AssertionError, match="max_tokens=4"):
        fairseq_batches.batch_by_size_vec(np.arange(2), np.array([3, 5]), 4, -1, 1)


def test_batches_of_fixed_shapes() -> None:
    sizes = [2, 2, 2, 5, 6, 6, 6]
    shapes = np.array([[2, 8], [4, 3]])
    batches = fairseq_batches.batch_fixed_shapes_fast(np.arange(7), sizes.__getitem__, shapes)
    assert batches == [[0, 1, 2], [3, 4], [5, 6]]
