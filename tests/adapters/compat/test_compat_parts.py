"""Test the replacements of missing compiled code, and the contexts for loading checkpoints."""

from __future__ import annotations

import pickle
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.compat import fairseq_batches, install
from adapters.compat.torchvision import nms

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


@pytest.mark.parametrize(("boxes", "scores"), [((3, 5), (3,)), ((3,), (3,)), ((3, 4), (2,)), ((3, 4), (3, 1))])
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


def test_sentence_longer_than_a_batch_is_refused() -> None:
    with pytest.raises(AssertionError, match="max_tokens=4"):
        fairseq_batches.batch_by_size_vec(np.arange(2), np.array([3, 5]), 4, -1, 1)


def test_batches_of_fixed_shapes() -> None:
    sizes = [2, 2, 2, 5, 6, 6, 6]
    shapes = np.array([[2, 8], [4, 3]])
    batches = fairseq_batches.batch_fixed_shapes_fast(np.arange(7), sizes.__getitem__, shapes)
    assert batches == [[0, 1, 2], [3, 4], [5, 6]]


@pytest.fixture(scope="module")
def compiled() -> Any:
    import fairseq.data.data_utils_fast as module

    if module.__file__ == fairseq_batches.__file__:
        pytest.skip("fairseq was installed without its C++ extensions")
    return module


@given(**BATCH_LIMITS)
@settings(max_examples=300, deadline=None)
def test_batches_equal_those_of_the_compiled_code(
    compiled: Any, sizes: list[int], max_tokens: int, max_sentences: int, multiple: int
) -> None:
    indices, lengths = np.arange(len(sizes)), np.array(sizes, np.int64)
    limits = (max_tokens, max_sentences, multiple)
    ours = fairseq_batches.batch_by_size_vec(indices, lengths, *limits)
    assert [batch.tolist() for batch in ours] == [
        batch.tolist() for batch in compiled.batch_by_size_vec(indices, lengths, *limits)
    ]


@given(
    sizes=st.lists(st.integers(1, 20), max_size=40),
    shapes=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 20)), min_size=1, max_size=4),
)
@settings(max_examples=300, deadline=None)
def test_batches_of_fixed_shapes_equal_those_of_the_compiled_code(
    compiled: Any, sizes: list[int], shapes: list[tuple[int, int]]
) -> None:
    arguments = (np.arange(len(sizes)), sizes.__getitem__, np.array(sorted(shapes), np.int64))
    assert fairseq_batches.batch_fixed_shapes_fast(*arguments) == compiled.batch_fixed_shapes_fast(*arguments)


class TouchesAFile:
    """A hostile pickle that creates a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Path]:
    torch.save({"model": {}, "meta": TouchesAFile(tmp_path / "touched")}, tmp_path / "hostile.pt")
    yield tmp_path / "hostile.pt"
    assert not (tmp_path / "touched").exists()


def test_mmengine_checkpoint_is_loaded_and_a_hostile_one_is_not(tmp_path: Path, hostile: Path) -> None:
    from mmengine.logging import MessageHub
    from mmengine.runner import load_checkpoint

    from adapters.weights import mmengine_checkpoint

    hub = MessageHub("test_mmengine_checkpoint")
    hub.update_scalar("train/loss", 0.25)
    model = torch.nn.Linear(2, 3)
    path = tmp_path / "epoch_1.pth"
    torch.save(
        {"state_dict": model.state_dict(), "message_hub": hub.state_dict(), "meta": {"best": np.float64(1)}}, path
    )
    other = torch.nn.Linear(2, 3)

    with pytest.raises(pickle.UnpicklingError):
        load_checkpoint(other, str(path))
    with mmengine_checkpoint():
        loaded = load_checkpoint(other, str(path))
        with pytest.raises(pickle.UnpicklingError):
            load_checkpoint(other, str(hostile))
    assert torch.equal(other.weight, model.weight)
    assert loaded["message_hub"]["log_scalars"]["train/loss"].data[0].tolist() == [0.25]
    assert loaded["meta"]["best"] == 1
    with pytest.raises(pickle.UnpicklingError):
        load_checkpoint(other, str(path))


class ReachesInside:
    """A hostile pickle that requests an attribute of an allowed type, from which anything can be reached."""

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (np.dtype, "mro")


def test_mmengine_checkpoint_may_only_request_statistics(tmp_path: Path) -> None:
    from adapters.weights import mmengine_checkpoint

    torch.save(ReachesInside(), tmp_path / "hostile.pt")
    with mmengine_checkpoint(), pytest.raises(pickle.UnpicklingError, match="'mro'"):
        torch.load(tmp_path / "hostile.pt", weights_only=True)


def test_fairseq_checkpoint_is_loaded_and_a_hostile_one_is_not(tmp_path: Path, hostile: Path) -> None:
    from fairseq.checkpoint_utils import load_checkpoint_to_cpu

    from adapters.weights import fairseq_checkpoint

    path = tmp_path / "checkpoint_best.pt"
    arrays = {"int": np.arange(3), "float": np.linspace(0, 1, 3, dtype=np.float32), "bool": np.array([True])}
    extra = {"val_loss": np.float32(2.5), "best": np.float64(0.5), "arrays": arrays}
    history = {"criterion_name": "C", "optimizer_name": "FairseqAdam", "lr_scheduler_state": {}, "num_updates": 1}
    state = {
        "args": Namespace(arch="transformer", lr=[0.5]),
        "cfg": None,
        "model": {"w": torch.ones(2)},
        "optimizer_history": [history],
        "extra_state": extra | {"train_iterator": {"epoch": 1}},
    }
    torch.save(state, path)

    with pytest.raises(pickle.UnpicklingError, match="Namespace"):
        load_checkpoint_to_cpu(str(path))
    with fairseq_checkpoint():
        state = load_checkpoint_to_cpu(str(path))
        with pytest.raises(pickle.UnpicklingError):
            load_checkpoint_to_cpu(str(hostile))
    assert state["cfg"]["model"].arch == "transformer"
    assert torch.equal(state["model"]["w"], torch.ones(2))
    assert state["extra_state"]["val_loss"] == np.float32(2.5)
    assert state["extra_state"]["arrays"]["int"].tolist() == [0, 1, 2]
    with pytest.raises(pickle.UnpicklingError, match="Namespace"):
        load_checkpoint_to_cpu(str(path))


def test_numbers_of_numpy_1_are_allowed_under_their_old_names(tmp_path: Path) -> None:
    from adapters.weights import fairseq_checkpoint

    path = tmp_path / "old.pt"
    # NumPy 1 writes numpy.core, NumPy 2 writes numpy._core.
    torch.save({"loss": np.float64(2.5), "ids": np.arange(3)}, path, _use_new_zipfile_serialization=False)
    old = path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert old != path.read_bytes()
    path.write_bytes(old)
    with fairseq_checkpoint():
        state = torch.load(path, weights_only=True)
    assert state["loss"] == 2.5
    assert state["ids"].tolist() == [0, 1, 2]
