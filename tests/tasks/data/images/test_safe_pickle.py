"""Untrusted pickles: plain values are read, and no code is run."""

from __future__ import annotations

import builtins
import contextlib
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from harness.errors import InputError
from tasks.data.images.safe_pickle import PLAIN_TYPES, read_plain_pickle

DTYPES = st.sampled_from([f"{order}{code}" for code in sorted(PLAIN_TYPES) for order in "<>"])
ARRAYS = DTYPES.flatmap(lambda dtype: arrays(np.dtype(dtype), array_shapes(max_dims=3, max_side=5)))
# Not b"", which old protocols write as a call of bytes().
LEAVES = st.none() | st.integers() | st.text(max_size=5) | st.binary(min_size=1, max_size=5)
PLAIN = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner), max_leaves=5)


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@given(ARRAYS, PLAIN, st.sampled_from([2, 3, 4, 5]), st.booleans())
def test_plain_dictionaries_are_read_as_pickle_reads_them(
    tmp_path_factory: pytest.TempPathFactory, array: np.ndarray[Any, Any], value: Any, protocol: int, by_column: bool
) -> None:
    if by_column:
        array = np.asfortranarray(array)
    path = write(tmp_path_factory.mktemp("plain") / "a", pickle.dumps({"data": array, "value": value}, protocol))
    loaded = read_plain_pickle(path)
    assert loaded["data"].dtype == array.dtype
    assert loaded["data"].shape == array.shape
    assert loaded["data"].tobytes() == array.tobytes()
    assert loaded["value"] == value


class Calls:
    """Object that is pickled as a call of a function."""

    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.reduced = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> tuple[Any, ...]:
        return self.reduced


def touch(path: Path) -> list[Any]:
    """Return calls in a pickle that would create a file."""
    return [
        Calls(os.system, f"touch {path}"),
        Calls(builtins.eval, f"open({str(path)!r}, 'w').close()"),
        Calls(builtins.exec, f"open({str(path)!r}, 'w').close()"),
        Calls(builtins.open, str(path), "w"),
        Calls(subprocess.Popen, ["touch", str(path)]),
        Calls(getattr, os, "system"),
        Calls(np.save, str(path), [1]),
        Calls(os.mkdir, str(path)),
    ]


@pytest.mark.parametrize("index", range(8))
@pytest.mark.parametrize("protocol", [2, 5])
@pytest.mark.parametrize("position", ["top", "value", "key", "in a list", "in an array"])
def test_a_pickle_with_a_call_is_refused_and_not_run(tmp_path: Path, index: int, protocol: int, position: str) -> None:
    marker = tmp_path / "marker"
    call = touch(marker)[index]
    if index == 5:
        # A module cannot be pickled: this is the same call, opcode by opcode.
        content = b"\x80\x02cbuiltins\ngetattr\ncposix\nsystem\nU\x08__name__\x86R."
    else:
        values: dict[str, Any] = {
            "top": call,
            "value": {"data": call},
            "key": {call: 1},
            "in a list": {"data": [1, call]},
            "in an array": {"data": np.array([call, None], dtype=object)},
        }
        content = pickle.dumps(values[position], protocol)
    with pytest.raises(InputError, match=r"a: refused or damaged pickle \(.*\): expected a dictionary of plain values"):
        read_plain_pickle(write(tmp_path / "a", content))
    assert not marker.exists()


def test_pickle_would_have_run_the_calls(tmp_path: Path) -> None:
    # Otherwise the test above could not fail.
    for number in (0, 2, 3, 7):
        marker = tmp_path / f"marker{number}"
        loaded = pickle.loads(pickle.dumps(touch(marker)[number]))  # noqa: S301
        if number == 3:
            loaded.close()
        assert marker.exists()


def forged_array(dtype_state: bytes, code: bytes = b"O8") -> bytes:
    """Return a pickled array whose dtype claims to have no objects, with bytes in place of their addresses."""
    dtype = b"cnumpy\ndtype\nU" + bytes([len(code)]) + code + b"K\x00K\x01\x87R" + dtype_state
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R(K\x01K\x01\x85" + dtype
    return b"\x80\x02}U\x04data" + array + b"\x89U\x08AAAAAAAAtbs."


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (forged_array(b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"), r"an array of type \|O8"),
        (forged_array(b"", b"V8"), "an array of type"),
        (forged_array(b"(K\x03U\x01!NNNtb", b"u1"), "an array of type !u1"),
        (forged_array(b"", b"u4"), r"an array of shape \(1,\) with 8 bytes"),
        (b"\x80\x02cnumpy\nndarray\nK\x05\x85R.", r"a call of numpy\.ndarray"),
        (b"\x80\x02cnumpy\ndtype\n}U\x05_callNsb.", "a change to a function"),
        (b"\x80\x02c_codecs\nencode\nU\x01aU\x05rot13\x86R.", "bytes in rot13"),
        (b"\x80\x02cnumpy._core.numeric\n_frombuffer\n(J\xff\xff\xff\x7fNNNtR.", "an array without bytes"),
        (b"\x80\x02cnumpy.core.multiarray\nscalar\n.", r"the name numpy\.core\.multiarray\.scalar"),
        (b"\x80\x02cnumpy._core.multiarray\n_reconstruct.__globals__\n.", "the name"),
        (b"\x80\x02c__main__\nx\n.", r"the name __main__\.x"),
        (b"\x80\x02\x82\x01.", "unregistered extension code 1"),
        (b"\x80\x02U\x03pidQ.", "persistent"),
        (b"\x80\x02]q\x00.", "a list in place of a dictionary"),
        (b"\x80\x02}", "EOFError|truncated|exhausted"),
        (b"\x80\xff}.", "unsupported pickle protocol"),
        (b"\x01\x02\x03", "invalid load key"),
        (b"0 a text\n", "refused or damaged"),
    ],
)
def test_forged_and_damaged_pickles_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read_plain_pickle(write(tmp_path / "a", content))
    assert "\n" not in str(error.value)


def test_a_refused_pickle_changes_nothing_for_the_next(tmp_path: Path) -> None:
    good = write(tmp_path / "good", pickle.dumps({"data": np.arange(3)}, 2))
    for name in (b"numpy\ndtype", b"_codecs\nencode", b"numpy.core.multiarray\n_reconstruct"):
        with pytest.raises(InputError):
            read_plain_pickle(write(tmp_path / "bad", b"\x80\x02c" + name + b"\n(N}U\x05_callNstb."))
    assert read_plain_pickle(good)["data"].tolist() == [0, 1, 2]


@given(st.data())
def test_a_pickle_truncated_or_flipped_raises_nothing_but_input_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(pickle.dumps({"data": np.arange(12, dtype=np.uint8), "labels": [1, 2, 3]}, protocol=2))
    offset = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        del content[offset:]
    else:
        content[offset] = data.draw(st.integers(0, 255))
    path = write(tmp_path_factory.mktemp("flipped") / "a", bytes(content))
    with contextlib.suppress(InputError):
        assert isinstance(read_plain_pickle(path), dict)
