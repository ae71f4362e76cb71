"""Ports for the daemons of a cluster."""

from __future__ import annotations

import contextlib
import os
import socket


def free_ports(count: int) -> int:
    """Return the first of `count` consecutive free ports; clusters of other processes try other ports."""
    for first in range(17000 + os.getpid() * count % 12000, 31000, count):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + count):
                held.enter_context(contextlib.closing(socket.socket())).bind(("127.0.0.1", port))
            return first
    raise OSError("no free ports")
