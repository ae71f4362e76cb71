"""Reader of pickles of plain values and arrays that runs no code of the pickle.

A pickle may call any function that its reader lets it look up. This reader provides stand-ins for the four names that
NumPy's arrays use, and nothing else. It does not even provide NumPy's own classes: a forged dtype could make NumPy
treat bytes of the file as addresses. The stand-ins record their arguments, from which arrays are built afterwards.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.errors import InputError
from tasks.data.lines import read_file

PLAIN_TYPES = frozenset({"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"})


class _DtypeState:
    """Stand-in for numpy.dtype."""

    def __init__(self, code: Any, *_: Any) -> None:
        self.code, self.order = _text(code), "|"

    def __setstate__(self, state: Any) -> None:
        self.order = _text(state[1])

    def dtype(self) -> np.dtype[Any]:
        if self.code not in PLAIN_TYPES or self.order not in ("|", "<", ">"):
            raise pickle.UnpicklingError(f"an array of type {self.order}{self.code}")
        return np.dtype(self.code).newbyteorder(self.order)  # type: ignore[arg-type]


class _ArrayState:
    """Stand-in for numpy.ndarray."""

    def __init__(self, *_: Any) -> None: ...

    def __setstate__(self, state: Any) -> None:
        _, self.shape, self.type, self.by_column, self.content = state

    def array(self) -> NDArray[Any]:
        dtype = self.type.dtype()
        if math.prod(self.shape) * dtype.itemsize != len(self.content):
            raise pickle.UnpicklingError(f"an array of shape {self.shape} with {len(self.content)} bytes")
        order = "F" if self.by_column else "C"
        return np.frombuffer(self.content, dtype).reshape(self.shape, order=order)  # type: ignore[call-overload,no-any-return]


class _StandIn:
    """Stand-in for a function: the pickle can call it, but not modify it."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError("a change to a function")


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any, *_: Any) -> _ArrayState:
    if not isinstance(content, bytes | bytearray):
        raise pickle.UnpicklingError("an array without bytes")
    array = _ArrayState()
    array.__setstate__((1, shape, kind, _text(order) == "F", content))
    return array


def _encode(text: str, encoding: str = "latin1") -> bytes:
    # Protocols 0 to 2 of Python 3 write bytes as a call of this function.
    if _text(encoding) != "latin1":
        raise pickle.UnpicklingError(f"bytes in {_text(encoding)}")
    return text.encode("latin-1")


def _refuse_call(*_: Any) -> None:
    raise pickle.UnpicklingError("a call of numpy.ndarray")


# The names that NumPy's arrays have used in pickles, from Python 2 on; NumPy 2 writes `_core` for `core`.
_NAMES = {
    ("numpy.core.multiarray", "_reconstruct"): _StandIn(_ArrayState),
    ("numpy.core.numeric", "_frombuffer"): _StandIn(_from_buffer),
    ("numpy", "ndarray"): _StandIn(_refuse_call),
    ("numpy", "dtype"): _StandIn(_DtypeState),
    ("_codecs", "encode"): _StandIn(_encode),
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _NAMES[module.replace("numpy._core", "numpy.core"), name]
        except KeyError:
            raise pickle.UnpicklingError(f"the name {module}.{name}") from None


def read_plain_pickle(path: Path) -> dict[str, Any]:
    """Return a pickled dictionary of plain values, lists and NumPy arrays of numbers; byte strings stay bytes.

    Raises:
        InputError: the file is missing or damaged, is not such a dictionary, or names anything else. No code is run.
    """
    content = read_file(path)
    try:
        value = _PlainUnpickler(io.BytesIO(content), encoding="bytes").load()
        if not isinstance(value, dict):
            raise pickle.UnpicklingError(f"a {type(value).__name__} in place of a dictionary")
        return {_text(key): item.array() if isinstance(item, _ArrayState) else item for key, item in value.items()}
    # A damaged pickle can make the unpickler raise nearly anything.
    except Exception as error:
        message = str(error) if isinstance(error, pickle.UnpicklingError) else f"{type(error).__name__}: {error}"
        message = " ".join(message.split())
        raise InputError(
            f"{path}: refused or damaged pickle ({message}): expected a dictionary of plain values and numeric arrays"
        ) from None


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
