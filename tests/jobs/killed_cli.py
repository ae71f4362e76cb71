"""Run the command line and kill it at the n-th line that it executes in a file: file n dropbench-arguments…

A random time would nearly always fall into an import; a random line falls into the code under test.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

file, remaining = f"{os.sep}{sys.argv[1]}", int(sys.argv[2])


def trace(frame: FrameType, event: str, argument: Any) -> Any:
    # Flag 2 (CO_NEWLOCALS) selects functions; the bodies of modules and classes run at import.
    return line if frame.f_code.co_filename.endswith(file) and frame.f_code.co_flags & 2 else None


def line(frame: FrameType, event: str, argument: Any) -> Any:
    global remaining
    remaining -= event == "line"
    if remaining == 0:
        print(f"{file[1:]}:{frame.f_lineno}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return line


if __name__ == "__main__":
    from dropbench.harness.cli.main import run

    sys.settrace(trace)
    code = run(sys.argv[3:])
    sys.exit(code)
