"""Test the contexts for loading untrusted checkpoints of mmengine and fairseq."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dropbench.adapters.weights import detector_checkpoint
from tests.damage import TouchesAFile


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Path]:
    torch.save({"model": {}, "meta": TouchesAFile(tmp_path / "touched")}, tmp_path / "hostile.pt")
    yield tmp_path / "hostile.pt"
    assert not (tmp_path / "touched").exists()


def test_detector_checkpoint_is_loaded_and_a_hostile_one_is_not(tmp_path: Path, hostile: Path) -> None:
    from mmengine.logging import MessageHub
    from mmengine.runner import load_checkpoint

    hub = MessageHub("test_detector_checkpoint")
    hub.update_scalar("train/loss", 0.25)
    model = torch.nn.Linear(2, 3)
    path = tmp_path / "epoch_1.pth"
    torch.save(
        {"state_dict": model.state_dict(), "message_hub": hub.state_dict(), "meta": {"best": np.float64(1)}}, path
    )
    other = torch.nn.Linear(2, 3)

    with pytest.raises(pickle.UnpicklingError):
        load_checkpoint(other, str(path))
    with detector_checkpoint():
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


def test_detector_checkpoint_may_only_request_statistics(tmp_path: Path) -> None:
    torch.save(ReachesInside(), tmp_path / "hostile.pt")
    with detector_checkpoint(), pytest.raises(pickle.UnpicklingError, match="'mro'"):
        torch.load(tmp_path / "hostile.pt", weights_only=True)


def test_numbers_of_numpy_1_are_allowed_under_their_old_names(tmp_path: Path) -> None:
    path = tmp_path / "old.pt"
    # NumPy 1 writes numpy.core, NumPy 2 writes numpy._core.
    torch.save({"loss": np.float64(2.5), "ids": np.arange(3)}, path, _use_new_zipfile_serialization=False)
    old = path.read_bytes().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    assert old != path.read_bytes()
    path.write_bytes(old)
    with detector_checkpoint():
        state = torch.load(path, weights_only=True)
    assert state["loss"] == 2.5
    assert state["ids"].tolist() == [0, 1, 2]
