"""Call a function in several processes that form a group over gloo, as `torchrun` would, but forked from one server."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from tests.forkserver import start_server
from tests.patience import PATIENCE

Result = TypeVar("Result")


def run_ranks(ranks: int, function: Callable[..., Result], *arguments: Any) -> list[Result]:
    """Return the results of all ranks; the function is one of a module, and results can be pickled.

    The first error of a rank ends the others and fails the test, so that none waits for it.
    """
    from torch._C._distributed_c10d import TCPStore

    start_server()
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("forkserver")
    ends: dict[Connection, int] = {}
    processes = []
    for rank in range(ranks):
        ours, theirs = context.Pipe(duplex=False)
        variables = {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "TORCHELASTIC_USE_AGENT_STORE": "True",
            "GLOO_SOCKET_IFNAME": "lo",
            **{name: os.environ[name] for name in ("XDG_CACHE_HOME",) if name in os.environ},
        }  # fmt: skip
        name = function.__module__, function.__name__
        process = context.Process(target=_run, args=(theirs, variables, *name, arguments))
        process.start()
        theirs.close()
        ends[ours] = rank
        processes.append(process)
    try:
        return _results(ends, ranks)
    finally:
        for process in processes:
            process.kill()
            process.join()


def _results(ends: dict[Connection, int], ranks: int) -> list[Any]:
    """Return what the ranks send, in their order."""
    results: dict[int, Any] = {}
    deadline = time.monotonic() + PATIENCE
    while len(results) < ranks:
        waiting = [end for end, rank in ends.items() if rank not in results]
        ready = wait(waiting, timeout=max(0.0, deadline - time.monotonic()))
        assert ready, f"waited {PATIENCE:.0f} s for ranks {[ends[end] for end in waiting]}"
        for end in ready:
            assert isinstance(end, Connection)
            try:
                error, results[ends[end]] = end.recv()
            except EOFError:
                error = "died"
            assert error is None, f"rank {ends[end]}: {error}"
    return [results[rank] for rank in range(ranks)]


def _run(end: Connection, variables: dict[str, Any], module: str, function: str, arguments: tuple[Any, ...]) -> None:
    """Call a function of a module as one rank, send its result or its traceback, and wait to be ended."""
    warnings.simplefilter("ignore")  # the server makes them errors, also those of libraries that are imported here
    os.environ.update({name: str(value) for name, value in variables.items()})
    multiprocessing.set_start_method(None, force=True)
    message: tuple[str | None, Any]
    try:
        message = (None, getattr(importlib.import_module(module), function)(*arguments))
    except BaseException:
        message = (traceback.format_exc(), None)
    with contextlib.suppress(BrokenPipeError):
        end.send(message)
    time.sleep(PATIENCE)  # leaving, it would break the connections of others
