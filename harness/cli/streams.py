"""Standard streams that the caller has closed, or whose reader has ended."""

from __future__ import annotations

import os
import select
import sys

_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL


def open_missing_streams() -> None:
    """Connect standard streams that the caller has closed (``>&-``) to the null device.

    Otherwise, the next file that is opened would get the number of the stream, and what is printed would go into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, os.O_RDWR)  # the lowest that is free
            os.set_inheritable(number, True)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115 - open until the process ends
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def output_is_closed() -> bool:
    """Return whether nothing reads standard output or standard error any more, as after ``| head``."""
    return bool(_closed_outputs())


def discard_closed_output() -> None:
    """Connect outputs that nothing reads any more to the null device, so that printing is no error."""
    for number in _closed_outputs():
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, number)
        os.close(null)


def _closed_outputs() -> list[int]:
    poll = select.poll()
    for number in (1, 2):
        poll.register(number, 0)
    return [number for number, events in poll.poll(0) if events & _GONE]
