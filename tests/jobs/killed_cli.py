"""The command line, ended by SIGKILL at the n-th line that it executes in jobs/, db/ or Submitit: n arguments…

A moment drawn from the clock nearly always hits an import; one drawn from the lines hits what is to be tested.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

left = int(sys.argv[1])
PARTS = (f"{os.sep}jobs{os.sep}", f"{os.sep}db{os.sep}", f"{os.sep}submitit{os.sep}")


def trace(frame: FrameType, event: str, argument: Any) -> Any:
    if not any(part in frame.f_code.co_filename for part in PARTS) or frame.f_code.co_name == "<module>":
        return None
    return line


def line(frame: FrameType, event: str, argument: Any) -> Any:
    global left
    left -= event == "line"
    if left == 0:
        print(f"{frame.f_code.co_filename}:{frame.f_lineno}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return line


if __name__ == "__main__":
    from harness.cli import run

    sys.settrace(trace)
    code = run(sys.argv[2:])
    print(f"{left} lines left", flush=True)
    sys.exit(code)
