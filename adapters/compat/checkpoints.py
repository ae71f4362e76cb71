"""Contexts for loading untrusted checkpoints of mmengine and fairseq.

Both libraries call `torch.load` with its default weights_only=True, which refuses the few harmless types that these
checkpoints contain in addition to tensors. The contexts allow exactly these types; all others are still refused.
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
    """Return the functions and types in pickles of NumPy's numbers and numeric arrays, by names of NumPy 1 and 2."""
    builders = [multiarray._reconstruct, multiarray.scalar]
    old_names = [(build, f"numpy.core.multiarray.{build.__name__}") for build in builders]
    numeric = {type(np.dtype(code)) for code in "?" + np.typecodes["AllInteger"] + np.typecodes["Float"]}
    return [*builders, *old_names, np.ndarray, np.dtype, *numeric]


def _statistic(owner: Any, name: str) -> Any:
    """Replace `getattr` in the pickle of a HistoryBuffer: allow the methods that it names, and refuse all others."""
    from mmengine.logging import HistoryBuffer

    if owner is not HistoryBuffer or name not in ("current", "max", "mean", "min"):
        raise UnpicklingError(f"the checkpoint requests attribute {name!r} of {owner!r}")
    return getattr(owner, name)


def mmengine_checkpoint() -> AbstractContextManager[None]:
    """Allow the types that mmengine's Runner saves in addition to weights: the history of its logs."""
    from mmengine.logging import HistoryBuffer

    return safe_globals([HistoryBuffer, (_statistic, "builtins.getattr"), *_numpy_numbers()])


def fairseq_checkpoint() -> AbstractContextManager[None]:
    """Allow the types that fairseq's Trainer saves in addition to weights: its arguments and meters."""
    return safe_globals([argparse.Namespace, *_numpy_numbers()])
