"""Untrusted text as one line that a terminal shows literally."""

from __future__ import annotations

import re
import unicodedata

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~]?)"
)
"""ANSI escape sequences: CSI, OSC, other string sequences, and two-character sequences."""


def plain(text: object) -> str:
    """Return the text as one line without escape sequences and control characters."""
    line = str(text)
    if line.isprintable():  # the usual case, and much faster
        return " ".join(line.split())
    line = "".join(
        character
        for character in _ESCAPES.sub("", line)
        if character in "\t\n\r\v\f\x85\u2028\u2029" or unicodedata.category(character) not in ("Cc", "Cf", "Cs")
    )
    return " ".join(line.split())
