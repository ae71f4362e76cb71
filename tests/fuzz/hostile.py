"""Hostile values, and the rule that every command keeps: no traceback, no hang, a user's error in one line."""

from __future__ import annotations

import io
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, NamedTuple

from hypothesis import strategies as st

from dropbench.harness.cli.main import run
from tests.patience import PATIENCE

SECONDS = PATIENCE
"""Seconds after which a command on hostile input counts as stuck."""

TEXTS = (
    "", " ", "-", "--", "=", "x", "none", "None", "null", "true", "nan", "-inf", "0", "-1", "1e999", "1e-300",
    "9" * 400, "9" * 5000, "0x" + "f" * 5000, "1_0",
    "٣", "½", "x" * 300, "../../x", "/dev/zero", "/dev/null", "/", "~nouser/x",
    "a\nb", "a\tb", "\x1b[31mx", "\r", "\u202ex", "x\u0301", "\ufeff", "\U0001f600", "{", "[", "[[", "{{x}}", "%s",
    "{0}", "'", '"', "`id`", "$(id)", ";", "&&", "*", "?", "[a", "a=b", "a=b=c", "=b", "a=", ",", "a,,b", "..", "1..",
    "..1", "1..2:0", "a:b", "a:b=", ":", "::", "://", "!!int x", "&a [*a]", "<<: x", "not", "DROP TABLE trials",
    "' OR 1=1 --", "<script>", "=1+1", "@x", "-o", "--help", "--version", "tiny.yaml", "tiny", "ratio=0.1",
)  # fmt: skip
"""Texts for options, arguments, names and settings."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**70, 0.5, -0.0, 1e300, float("nan"), float("inf"), [], [None],
    [[]], [1, "x"], {}, {"x": 1}, {1: 2}, {None: None}, {"ratio": float("nan")}, {"ratio": "x"}, [{"ratio": 0.1}],
    {"low": 0, "high": 1}, {"kind": "curves", "over": "x"}, {"kind": "maps"}, {"kind": "histograms"},
)  # fmt: skip
"""Values for keys of YAML and JSON files."""

texts = st.sampled_from(TEXTS) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
values = st.sampled_from(VALUES) | texts


class Outcome(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


def call(*arguments: str) -> Outcome:
    """Run a command in this process, and check the rule.

    Raises:
        AssertionError: its exit code is not 0, 1 or 2, or code 2 comes without a message of one line.
        TimeoutError: the command computes or waits without end.
    """
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with limited(SECONDS), redirect_stdout(out), redirect_stderr(err):
        code = run(list(arguments))
    output, errors = (stream.buffer.getvalue().decode() for stream in (out, err))
    assert code in (0, 1, 2), (code, errors)
    assert "Traceback" not in errors
    if code == 2:
        (last,) = errors.splitlines()[-1:] or [""]
        assert last.startswith("dropbench: "), errors
    return Outcome(code, output, errors)


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the block after some seconds, even if it waits for a pipe."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value inside a nested value, by keys and indices."""
    items: Sequence[tuple[Any, Any]] = ()
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    for key, inner in items:
        yield (*path, key)
        yield from paths_of(inner, (*path, key))


def changed(value: Any, path: tuple[Any, ...], kind: str, new: Any) -> Any:
    """Return a copy of a nested value with one value replaced by `new`, removed, or under the key `new`."""
    key, *rest = path
    copy = value.copy()
    if rest:
        copy[key] = changed(copy[key], tuple(rest), kind, new)
    elif kind == "remove":
        del copy[key]
    elif kind == "rename" and isinstance(copy, dict) and new.__hash__ is not None:
        copy[new] = copy.pop(key)
    else:
        copy[key] = new
    return copy
