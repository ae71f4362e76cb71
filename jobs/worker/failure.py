"""How an error ends an attempt: its state, cause and text; also an error of another process of the same job."""

from __future__ import annotations

import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from dropbench.harness.errors import InputError
from dropbench.harness.files import read_json, write_json

LOST = "worker died without reporting an error (killed, out of memory, or node down)"

_MESSAGE_LINES = 15


@dataclass(frozen=True)
class Failure:
    """The end of an attempt by an error.

    Attributes:
        state: "failed", "out_of_memory", or "lost" if another process of the job died.
        cause: one line.
        message: the last lines of the error; None if the cause has all of it.
        text: the complete error.
    """

    state: str
    cause: str
    message: str | None
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        """Return the end that an exception means: its type decides the state, its text is the cause."""
        if isinstance(error, InputError):
            text = _encodable(str(error))
            return cls("failed", text, None, text)
        text = _encodable("".join(traceback.format_exception(error)).strip())
        message = "\n".join(text.splitlines()[-_MESSAGE_LINES:])
        if _is_lost_connection(error):
            return cls("lost", LOST, message, text)
        return cls("out_of_memory" if _is_out_of_memory(error) else "failed", _one_line(error), message, text)

    def write(self, file: Path) -> None:
        """Write it for the first process of the job, and for those who find that process dead."""
        write_json(file, asdict(self))

    @classmethod
    def read(cls, file: Path) -> Failure | None:
        """Return what a process wrote; None if there is no such file, or it is damaged."""
        try:
            return TypeAdapter(cls).validate_python(read_json(file))
        except (OSError, InputError, ValidationError):
            return None


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return _encodable(f"{error.strerror}: {error.filename}" if error.filename else error.strerror)
    try:
        text = " ".join(_encodable(str(error)).split()) or "no message"
    except Exception:  # a plug-in's error may fail at that
        text = "its message cannot be read"
    return f"{type(error).__name__}: {text}"[:500]


def _encodable(text: str) -> str:
    """Escape what is no character, such as a byte of a file's name that is not UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def _is_out_of_memory(error: BaseException) -> bool:
    # If torch raised the error, torch is loaded; it need not be imported here.
    torch = sys.modules.get("torch")
    if isinstance(error, MemoryError) or (torch is not None and isinstance(error, torch.OutOfMemoryError)):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def _is_lost_connection(error: BaseException) -> bool:
    """Return whether a collective operation failed: another process of the job has left it.

    NCCL's errors have a type. Those of gloo are RuntimeErrors that begin with a path of its sources.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, torch.distributed.DistError) or "gloo/transport/" in str(error)
