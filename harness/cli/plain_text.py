"""Untrusted text as one line that a terminal shows literally."""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~]?)"
)
"""ANSI escape sequences: CSI, OSC, other string sequences, and two-character sequences."""
_BREAKS = re.compile(r"[\t\n\r\v\f\x85\u2028\u2029]")
"""Control characters that become spaces."""


def plain(text: object) -> str:
    """Return the text as one line without escape sequences and control characters."""
    line = _BREAKS.sub(" ", str(text))
    if not line.isprintable():  # rarely, and much slower
        literal = _BREAKS.sub(" ", _ESCAPES.sub("", str(text)))
        line = "".join(each for each in literal if unicodedata.category(each) not in ("Cc", "Cf", "Cs"))
    return " ".join(line.split())
