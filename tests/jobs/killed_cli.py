"""The command line, ended by SIGKILL at the n-th line that it executes in a file: file n dropbench-arguments…

A moment drawn from the clock nearly always hits an import; one drawn from the lines hits what is to be tested.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

file, left = f"{os.sep}{sys.argv[1]}", int(sys.argv[2])


def trace(frame: FrameType, event: str, argument: Any) -> Any:
    # Functions have local variables of their own; the bodies of modules and classes, which run at import, do not.
    return line if frame.f_code.co_filename.endswith(file) and frame.f_code.co_flags & 2 else None


def line(frame: FrameType, event: str, argument: Any) -> Any:
    global left
    left -= event == "line"
    if left == 0:
        print(f"{file[1:]}:{frame.f_lineno}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return line


if __name__ == "__main__":
    from harness.cli import run

    sys.settrace(trace)
    code = run(sys.argv[3:])
    sys.exit(code)
