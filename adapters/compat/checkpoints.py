"""Loading the checkpoints of mmengine and fairseq without trusting them.

Both libraries call `torch.load` with its default, weights_only=True, which refuses the few harmless types beside the
tensors. Around one such load, these contexts allow exactly those; arbitrary pickles stay refused.
"""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager
from pickle import UnpicklingError
from typing import Any

import numpy as np
from numpy._core import multiarray
from torch.serialization import safe_globals


def _numpy_numbers() -> list[Any]:
    """What NumPy's numbers and numeric arrays are pickled with, by their names in NumPy 2 and in NumPy 1."""
    builders = [multiarray._reconstruct, multiarray.scalar]
    old_names = [(build, f"numpy.core.multiarray.{build.__name__}") for build in builders]
    numeric = {type(np.dtype(code)) for code in "?" + np.typecodes["AllInteger"] + np.typecodes["Float"]}
    return [*builders, *old_names, np.ndarray, np.dtype, *numeric]


def _statistic(owner: Any, name: str) -> Any:
    """What takes the place of `getattr`, by which a HistoryBuffer's pickle names its own methods, and no more."""
    from mmengine.logging import HistoryBuffer

    if owner is not HistoryBuffer or name not in ("current", "max", "mean", "min"):
        raise UnpicklingError(f"the checkpoint asks for attribute {name!r} of {owner!r}")
    return getattr(owner, name)


def mmengine_checkpoint() -> AbstractContextManager[None]:
    """Allow what mmengine's Runner saves beside the weights: the history of its logs."""
    from mmengine.logging import HistoryBuffer

    return safe_globals([HistoryBuffer, (_statistic, "builtins.getattr"), *_numpy_numbers()])


def fairseq_checkpoint() -> AbstractContextManager[None]:
    """Allow what fairseq's Trainer saves beside the weights: its arguments and meters."""
    return safe_globals([argparse.Namespace, *_numpy_numbers()])
